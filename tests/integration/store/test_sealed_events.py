"""Sealed events that are sent again, corrected, erased, retracted or lost."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, Engine, text

from store.errors import SealedRowsUnreadable
from store.events.batches import Event, EventBatch
from store.events.erasures import erase_events
from store.events.imports import add_import, read_import, retract_events
from store.events.sealed.manifest import list_files, read_totals
from store.events.sealed.rewriting import list_stale, rewrite_stale, sweep, transact
from store.events.sealed.sealing import count_sealable
from store.events.writes import append_batch, append_events, correct_event
from store.tasks.catalog import Schema
from tests.integration.drifting_task import HOUR, START, cutoff_after
from tests.integration.sealed_tasks import (
    NOW,
    NUM_WINDOWS,
    SEALED,
    SMALL,
    assert_twins,
    define,
    events_of,
    history,
    imports_of,
    outcome,
    read,
    same,
    seal_all,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def twins(engine: Engine, store: Path) -> tuple[Schema, Schema]:
    """Two tasks with the same history; the events of the first are sealed."""
    sealed, plain = history(engine, 1, "classification"), history(engine, 1, "classification")
    assert seal_all(engine, sealed, store) > 200
    return sealed, plain


def correct_in(row: Event, connection: Connection, schema: Schema) -> Any:
    return correct_event(connection, schema, row, START + 50 * HOUR)


def test_what_is_sent_again_corrected_or_erased_meets_the_sealed_event(
    engine: Engine, store: Path, twins: tuple[Schema, Schema]
) -> None:
    rows = events_of(1, twins[0]) + events_of(2001, twins[0], 200)
    # Rows in the form of the newest schema, some with another content, and some that are new.
    sent = [
        replace(row, numbers=(np.nan, *row.numbers)[-2:] if k % 3 else (1.0, 2.0), label="no" if k % 5 else row.label)
        for k, row in enumerate(rows)
    ] + events_of(77, twins[0], 40)

    def both(work: Callable[[Connection, Schema], Any]) -> None:
        found = []
        for schema in twins:
            with engine.begin() as connection:
                found.append(outcome(partial(work, connection, schema)))
        assert found[0] == found[1]

    both(lambda connection, schema: append_events(connection, schema, rows[300:], START))
    both(lambda connection, schema: append_events(connection, schema, sent, START + 3 * HOUR))
    assert_twins(engine, twins)
    for k in range(0, 500, 11):
        row = replace(rows[k], numbers=(0.25, 0.5), categories=("a",), at=rows[k].at + (k % 2) * 3_600_000_000)
        for again in (row, row, replace(row, label="yes")):
            both(partial(correct_in, again))
    assert_twins(engine, twins)
    seal_all(engine, twins[0], store)
    ids = [row.event_id for row in rows[3::13]] + ["unknown"]
    both(lambda c, schema: erase_events(c, schema, ids, actor="a", reason="r", now=NOW)[1])
    both(lambda c, schema: append_events(c, schema, [replace(row, numbers=(1.0, 2.0)) for row in rows[3::13]], NOW))
    both(lambda c, schema: correct_event(c, schema, replace(rows[3], numbers=(1.0, 2.0)), NOW))
    assert_twins(engine, twins)
    seal_all(engine, twins[0], store)
    assert_twins(engine, twins)


def contents(store: Path) -> str:
    """Every text that the files hold."""
    import pyarrow.parquet as pq

    return " ".join(str(pq.read_table(file).to_pylist()) for file in store.rglob("*.parquet"))


def test_an_erasure_leaves_no_file_with_the_event(engine: Engine, store: Path) -> None:
    with engine.begin() as connection:
        schema = define(connection)
        rows = [replace(row, event_id=f"e{k}-") for k, row in enumerate(events_of(5, schema))]
        append_events(connection, schema, rows, START)
    seal_all(engine, schema, store)
    gone = [row.event_id for row in rows[:40]]
    before = {file.name for file in store.rglob("*.parquet")}
    held = [event_id for event_id in gone if f"'{event_id}'" in contents(store)]
    assert len(held) > 20
    with engine.begin() as connection:
        erase_events(connection, schema, gone, actor="a", reason="r", now=NOW)
        stale = list_stale(connection, schema.task_id)
    assert rewrite_stale(partial(transact, engine), stale, NOW) == len(stale) > 0
    assert not any(f"'{event_id}'" in contents(store) for event_id in gone)
    after = {file.name for file in store.rglob("*.parquet")}
    assert len(after - before) == len(stale)
    with engine.connect() as connection:
        assert {file.path.removeprefix("sealed/") for file in list_files(connection, schema.task_id)} == after
        assert list_stale(connection) == []
    assert all(event_id not in ids_of(engine, schema) for event_id in gone)


def ids_of(engine: Engine, schema: Schema) -> set[str]:
    """The ids that are sealed, by the index of ids."""
    query = text(
        "SELECT event_id FROM unnest(CAST(:ids AS text[])) AS event_id WHERE may_be_sealed(:task_id, event_id)"
    )
    with engine.connect() as connection:
        ids = [f"e{k}-" for k in range(300)]
        return set(connection.execute(query, {"task_id": schema.task_id, "ids": ids}).scalars())


def test_an_import_is_retracted_and_sent_again(engine: Engine, twins: tuple[Schema, Schema]) -> None:
    rows = events_of(1, twins[0])
    for schema in twins:
        with engine.begin() as connection:
            first = imports_of(connection, schema.task_id)[0]
            retract_events(connection, schema, first, actor="a", reason="r", now=NOW)
            assert read_import(connection, schema.task_id, first).num_events == 0
            stale = list_stale(connection, schema.task_id)
        rewrite_stale(partial(transact, engine), stale, NOW)
    assert_twins(engine, twins)
    outcomes = []
    for schema in twins:
        with engine.begin() as connection:
            again = add_import(connection, schema.task_id, actor="a", source="file", now=NOW)
            batch = EventBatch.of([replace(row, numbers=(1.0, 2.0)) for row in rows])
            outcomes.append(append_batch(connection, schema, batch, NOW, again.import_id))
    assert outcomes[0] == outcomes[1]
    assert "created" in outcomes[0]
    assert_twins(engine, twins)


def test_late_rows_count_beside_sealed_ones_and_are_sealed_later(
    engine: Engine, store: Path, twins: tuple[Schema, Schema]
) -> None:
    for schema in twins:
        with engine.begin() as connection:
            append_events(connection, schema, events_of(500, schema), START + 5 * HOUR)
    assert_twins(engine, twins)
    assert seal_all(engine, twins[0], store) > 200
    assert_twins(engine, twins)


def test_a_lost_or_garbled_file_is_named_and_found_again(engine: Engine, store: Path) -> None:
    schema = history(engine, 2, "classification")
    before = read(engine, schema, cutoff_after(NUM_WINDOWS))
    seal_all(engine, schema, store)
    with engine.connect() as connection:
        file = list_files(connection, schema.task_id)[0]
    path = store / file.path
    whole = path.read_bytes()
    for spoilt in (None, whole[:-1], whole[:100] + b"x" + whole[101:]):
        path.unlink() if spoilt is None else path.write_bytes(spoilt)
        with pytest.raises(SealedRowsUnreadable, match=file.path):
            read(engine, schema, cutoff_after(NUM_WINDOWS))
    path.write_bytes(whole)
    same(read(engine, schema, cutoff_after(NUM_WINDOWS)), before)


def test_files_of_a_deleted_task_are_swept_and_others_are_not(engine: Engine, store: Path) -> None:
    gone, kept = history(engine, 3, "classification"), history(engine, 4, "classification")
    for schema in (gone, kept):
        seal_all(engine, schema, store)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM sealed_files WHERE task_id = :id"), {"id": gone.task_id})
        named = {file.path for file in list_files(connection, kept.task_id)}
    run = partial(transact, engine)
    assert sweep(run, NOW) == 0  # a file may be about to be named
    assert sweep(run, NOW + timedelta(hours=2)) > 0
    assert {f"sealed/{file.name}" for file in store.rglob("*.parquet")} == named
    assert sweep(run, NOW + timedelta(hours=2)) == 0


def test_the_newest_and_the_oldest_rows_stay(engine: Engine, store: Path) -> None:
    schema = history(engine, 0, "classification")
    limits = replace(SMALL, kept_newest=150, kept_oldest=50)
    with engine.connect() as connection:
        count = count_sealable(connection, schema, cutoff_after(SEALED), limits)
    assert 0 < count == seal_all(engine, schema, store, limits) < 400
    assert seal_all(engine, schema, store, limits) == 0
    with engine.connect() as connection:
        totals = read_totals(connection, schema.task_id)
        ends = connection.execute(
            text("SELECT min(at), max(at) FROM events WHERE task_id = :id AND superseded_at IS NULL"),
            {"id": schema.task_id},
        ).one()
        sealed = connection.execute(text("SELECT min(first_at), max(last_at) FROM sealed_windows")).one()
    assert totals.num_rows == count
    assert ends[0] < sealed[0]
    assert sealed[1] < ends[1]
