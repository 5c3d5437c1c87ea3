"""Halves of events that several writers store at once: each event ends as one row, whichever was first."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Connection, Engine, select

from service.database import Store
from store.database import events, incomplete_events
from store.events.batches import UNLABELLED, Event, EventBatch
from store.events.erasures import erase_events
from store.labels.unlabelled import append_rows, correct_row
from store.tasks.catalog import Schema, define_task
from store.tasks.row_counts import RowCounts, count_rows
from tests.integration.store.test_corrections import DEMAND, NOW, event


@pytest.fixture
def schema(engine: Engine) -> Schema:
    with engine.begin() as connection:
        return define_task(connection, DEMAND, NOW)[0]


def an_input(event_id: str) -> Event:
    return replace(event(event_id, label=UNLABELLED), says_known_at=False)


def append(connection: Connection, schema: Schema, rows: list[Event]) -> list[str]:
    return [*append_rows(connection, schema, EventBatch.of(rows), NOW)]


def test_inputs_and_whole_events_of_the_same_ids_from_many_writers_end_as_one_event_each(
    engine: Engine, schema: Schema
) -> None:
    ids = [f"e{number}" for number in range(60)]
    store = Store(engine, places=8, seconds=60)
    chance = random.Random(1)  # noqa: S311 no secret

    def write(number: int) -> None:
        mine = chance.sample(ids, len(ids))
        rows = [event(one) if number % 2 else an_input(one) for one in mine]
        store.transact(partial(append, schema=schema, rows=rows))
        if number % 3 == 0:
            for one in mine[:10]:
                store.transact(partial(correct_row, schema=schema, event=event(one), received_at=NOW))

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write, number) for number in range(24)]:
            done.result()
    with engine.connect() as connection:
        rows = connection.execute(select(events)).all()
        halves = connection.execute(select(incomplete_events.c.event_id)).scalars().all()
        counts = count_rows(connection, schema.task_id)
    assert sorted(row.event_id for row in rows) == sorted(ids)
    assert {row.revision for row in rows} == {1}
    # A half that lost a race is void, and is swept later; it is counted until then.
    assert counts == RowCounts(len(ids), len(ids), 0, len(halves), 0)


def test_an_input_that_is_corrected_while_it_is_completed_keeps_the_correction(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append(connection, schema, [an_input("e")])
    with engine.connect() as slow, slow.begin(), ThreadPoolExecutor(1) as pool:
        changed = replace(an_input("e"), numbers=(7.0,))
        assert correct_row(slow, schema, changed, NOW) == "corrected"

        def complete() -> str:
            with engine.begin() as connection:
                return correct_row(connection, schema, replace(event("e"), numbers=(8.0,)), NOW + timedelta(hours=1))

        completing = pool.submit(complete)
        with engine.connect() as watching:
            while not watching.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one():
                pass
        slow.commit()
        assert completing.result() == "corrected"
    with engine.connect() as connection:
        (row,) = connection.execute(select(events)).all()
        assert (row.numbers, count_rows(connection, schema.task_id).num_unlabelled) == ([8.0], 0)


def test_an_erased_half_bars_its_id_also_if_only_its_label_came(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        key = {"task_id": schema.task_id, "event_id": "x", "received_at": NOW, "schema_id": schema.schema_id}
        connection.execute(incomplete_events.insert().values(**key, label="secret"))
        erasure, outcomes = erase_events(connection, schema, ["x"], actor="who", reason="why", now=NOW)
        assert (erasure.num_events, outcomes) == (1, ["erased"])
        assert append(connection, schema, [an_input("x"), event("x")]) == ["erased", "erased"]
        assert count_rows(connection, schema.task_id) == RowCounts(0, 2)
        rows = connection.execute(select(events)).all()
    assert {(row.label, row.erasure_id is None, len(row.numbers), len(row.categories)) for row in rows} == {
        ("", False, 1, 1)
    }
