"""Transactions of others that stay open: they hold up what they touch, for seconds, and no other task."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import psycopg
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from contracts.clock import to_micros
from contracts.task import Task
from service.database import Store
from service.ingest.group_commit import GroupCommit
from store.cycles.leases import claim_cycle, expire_leases
from store.cycles.ledger import list_cycles
from store.cycles.requests import request_cycle
from store.engine import make_engine
from store.errors import Locked
from store.events.batches import Event
from store.events.reading.columns import read_events
from store.events.writes import append_events
from store.outages import LATE, is_locked, name_outage
from store.tasks.catalog import Schema, define_task, find_task, lock_task
from tests.integration.published_versions import define
from tests.integration.service_app import TASK, an_event
from trainer.scheduling.scheduler import Trainer
from trainer.settings import TrainerSettings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WEEK = timedelta(days=7)


@contextmanager
def open_insert(engine: Engine, schema: Schema, event_id: str = "foreign") -> Iterator[Connection]:
    """A session that has stored an event and does not commit."""
    row = Event(event_id, 0, 0, (1.0, 2.0), ("UA",), "late")
    with engine.connect() as connection, connection.begin() as transaction:
        append_events(connection, schema, [row], NOW)
        yield connection
        transaction.rollback()


@contextmanager
def engine_with(engine: Engine, setting: str) -> Iterator[Engine]:
    """An engine for the same database, of whose sessions somebody else limits something."""
    with engine.begin() as connection:
        connection.execute(text(f'ALTER DATABASE "{engine.url.database}" SET {setting}'))
    other = make_engine(engine.url.render_as_string(hide_password=False))
    yield other
    other.dispose()


@pytest.fixture
def impatient(engine: Engine) -> Iterator[Engine]:
    """An engine that waits for no lock, so that any wait fails."""
    with engine_with(engine, "lock_timeout = 1") as impatient:
        yield impatient


def test_an_open_insert_holds_up_neither_definitions_nor_cycles(engine: Engine, impatient: Engine) -> None:
    schema = define(engine)
    with open_insert(engine, schema), impatient.begin() as connection:
        changed = schema.task.model_copy(update={"label_delay": timedelta(hours=7)})
        assert define_task(connection, changed, NOW)[1]
        asked = request_cycle(connection, schema.task_id, 0, NOW)
        assert lock_task(connection, schema.task_id)
        claimed = claim_cycle(connection, "lease", NOW, timedelta(hours=1))
        assert claimed is not None
        assert claimed.cycle_id == asked.cycle_id


def test_a_locked_cycle_holds_up_the_end_of_no_other_lease(engine: Engine, impatient: Engine) -> None:
    locked, other = define(engine), define(engine)
    with engine.begin() as connection:
        for schema in (locked, other):
            request_cycle(connection, schema.task_id, 0, NOW)
            assert claim_cycle(connection, uuid4().hex, NOW, timedelta(seconds=1)) is not None
    with engine.begin() as holding:
        holding.execute(text("SELECT FROM cycles WHERE task_id = :id FOR UPDATE"), {"id": locked.task_id})
        with impatient.begin() as connection:
            assert [one.task_id for one in expire_leases(connection, NOW + WEEK)] == [other.task_id]
    with impatient.begin() as connection:
        assert [one.task_id for one in expire_leases(connection, NOW + WEEK)] == [locked.task_id]


def test_a_task_whose_row_somebody_locks_holds_up_the_cycles_of_no_other(engine: Engine, tmp_path: Path) -> None:
    locked, other = define(engine, schedule="window"), define(engine, schedule="window")
    settings = TrainerSettings(home=tmp_path, mlflow_url="http://127.0.0.1:9", database_url="postgresql://unused")
    trainer = Trainer(engine, settings)
    known = to_micros(NOW - WEEK)
    with engine.begin() as connection:
        for schema in (locked, other):
            append_events(connection, schema, [Event("e", known, known, (1.0, 2.0), ("UA",), "late")], NOW)
    with engine.begin() as holding:
        holding.execute(text("SELECT FROM tasks WHERE id = :id FOR UPDATE"), {"id": locked.task_id})
        trainer._request(NOW)
        with engine.connect() as connection:
            assert [len(list_cycles(connection, schema.task_id)) for schema in (locked, other)] == [0, 1]
    trainer._request(NOW)
    with engine.connect() as connection:
        assert len(list_cycles(connection, locked.task_id)) == 1


def test_a_wait_for_a_lock_is_bounded_and_named(engine: Engine) -> None:
    schema = define(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "5s"
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "1min"
    with open_insert(engine, schema), engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = 10"))
        with pytest.raises(OperationalError) as caught:
            append_events(connection, schema, [Event("foreign", 0, 0, (1.0, 2.0), ("UA",), "late")], NOW)
    assert name_outage(caught.value) is LATE
    assert is_locked(caught.value)


def test_a_fit_that_reads_a_locked_table_has_met_an_outage(engine: Engine, impatient: Engine) -> None:
    schema = define(engine)
    snapshot = impatient.connect().execution_options(isolation_level="REPEATABLE READ")
    with engine.begin() as holding, snapshot as connection, connection.begin():
        holding.execute(text("LOCK TABLE events"))
        with pytest.raises(psycopg.Error) as caught:
            read_events(connection, schema.task_id, schema.task, to_micros(NOW))
    assert name_outage(caught.value) is LATE


def test_a_stricter_limit_of_the_database_is_kept(engine: Engine) -> None:
    with engine_with(engine, "lock_timeout = 700") as other, other.connect() as connection:
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "700ms"


def test_a_process_that_stops_inside_a_transaction_loses_its_locks(engine: Engine) -> None:
    schema = define(engine)
    row = Event("foreign", 0, 0, (1.0, 2.0), ("UA",), "late")
    with engine_with(engine, "idle_in_transaction_session_timeout = 100") as frozen:
        connection = frozen.connect()
        append_events(connection, schema, [row], NOW)
        time.sleep(0.5)
        with engine.begin() as other:
            assert append_events(other, schema, [row], NOW) == ["created"]
        with pytest.raises(DBAPIError) as caught:
            connection.execute(text("SELECT 1"))
        assert name_outage(caught.value) is not None
        connection.invalidate()
        connection.close()


@pytest.mark.anyio
async def test_an_event_that_waits_for_a_lock_fails_alone(engine: Engine) -> None:
    with engine.begin() as connection:
        schema, _ = define_task(connection, Task.model_validate(TASK | {"name": "flights"}), NOW)
    begun, may_go_on = threading.Event(), threading.Event()

    def find_schemas(connection: Connection, task: str | None) -> list[Schema]:
        begun.set()
        assert may_go_on.wait(20)
        connection.execute(text("SET LOCAL lock_timeout = 200"))
        return [find_task(connection, task or "flights")]

    own = make_engine(engine.url.render_as_string(hide_password=False))
    writer = GroupCommit(Store(own, places=2, seconds=20), 100, find_schemas)

    async def write(event_id: str) -> str:
        try:
            return str((await writer.write("flights", msgspec.json.encode(an_event(event_id)))).outcome)
        except Locked as error:
            return "locked" if "pg_stat_activity" in str(error) else str(error)

    with open_insert(engine, schema, "held"):
        first = asyncio.create_task(write("first"))
        await asyncio.to_thread(begun.wait, 20)
        group = [asyncio.create_task(write(event_id)) for event_id in ("a", "held", "b")]
        await asyncio.sleep(0)
        may_go_on.set()
        assert await first == "created"
        assert [await one for one in group] == ["created", "locked", "created"]
    assert await write("held") == "created"
    own.dispose()


def test_waits_are_brief_for_a_while_and_brief_ones_do_not_prolong_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers of the API that meet each other must not keep each other from waiting for ever."""
    monkeypatch.setattr("service.database._BRIEF_SECONDS", 2.0)
    schema = define(engine)

    def wait(store: Store) -> float:
        """The seconds for which a transaction waited in vain for the row of the task."""
        began = time.monotonic()
        with pytest.raises(Locked):
            store.transact(lambda connection: lock_task(connection, schema.task_id))
        return time.monotonic() - began

    with engine_with(engine, "lock_timeout = 1000") as other, engine.begin() as connection:
        store = Store(other, places=2, seconds=10)
        lock_task(connection, schema.task_id)
        first, ends = wait(store), time.monotonic() + 2.0
        brief = []
        while time.monotonic() < ends - 0.3:
            brief.append(wait(store))
        time.sleep(max(ends - time.monotonic(), 0) + 0.1)  # until the while is over
        last = wait(store)
    assert len(brief) >= 2
    assert max(brief) < min(first, last)


def test_waits_are_brief_for_the_task_alone_whose_lock_somebody_holds(engine: Engine) -> None:
    held, other = define(engine), define(engine)
    with engine_with(engine, "lock_timeout = 1000") as own, engine.begin() as connection:
        store = Store(own, places=2, seconds=10)
        lock_task(connection, held.task_id)
        with pytest.raises(Locked):
            store.transact(lambda connection: lock_task(connection, held.task_id), [held.task.name])
        lock_task(connection, other.task_id)
        waited = {}
        for schema in (held, other):
            began = time.monotonic()
            with pytest.raises(Locked):
                store.transact(partial(lock_task, task_id=schema.task_id), [schema.task.name])
            waited[schema.task.name] = time.monotonic() - began
        assert waited[held.task.name] < 0.8 < waited[other.task.name]


def test_waits_are_brief_for_all_if_locks_of_many_tasks_are_held(engine: Engine) -> None:
    schemas = [define(engine) for _ in range(4)]
    with engine_with(engine, "lock_timeout = 500") as own, engine.begin() as connection:
        store = Store(own, places=2, seconds=10)
        connection.execute(text("LOCK TABLE tasks"))
        for schema in schemas:
            began = time.monotonic()
            with pytest.raises(Locked):
                store.transact(partial(lock_task, task_id=schema.task_id), [schema.task.name])
        assert time.monotonic() - began < 0.45


@pytest.mark.anyio
async def test_events_of_one_task_wait_for_no_lock_of_another(engine: Engine) -> None:
    """They wait together once, since they came together; after that, those of the other task are written first."""
    tasks = {}
    with engine.begin() as connection:
        for name in ("held", "free"):
            tasks[name], _ = define_task(connection, Task.model_validate(TASK | {"name": name}), NOW)
    with engine_with(engine, "lock_timeout = 1000") as own:
        store = Store(own, places=2, seconds=20)
        writer = GroupCommit(store, 100, lambda connection, task: [find_task(connection, task or "")])

        async def write(task: str, event_id: str) -> str:
            try:
                return str((await writer.write(task, msgspec.json.encode(an_event(event_id)))).outcome)
            except Locked:
                return "locked"

        with open_insert(engine, tasks["held"], "foreign"):
            for number in range(3):
                sent = [("free", f"f{number}"), ("held", "foreign"), ("free", f"g{number}"), ("held", f"h{number}")]
                found = await asyncio.gather(*(write(*one) for one in sent))
                assert found == ["created", "locked", "created", "created"]
            assert (store.waits_briefly("held"), store.waits_briefly("free")) == (True, False)
        assert await write("held", "foreign") == "created"
