"""What integration tests share besides the stores."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.integration.serving import TASK, service_settings, serving
from trainer.registry import Registry


@pytest.fixture
def registry(mlflow_url: str) -> Registry:
    """Our side of the session's MLflow server."""
    return Registry(mlflow_url)


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that knows the task `flights` of `tests.integration.serving` and no event."""
    async with serving(service_settings(database_url, tmp_path)) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201
        yield client
