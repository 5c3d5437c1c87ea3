"""The writer of single events: no sender hears an outcome that a rollback has taken back."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from sqlalchemy import Connection, Engine, event, func, select

from contracts.errors import Unavailable
from contracts.task import Task
from service.database import Store
from service.ingest.group_commit import GroupCommit
from store.database import events
from store.tasks.catalog import Schema, define_task, find_task
from tests.integration.service_app import TASK, an_event

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 3, 1, tzinfo=UTC)
LONG = 20.0


class _Turns:
    """Lets each of two groups of events go on when it is told to."""

    def __init__(self) -> None:
        self.begun = [threading.Event(), threading.Event()]
        self.may_go_on = [threading.Event(), threading.Event()]
        self._num_begun = 0

    def find_schemas(self, connection: Connection, task: str | None) -> Sequence[Schema]:
        turn, self._num_begun = self._num_begun, self._num_begun + 1
        self.begun[turn].set()
        assert self.may_go_on[turn].wait(LONG)
        return [find_task(connection, task or "flights")]


async def test_what_a_late_thread_takes_back_is_acknowledged_to_nobody(engine: Engine) -> None:
    with engine.begin() as connection:
        define_task(connection, Task.model_validate(TASK | {"name": "flights"}), NOW)
    turns, taken_back = _Turns(), threading.Event()
    store = Store(engine, places=2, seconds=1.0)
    writer = GroupCommit(store, 10, turns.find_schemas)

    async def write(event_id: str) -> str:
        one = await writer.write("flights", msgspec.json.encode(an_event(event_id)))
        return str(one.outcome)

    async def write_first_of_the_late() -> None:
        with pytest.raises(Unavailable):
            await write("one")
        turns.may_go_on[1].set()
        assert taken_back.wait(LONG)  # on the event loop, so that the other one is told only afterwards

    alone = asyncio.create_task(write("alone"))
    await asyncio.to_thread(turns.begun[0].wait, LONG)
    one, other = asyncio.create_task(write_first_of_the_late()), asyncio.create_task(write("other"))
    await asyncio.sleep(0)  # both queue up, and are the next group
    event.listen(engine, "rollback", lambda _connection: taken_back.set())
    turns.may_go_on[0].set()
    assert await alone == "created"
    await one
    with pytest.raises(Unavailable):
        await other
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(events)).scalar_one() == 1
