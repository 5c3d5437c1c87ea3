"""Tasks with random histories, whose events are sealed, and twins whose events are not."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine, text

from contracts.errors import Conflict, NotFound
from store.events.batches import Event, EventBatch
from store.events.erasures import erase_events
from store.events.imports import add_import, retract_events
from store.events.reading.columns import EventColumns, read_events
from store.events.reading.counts import read_fingerprints
from store.events.sealed.sealing import Limits, seal
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


def imports_of(connection: Connection, task_id: int) -> list[int]:
    query = text("SELECT id FROM imports WHERE task_id = :task_id ORDER BY id")
    return list(connection.execute(query, {"task_id": task_id}).scalars())


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


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (NotFound, Conflict) as error:
        return type(error), str(error)


def assert_twins(engine: Engine, twins: tuple[Schema, Schema]) -> None:
    """Fits of any origin find the same in both tasks, and each window has as many rows and revisions."""
    sealed, plain = twins
    for window in (3, SEALED, NUM_WINDOWS, 200):
        cutoff = cutoff_after(window)
        one, other = read(engine, sealed, cutoff), read(engine, plain, cutoff)
        for origin in (cutoff_after(2), cutoff_after(6), cutoff):
            same(one.as_of(origin), other.as_of(origin))
        with engine.connect() as connection:
            first, second = (
                read_fingerprints(connection, schema.task_id, schema.task, cutoff, since=cutoff_after(-2))
                for schema in twins
            )
            assert first == second
    with engine.connect() as connection:
        assert count_rows(connection, sealed.task_id) == count_rows(connection, plain.task_id)
