"""Rows of several schemas of one task, as fits of each of them read them."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from contracts.clock import to_micros
from contracts.task import Task
from store.events.batches import Event
from store.events.reading.columns import EventColumns, read_events
from store.events.reading.counts import read_fingerprints
from store.events.writes import append_events
from store.tasks.catalog import Schema, define_task

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
X, KIND = {"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}
EXTRA, PLACE = {"name": "extra", "kind": "number"}, {"name": "place", "kind": "category"}


def a_task(*features: dict[str, Any], **changes: Any) -> Task:
    target = {"name": "y", "kind": "classification"}
    return Task.model_validate({"name": "grown", "window": "PT1H", "features": features, "target": target, **changes})


def store(engine: Engine, task: Task, window: int, *rows: tuple[tuple[float, ...], tuple[str, ...], str]) -> Schema:
    """A revision of the task, and rows in its form in a window of their own."""
    at = to_micros(START) + window * HOUR
    batch = [
        Event(f"{window}-{k}", at + k, at + k, numbers, categories, label)
        for k, (numbers, categories, label) in enumerate(rows)
    ]
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START + timedelta(hours=window))
        append_events(connection, schema, batch, START)
    return schema


def read(engine: Engine, schema: Schema, task: Task | None = None) -> EventColumns:
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        columns = read_events(connection, schema.task_id, task or schema.task, to_micros(START) + 9 * HOUR)
        marks = read_fingerprints(
            connection, schema.task_id, task or schema.task, to_micros(START) + 9 * HOUR, since=to_micros(START)
        )
    assert sum(num_rows for num_rows, _ in marks.values()) == len(columns)
    return columns


def numbers(columns: EventColumns) -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row] for row in columns.numbers.tolist()]


def categories(columns: EventColumns) -> list[list[str]]:
    return [
        [columns.vocabularies[j][position] for j, position in enumerate(row)] for row in columns.categories.tolist()
    ]


@pytest.mark.parametrize("optional", [False, True])
def test_a_feature_that_was_added_is_missing_in_the_rows_from_before(engine: Engine, optional: bool) -> None:
    store(engine, a_task(X, KIND), 0, ((1.0,), ("a",), "no"))
    added = {**EXTRA, "optional": optional}
    newest = store(engine, a_task(added, X, PLACE, KIND), 1, ((7.0, 2.0), ("here", "b"), "yes"))
    columns = read(engine, newest)
    assert numbers(columns) == [[None, 1.0], [7.0, 2.0]]
    assert categories(columns) == [["", "a"], ["here", "b"]]


def test_a_feature_that_was_dropped_is_read_no_more(engine: Engine) -> None:
    store(engine, a_task(EXTRA, X, KIND), 0, ((7.0, 1.0), ("a",), "no"))
    columns = read(engine, store(engine, a_task(X), 1, ((2.0,), (), "yes")))
    assert numbers(columns) == [[1.0], [2.0]]
    assert columns.vocabularies == ()


def test_rows_of_a_later_schema_count_for_an_earlier_one_where_they_have_what_it_requires(engine: Engine) -> None:
    first = store(engine, a_task(X), 0, ((1.0,), (), "no"))
    wider = store(engine, a_task(EXTRA, X), 1, ((7.0, 2.0), (), "yes"))
    store(engine, a_task(EXTRA), 2, ((8.0,), (), "no"))
    assert numbers(read(engine, wider, first.task)) == [[1.0], [2.0]]
    assert numbers(read(engine, wider)) == [[None, 1.0], [7.0, 2.0]]


def test_a_feature_of_another_kind_is_another_feature(engine: Engine) -> None:
    store(engine, a_task(X), 0, ((1.0,), (), "no"))
    newest = store(engine, a_task({"name": "x", "kind": "category"}), 1, ((), ("high",), "yes"))
    assert categories(read(engine, newest)) == [[""], ["high"]]


def test_rows_of_another_target_never_count(engine: Engine) -> None:
    store(engine, a_task(X), 0, ((1.0,), (), "no"))
    newest = store(engine, a_task(X, EXTRA, target={"name": "z", "kind": "classification"}), 1, ((2.0, 3.0), (), "no"))
    assert numbers(read(engine, newest)) == [[2.0, 3.0]]


def test_rows_of_a_class_that_is_no_longer_listed_do_not_count(engine: Engine) -> None:
    store(engine, a_task(X), 0, ((1.0,), (), "no"), ((2.0,), (), "perhaps"))
    listed = {"name": "y", "kind": "classification", "classes": ["no", "yes"]}
    columns = read(engine, store(engine, a_task(X, target=listed), 1, ((3.0,), (), "yes")))
    assert numbers(columns) == [[1.0], [3.0]]
    assert [columns.classes[position] for position in columns.labels] == ["no", "yes"]


def test_a_revision_that_leaves_the_rows_alone_reads_them_as_they_are(engine: Engine) -> None:
    store(engine, a_task(X, KIND), 0, ((1.0,), ("a",), "no"))
    newest = store(engine, a_task(X, KIND, schedule="manual"), 1, ((2.0,), ("b",), "yes"))
    assert categories(read(engine, newest)) == [["a"], ["b"]]
