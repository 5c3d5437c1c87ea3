"""Whether MLflow answers, without importing mlflow, which the scheduler does not load."""

import asyncio

import httpx

# The scheduler's tick waits for the answer.
_SECONDS = 2.0


def is_healthy(mlflow_url: str) -> bool:
    """Whether the server says so in time."""
    return asyncio.run(_ask(f"{mlflow_url}/health"))


async def _ask(url: str) -> bool:
    try:
        # httpx limits each read, and a slow answer may take any number of reads.
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient() as client:
            return (await client.get(url)).status_code == httpx.codes.OK
    except (httpx.HTTPError, TimeoutError):
        return False
