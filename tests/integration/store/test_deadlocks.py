"""Of two transactions that wait for each other PostgreSQL undoes one: it is retried, and no sender hears of it."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import Connection, Engine, text

from contracts.clock import to_micros
from contracts.errors import Unavailable
from service.database import Store
from store.events.batches import Event
from store.events.erasures import erase_events
from store.events.writes import append_events
from store.tasks.catalog import Schema
from tests.integration.published_versions import NOW

_LOCK = text("SELECT FROM events WHERE event_id = :event_id FOR UPDATE")
_DEADLOCK = text("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'deadlock_detected'; END $$")


def an_event(event_id: str) -> Event:
    at = to_micros(NOW)
    return Event(event_id, at, at, (1.0, 2.0), ("UA",), "late")


def test_both_of_two_transactions_that_wait_for_each_other_are_carried_out(engine: Engine, schema: Schema) -> None:
    store, tries, meeting = Store(engine, places=2, seconds=60), list[str](), threading.Barrier(2)
    rows = [an_event("a"), an_event("b")]
    store.transact(partial(append_events, schema=schema, rows=rows, received_at=NOW))

    def lock(order: str) -> str:
        def work(connection: Connection) -> str:
            tries.append(order)
            connection.execute(_LOCK, {"event_id": order[0]})
            if len(tries) <= 2:
                meeting.wait(60)
            connection.execute(_LOCK, {"event_id": order[1]})
            return order

        return store.transact(work)

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lock, ("ab", "ba"))] == ["ab", "ba"]
    assert 3 <= len(tries) <= 4  # where the other is slow to wake up, one of them is undone twice


def test_what_is_undone_each_time_is_given_up(engine: Engine) -> None:
    tries: list[int] = []

    def work(connection: Connection) -> None:
        tries.append(1)
        connection.execute(_DEADLOCK)

    with pytest.raises(Unavailable):
        Store(engine, places=1, seconds=60).transact(work)
    assert len(tries) == 3


def test_producers_and_an_eraser_of_the_same_ids_never_hear_of_each_other(engine: Engine, schema: Schema) -> None:
    """Rows of two forms are stored one after the other, so that transactions cross although each sorts its ids."""
    store, rounds = Store(engine, places=4, seconds=60), range(8)

    def half(number: int, part: int) -> list[Event]:
        return [an_event(f"r{number}-{part}{place}") for place in range(5)]

    def produce(producer: int) -> list[tuple[str, str]]:
        told: list[tuple[str, str]] = []
        for number in rounds:
            parts = [half(number, (producer + number + k) % 2)[:: 1 - 2 * (producer % 2)] for k in range(2)]
            told += store.transact(partial(_append_each, schema=schema, parts=parts))
        return told

    def erase() -> None:
        for number in rounds:
            ids = [event.event_id for part in (1, 0) for event in half(number, part)]
            store.transact(partial(erase_events, schema=schema, event_ids=ids, actor="Ada", reason="asked", now=NOW))

    with ThreadPoolExecutor(4) as pool:
        erasing = pool.submit(erase)
        told = [row for rows in pool.map(produce, range(3)) for row in rows]
        erasing.result()
    created = [event_id for event_id, outcome in told if outcome == "created"]
    assert len(created) == len({*created}) == 10 * len(rounds)
    assert len(told) == 3 * len(created)


def _append_each(connection: Connection, *, schema: Schema, parts: Sequence[list[Event]]) -> list[tuple[str, str]]:
    return [
        (row.event_id, outcome)
        for part in parts
        for row, outcome in zip(part, append_events(connection, schema, part, NOW), strict=True)
    ]
