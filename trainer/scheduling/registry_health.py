"""Whether MLflow's API answers, without importing mlflow, which the scheduler does not load."""

import asyncio

import httpx

from contracts.errors import InvalidInput
from contracts.failure import REGISTRY_UNREACHABLE
from contracts.registry_answers import PROBE, explain_status
from contracts.runtime.http_clients import mlflow_options

# The scheduler's tick waits for the answer.
_SECONDS = 2.0


def find_trouble(mlflow_url: str) -> str | None:
    """Why the registry cannot be used now, in a sentence; None if it answers in time."""
    return asyncio.run(_ask(mlflow_url))


async def _ask(url: str) -> str | None:
    try:
        # httpx limits each read, and a slow answer may take any number of reads.
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient(**mlflow_options(url)) as client:
            answer = await client.get(PROBE)
    except (httpx.HTTPError, TimeoutError):
        return REGISTRY_UNREACHABLE.reason
    except InvalidInput as error:
        return str(error)
    return None if answer.status_code == httpx.codes.OK else explain_status(answer.status_code, answer.text)
