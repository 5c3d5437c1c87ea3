"""Whether MLflow answers, asked without mlflow, which the scheduler does not load."""

import asyncio

import httpx

# The scheduler's tick waits for the answer.
_SECONDS = 2.0


def is_healthy(mlflow_url: str) -> bool:
    """Whether the server says so in time."""
    return asyncio.run(_ask(f"{mlflow_url}/health"))


async def _ask(url: str) -> bool:
    try:
        # httpx bounds every read by itself, and a slow answer takes any number of them.
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient() as client:
            return (await client.get(url)).status_code == httpx.codes.OK
    except (httpx.HTTPError, TimeoutError):
        return False
