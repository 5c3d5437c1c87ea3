"""Sealed events: everything that reads, stores or changes events finds the same as if they were in PostgreSQL alone."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, Engine, text

from contracts.clock import to_micros
from contracts.errors import NotFound
from store.events.arrivals import find_last_received, find_newest_before
from store.events.batches import Event, EventBatch
from store.events.erasures import erase_events
from store.events.far_rows import find_far_rows
from store.events.imports import add_import, count_imports, find_newest_import, read_import, retract_events
from store.events.reading.columns import EventColumns, read_events
from store.events.reading.counts import count_windows, find_newest, read_fingerprints
from store.events.reading.known_windows import find_newest_moments, find_windows
from store.events.sample import read_sample
from store.events.sealed.sealing import Limits, seal
from store.events.stored_event import find_event
from store.events.writes import append_batch, append_events, correct_event
from store.tasks.catalog import Schema, define_task
from store.tasks.row_counts import count_rows
from tests.integration.drifting_task import HOUR, START, cutoff_after, drifting_task

NUM_WINDOWS = 12
NOW = START + 400 * HOUR
# Everything before this window may leave.
SEALED = 9
ALL = Limits(kept_newest=0, kept_oldest=0)
SMALL = replace(ALL, rows_per_file=70)


def events_of(seed: int, schema: Schema, count: int = 300) -> list[Event]:
    """Rows with ties, late rows, missing values and texts of many kinds."""
    rng = np.random.default_rng(seed)
    is_regression = not schema.task.is_classification
    rows = []
    for k in range(count):
        window = int(rng.integers(NUM_WINDOWS))
        at = cutoff_after(window) + int(rng.integers(12)) * 300_000_000
        late = int(rng.integers(3)) * 3_600_000_000 if rng.random() < 0.3 else 0
        label = repr(float(rng.normal())) if is_regression else str(rng.choice(["yes", "no"]))
        rows.append(
            Event(
                f"{rng.choice(['é', 'z', 'A', '中'])}-{seed}-{k}",
                at,
                at + late,
                tuple(float(rng.normal()) if rng.random() < 0.9 else np.nan for _ in schema.task.numbers),
                tuple(str(rng.choice(["a", "b", "", "ü"])) for _ in schema.task.categories),
                label,
            )
        )
    return rows


def define(connection: Connection, **changes: Any) -> Schema:
    return define_task(connection, drifting_task(**changes), START)[0]


def history(engine: Engine, seed: int, target: str) -> Schema:
    """A task with a random history: forms of features, imports, corrections, erasures and a retraction."""
    rng = np.random.default_rng(seed)
    x, kind = {"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}
    more = {"name": "w", "kind": "number", "optional": True}
    spec = {"target": {"name": "y", "kind": target}}
    with engine.begin() as connection:
        schema = define(connection, features=[x, kind], **spec)
        brought = add_import(connection, schema.task_id, actor="a", source="file", now=START)
        first = events_of(seed, schema)
        append_batch(connection, schema, EventBatch.of(first), START, brought.import_id)
        other = schema.task.model_copy(deep=True).model_dump(mode="json") | {"features": [more, kind, x]}
        schema = define_task(connection, type(schema.task).model_validate(other), START)[0]
        mistake = add_import(connection, schema.task_id, actor="a", source="mistake", now=START)
        wrong = events_of(seed + 1000, schema, 60)
        append_batch(connection, schema, EventBatch.of(wrong), START + HOUR, mistake.import_id)
        append_events(connection, schema, events_of(seed + 2000, schema, 200), START + 2 * HOUR)
    change(engine, schema, rng, [*first, *wrong], 15)
    with engine.begin() as connection:
        if seed % 2:
            retract_events(connection, schema, mistake.import_id, actor="a", reason="r", now=NOW)
    return schema


def change(engine: Engine, schema: Schema, rng: np.random.Generator, rows: list[Event], count: int) -> None:
    """Correct some of these rows, move some to another window, and erase some."""
    chosen = rng.choice(len(rows), 3 * count, replace=False)
    with engine.begin() as connection:
        for place in chosen[: 2 * count].tolist():
            row = rows[place]
            at = row.at + int(rng.integers(-1, 2)) * 3_600_000_000
            width = len(schema.task.numbers), len(schema.task.categories)
            new = replace(row, at=at, numbers=(0.5,) * width[0], categories=("b",) * width[1])
            correct_event(connection, schema, new, START + int(rng.integers(100)) * HOUR)
        ids = [rows[place].event_id for place in chosen[2 * count :].tolist()]
        erase_events(connection, schema, ids, actor="a", reason="r", now=NOW)


def same(first: EventColumns, second: EventColumns) -> None:
    """Equal to the byte, and of the same types."""
    assert first.digest == second.digest
    for field in fields(EventColumns):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, field.name
            np.testing.assert_array_equal(one, other, err_msg=field.name)
            assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes(), field.name
        else:
            assert one == other, field.name


def look(connection: Connection, schema: Schema) -> dict[str, Any]:
    """What everybody who reads events finds."""
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
        "each event": [found(connection, task_id, event_id) for event_id in all_ids(seed_ids(connection, schema))],
    }


def imports_of(connection: Connection, task_id: int) -> list[int]:
    query = text("SELECT id FROM imports WHERE task_id = :task_id ORDER BY id")
    return list(connection.execute(query, {"task_id": task_id}).scalars())


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


def read(engine: Engine, schema: Schema, cutoff: int, **span: int) -> EventColumns:
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        return read_events(connection, schema.task_id, schema.task, cutoff, **span)


def reads(engine: Engine, schema: Schema) -> list[EventColumns]:
    spans: list[dict[str, int]] = [{}, {"since": cutoff_after(3)}, {"since": cutoff_after(2), "until": cutoff_after(7)}]
    cutoffs = [cutoff_after(window) for window in (1, 5, SEALED, NUM_WINDOWS, 200)]
    whole = [read(engine, schema, cutoff, **span) for cutoff in cutoffs for span in spans]
    return whole + [columns.as_of(cutoff_after(6)) for columns in whole]


def seal_all(engine: Engine, schema: Schema, store: Path, limits: Limits = SMALL, until: int = SEALED) -> int:
    url = f"file://{store}"
    return seal(engine, url, schema, cutoff_after(until), NOW, limits=limits).num_rows


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


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
