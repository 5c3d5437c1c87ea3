"""What integration tests share besides the stores."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jaxtyping
import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine

from service.database import Store
from service.metrics import Metrics
from service.models.follower import Follower
from store.engine import make_engine
from store.tasks.catalog import Schema
from tests.integration.api_process import Running, define_flights, running
from tests.integration.make_follower import MakeFollower
from tests.integration.published_versions import define
from tests.integration.service_app import DEAD_DATABASE, DEAD_REGISTRY, TASK, service_settings, serving
from trainer.tracking.registry import Registry


@pytest.fixture(autouse=True)
def unchecked_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a small step goes into checking shapes, to which unit tests hold every layer and loss."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def registry(mlflow_url: str) -> Registry:
    """Our side of the session's MLflow server."""
    return Registry(mlflow_url)


@pytest.fixture
def mlflow_client(mlflow_url: str) -> MlflowClient:
    """What a script of somebody else asks the same server with."""
    return MlflowClient(mlflow_url, mlflow_url)


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that knows the task `flights` of `tests.integration.service_app` and no event."""
    async with serving(service_settings(database_url, tmp_path)) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201
        yield client


@pytest.fixture
def api(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Running]:
    """A process of the API that answers for the task `flights`."""
    define_flights(engine)
    with running(database_url, tmp_path) as api:
        yield api


@pytest.fixture
def schema(engine: Engine) -> Schema:
    """A task of `tests.integration.service_app` by a name of its own, for the MLflow server is shared; nothing is
    known."""
    return define(engine)


@pytest.fixture
def task(schema: Schema) -> str:
    """The name of that task."""
    return schema.task.name


@pytest.fixture
def make_follower(engine: Engine, mlflow_url: str, tmp_path: Path) -> Iterator[MakeFollower]:
    """Followers of one home; offline ones reach neither store nor registry."""
    with ExitStack() as opened:

        def make(*, offline: bool = False, registry: str = mlflow_url, **changes: Any) -> Follower:
            url = DEAD_REGISTRY if offline else registry
            store = Store(make_engine(DEAD_DATABASE) if offline else engine, places=2, seconds=5)
            opened.callback(store.close)
            settings = service_settings(DEAD_DATABASE, tmp_path / "home", mlflow_url=url, **changes)
            follower = Follower(settings, store, Metrics())
            opened.callback(follower.close)
            follower.restore()
            return follower

        yield make
