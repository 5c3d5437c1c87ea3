"""Through a real PgBouncer everything works as without one, under session and under transaction pooling."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import Connection, Engine, text

from contracts.clock import format_moment
from contracts.failure import STOPPED
from migrations import migrate
from service.database import Store
from store.engine import make_engine
from store.sessions import is_pooled
from tests.integration.artefacts import CUTOFF, place_version
from tests.integration.drifting_task import cutoff_after, cycles_of, define, drifting_task, now
from tests.integration.pgbouncer import MISSING, PROGRAM, pgbouncer
from tests.integration.service_app import TASK, an_event, service_settings, serving
from tests.integration.trainer.test_idle_work import with_our_cells
from tests.integration.trainer_ticks import ask, has_ended, tick_until, trainers
from trainer.data.snapshot import read
from trainer.scheduling.idle_work import IdleWork
from trainer.scheduling.workers.jobs import FillRivals

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)
LENT = 4


@pytest.fixture(params=["session", "transaction"])
def mode(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def pooled_url(database_url: str, mode: str) -> Iterator[str]:
    with pgbouncer(database_url, mode, places=16 if mode == "session" else LENT) as url:
        yield url


@pytest.fixture
def pooled(pooled_url: str) -> Iterator[Engine]:
    engine = make_engine(pooled_url, pool_size=8)
    yield engine
    engine.dispose()


def test_a_pooler_is_recognised_and_a_direct_connection_is_not(pooled: Engine, engine: Engine) -> None:
    with pooled.connect() as through, engine.connect() as direct:
        assert (is_pooled(through), is_pooled(direct)) == (True, False)


def test_an_empty_database_is_migrated_through_it(empty_url: str, mode: str) -> None:
    with pgbouncer(empty_url, mode) as url:
        assert "from revision 0" in migrate(url)
        assert "already" in migrate(url)


def test_every_transaction_has_our_settings_and_leaves_none_behind(pooled: Engine, engine: Engine) -> None:
    store = Store(pooled, places=8, seconds=7)

    def look(connection: Connection) -> tuple[str, ...]:
        connection.execute(text("SELECT pg_sleep(0.02)"))
        names = ("datestyle", "timezone", "statement_timeout", "extra_float_digits")
        return tuple(str(connection.execute(text(f"SHOW {name}")).scalar_one()) for name in names)

    with ThreadPoolExecutor(8) as threads:
        seen = set(threads.map(lambda _: store.transact(look), range(64)))
    assert {(style.split(",")[0], zone.upper(), *rest) for style, zone, *rest in seen} == {("ISO", "UTC", "7s", "1")}
    with engine.connect() as direct:
        pids = direct.execute(text("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%statement_timeout%'"))
        assert pids.scalar_one() > 0


@pytest.mark.anyio
async def test_many_requests_at_once_are_stored_and_answered(pooled_url: str, tmp_path: Path) -> None:
    """Single events, batches and reads from more clients than the pooler lends sessions."""
    statuses: list[int] = []
    async with serving(service_settings(pooled_url, tmp_path / "home")) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201

        async def ask(k: int) -> None:
            for i in range(12):
                one = await client.post("/events", json=an_event(f"one-{k}-{i}"))
                many = await client.post("/events", json=[an_event(f"many-{k}-{i}-{j}") for j in range(5)])
                status = await client.get("/tasks/flights")
                statuses.extend(answer.status_code for answer in (one, many, status))

        async with anyio.create_task_group() as group:
            for k in range(8):
                group.start_soon(ask, k)
        assert set(statuses) == {200}
        found: dict[str, Any] = (await client.get("/tasks/flights")).json()
        assert found["num_events"] == 8 * 12 * 6


@pytest.mark.anyio
async def test_answers_are_logged(pooled_url: str, engine: Engine, tmp_path: Path) -> None:
    place_version(tmp_path / "home")
    async with serving(service_settings(pooled_url, tmp_path / "home")) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201
        body = {"features": {"distance": 1400, "carrier": "UA"}, "at": [format_moment(CUTOFF)] * 300}
        for _ in range(3):
            (await client.post("/predict", json=body)).raise_for_status()
            await anyio.sleep(0.7)  # a transaction for each
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM predictions")).scalar_one() == 900


def test_a_training_set_is_read_in_one_snapshot(pooled: Engine, engine: Engine) -> None:
    schema = define(engine, drifting_task(), 3)
    through, direct = (read(one, schema, cutoff_after(3), now()) for one in (pooled, engine))
    assert len(through.events) == len(direct.events) > 0


def test_a_cycle_is_carried_out(pooled_url: str, engine: Engine, mlflow_url: str, tmp_path: Path) -> None:
    """By a trainer and its training processes, which all go through the pooler."""
    schema = define(engine, drifting_task(), 8)
    ask(engine, schema, cutoff_after(8))
    through = make_engine(pooled_url)
    with trainers(through, pooled_url, mlflow_url, tmp_path) as make:
        tick_until([make()], lambda: has_ended(engine, schema))
    through.dispose()
    (cycle,) = cycles_of(engine, schema)
    assert cycle.state == "released", cycle.reason


def test_the_lock_of_idle_work_is_released_in_the_session_that_holds_it(pooled: Engine, engine: Engine) -> None:
    schema = with_our_cells(engine)
    job = FillRivals(schema.task_id, schema.task.name)
    one, other = IdleWork(pooled, 3), IdleWork(pooled, 3)
    for _ in range(3):
        one._next_check = other._next_check = 0.0
        assert one.choose(now()) == job
        assert other.choose(now()) is None
        one.finish(job, STOPPED, now())
        other._next_check = 0.0
        assert other.choose(now()) == job
        other.finish(job, STOPPED, now())
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")).scalar_one() == 0
