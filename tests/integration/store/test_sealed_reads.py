"""Reads of sealed events find the same, to the byte, as if PostgreSQL held them all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from contracts.clock import to_micros
from contracts.errors import NotFound
from store.events.arrivals import find_last_received, find_newest_before
from store.events.far_rows import find_far_rows
from store.events.imports import count_imports, find_newest_import, read_import
from store.events.reading.counts import count_windows, find_newest, read_fingerprints
from store.events.reading.known_windows import find_newest_moments, find_windows
from store.events.sample import read_sample
from store.events.stored_event import find_event, list_events
from store.tasks.catalog import Schema
from store.tasks.row_counts import count_rows
from tests.integration.drifting_task import HOUR, START, cutoff_after
from tests.integration.sealed_tasks import NOW, NUM_WINDOWS, SEALED, SMALL, history, imports_of, reads, same, seal_all


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def look(connection: Connection, schema: Schema) -> dict[str, Any]:
    """What each reader of events finds."""
    task_id, task = schema.task_id, schema.task
    cutoffs = [cutoff_after(window) for window in (1, 4, SEALED, NUM_WINDOWS, 200)]
    first = START + 2 * HOUR
    return {
        "fingerprints": [
            read_fingerprints(connection, task_id, task, cutoff, since=to_micros(first)) for cutoff in cutoffs
        ]
        + [read_fingerprints(connection, task_id, task, cutoffs[-1], since=cutoff_after(1), until=cutoff_after(5))],
        "windows": [
            find_windows(connection, task_id, task, cutoff, most=most) for cutoff in cutoffs for most in (3, 100)
        ],
        "newest moments": [
            find_newest_moments(connection, task_id, task, cutoff, most=most) for cutoff in cutoffs for most in (3, 500)
        ],
        "newest": [find_newest(connection, task_id, before=cutoff) for cutoff in cutoffs]
        + [find_newest(connection, task_id)],
        "arrivals": [find_newest_before(connection, {task_id: cutoff}) for cutoff in cutoffs],
        "received": find_last_received(connection, {task_id: (cutoff_after(2), cutoff_after(8))}),
        "num windows": count_windows(connection, task_id, task.clock, until=cutoffs[-1], most=50),
        "rows": count_rows(connection, task_id),
        "far": find_far_rows(connection, schema, ["1.0"] * 3, NOW),
        "imports": count_imports(connection, task_id, imports_of(connection, task_id)),
        "newest import": find_newest_import(connection, task_id, cutoff_after(2), cutoff_after(7)),
        "each import": [read_import(connection, task_id, one) for one in imports_of(connection, task_id)],
        "sample": sampled(connection, schema),
        "pages": pages(connection, task_id, limit=37),
        "each event": [found(connection, task_id, event_id) for event_id in all_ids(seed_ids(connection, schema))],
    }


def pages(connection: Connection, task_id: int, limit: int) -> list[list[str]]:
    """All events and those of a few windows, page by page."""
    found = []
    for first, last in ((cutoff_after(-9), cutoff_after(400)), (cutoff_after(2), cutoff_after(SEALED))):
        after = None
        while page := list_events(connection, task_id, first=first, last=last, after=after, limit=limit):
            found.append([repr(event) for event in page])
            after = page[-1].event_id
    assert sum(map(len, found)) > limit
    return found


def sampled(connection: Connection, schema: Schema) -> Any:
    """Rows of one moment have no order."""
    sample = read_sample(connection, schema)
    rows = zip(sample.labels, map(repr, sample.numbers), map(repr, sample.categories), strict=False)
    return sorted(rows), sample.num_odd, sorted(sample.odd), sorted(sample.misfits)


def seed_ids(connection: Connection, schema: Schema) -> list[str]:
    query = text("SELECT event_id FROM every_id WHERE task_id = :task_id ORDER BY event_id")
    return list(connection.execute(query, {"task_id": schema.task_id}).scalars())


def all_ids(ids: list[str]) -> list[str]:
    return ids[::7]


def found(connection: Connection, task_id: int, event_id: str) -> str:
    try:
        return repr(find_event(connection, task_id, event_id))
    except NotFound as error:
        return str(error)


def note_ids(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE every_id AS SELECT DISTINCT task_id, event_id FROM events"))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("target", ["classification", "regression"])
def test_reads_find_the_same_before_and_after_sealing(engine: Engine, store: Path, seed: int, target: str) -> None:
    schema = history(engine, seed, target)
    note_ids(engine)
    before = reads(engine, schema)
    with engine.connect() as connection:
        looked = look(connection, schema)
        in_table = table_size(connection, schema)
    assert seal_all(engine, schema, store, replace(SMALL, rows_per_file=(40, 70, 1000)[seed % 3])) > 200
    with engine.connect() as connection:
        assert table_size(connection, schema) < in_table - 200
        assert_same_look(look(connection, schema), looked)
    for one, other in zip(reads(engine, schema), before, strict=True):
        same(one, other)
    assert seal_all(engine, schema, store) == 0


def table_size(connection: Connection, schema: Schema) -> int:
    query = text("SELECT count(*) FROM events WHERE task_id = :task_id")
    return int(connection.execute(query, {"task_id": schema.task_id}).scalar_one())


def assert_same_look(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in other.items():
        assert one[name] == value, name
