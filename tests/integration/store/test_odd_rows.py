"""Rows that no client of the API can store: they count for nothing, and only their own task says so."""

from datetime import timedelta

import numpy as np
import pytest
from sqlalchemy import Engine, text

from service.advice.row_warnings import read_row_warnings
from store.events.reading.columns import EventColumns, read_events
from store.events.reading.counts import read_fingerprints
from store.events.stored_event import find_event
from store.tasks.catalog import Schema
from tests.integration.drifting_task import HOUR, START, cutoff_after, define, drifting_task, now
from trainer.data.snapshot import Reading, read

REGRESSION = {"name": "y", "kind": "regression"}
NUM_WINDOWS = 10
ODD = ["abc", "", "NaN", "Infinity", "-inf", "1e400", "-1e-400", "12abc", "1,5", "true", " ", "\u0661"]


def spoil(engine: Engine, schema: Schema, event_id: str, what: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE events DROP CONSTRAINT IF EXISTS events_texts_check"))
        statement = text(f"UPDATE events SET {what} WHERE task_id = :task_id AND event_id = :id")  # noqa: S608 our own words
        connection.execute(statement, {"task_id": schema.task_id, "id": event_id})


def reading_of(engine: Engine, schema: Schema) -> Reading:
    return read(engine, schema, cutoff_after(NUM_WINDOWS), now())


def read_all(engine: Engine, schema: Schema) -> EventColumns:
    snapshot = engine.connect().execution_options(isolation_level="REPEATABLE READ")
    with snapshot as connection, connection.begin():
        return read_events(connection, schema.task_id, schema.task, cutoff_after(NUM_WINDOWS))


@pytest.mark.parametrize("label", ODD)
def test_a_label_that_is_no_number_counts_for_no_fit_and_no_score(engine: Engine, label: str) -> None:
    schema = define(engine, drifting_task(target=REGRESSION), NUM_WINDOWS, as_numbers=True)
    whole = reading_of(engine, schema).latest
    spoil(engine, schema, "3-7", f"label = '{label}'")
    reading = reading_of(engine, schema)
    assert len(reading.latest) == len(whole) - 1
    assert np.isfinite(reading.latest.labels).all()
    assert sorted({*whole.labels.tolist()} - {*reading.latest.labels.tolist()}) == [whole.labels[3 * 150 + 7]]
    window = cutoff_after(2)
    assert reading.fingerprints[cutoff_after(3)] == (149, 150)
    assert reading.fingerprints[window] == (150, 150)


@pytest.mark.parametrize("label", ["abc", "", "NaN", "Infinity", "true", " "])
def test_such_a_row_is_counted_alike_by_looks_and_by_cycles(engine: Engine, label: str) -> None:
    schema = define(engine, drifting_task(target=REGRESSION), NUM_WINDOWS, as_numbers=True)
    spoil(engine, schema, "3-7", f"label = '{label}'")
    cutoff = cutoff_after(NUM_WINDOWS)
    with engine.connect() as connection:
        seen = read_fingerprints(connection, schema.task_id, schema.task, cutoff, since=cutoff_after(0))
    assert seen == reading_of(engine, schema).fingerprints


def test_such_a_row_is_named_with_its_remedy(engine: Engine) -> None:
    schema = define(engine, drifting_task(target=REGRESSION), NUM_WINDOWS, as_numbers=True)
    spoil(engine, schema, "3-7", "label = 'abc'")
    with engine.connect() as connection:
        (said,) = read_row_warnings(connection, schema, START + NUM_WINDOWS * HOUR).mistakes
    assert said.startswith("1 event has a label that is no finite number: 3-7 ('abc'). They were written past the API")
    assert f"morrow events correct {schema.task.name}" in said
    for label in ("abc", "NaN"):
        spoil(engine, schema, "3-7", f"label = '{label}'")
        with engine.connect() as connection:
            assert find_event(connection, schema.task_id, "3-7").label == label


def test_a_corrected_label_counts_again(engine: Engine) -> None:
    schema = define(engine, drifting_task(target=REGRESSION), NUM_WINDOWS, as_numbers=True)
    spoil(engine, schema, "3-7", "label = 'abc'")
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, "
                "categories, label) SELECT task_id, event_id, 2, at, known_at + interval '1 minute', received_at, "
                "schema_id, numbers, categories, '0.25' FROM events WHERE task_id = :id AND event_id = '3-7'"
            ),
            {"id": schema.task_id},
        )
    spoil(engine, schema, "3-7", "superseded_at = CASE WHEN revision = 1 THEN known_at + interval '1 minute' END")
    reading = reading_of(engine, schema)
    assert 0.25 in reading.latest.labels
    assert len(reading.latest) == NUM_WINDOWS * 150


def test_a_class_that_is_not_listed_counts_for_nothing(engine: Engine) -> None:
    target = {"name": "y", "kind": "classification", "classes": ["no", "yes"]}
    schema = define(engine, drifting_task(target=target), NUM_WINDOWS)
    spoil(engine, schema, "3-7", "label = 'perhaps'")
    rows = read_all(engine, schema)
    assert (rows.classes, len(rows)) == (("no", "yes"), NUM_WINDOWS * 150 - 1)


@pytest.mark.parametrize("categories", ["{}", "{a,b,c}"])
def test_a_category_that_is_not_there_is_missing(engine: Engine, categories: str) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    spoil(engine, schema, "3-7", f"categories = '{categories}'")
    rows = read_all(engine, schema)
    (vocabulary,) = rows.vocabularies
    found = vocabulary[rows.category(0)[3 * 150 + 7]]
    assert found == ("" if categories == "{}" else "a")


@pytest.mark.parametrize("numbers", ["{}", "{0.5,7}", "{0.5,7,NaN}"])
@pytest.mark.parametrize("target", [REGRESSION, {"name": "y", "kind": "classification"}])
def test_a_number_that_is_not_there_is_missing(engine: Engine, numbers: str, target: dict[str, str]) -> None:
    schema = define(engine, drifting_task(target=target), NUM_WINDOWS, as_numbers=target is REGRESSION)
    before = read_all(engine, schema)
    spoil(engine, schema, "3-7", f"numbers = '{numbers}'")
    rows, place = read_all(engine, schema), 3 * 150 + 7
    assert len(rows) == len(before)
    found = rows.number(0)[place]
    assert np.isnan(found) if numbers == "{}" else found == 0.5
    others = np.arange(len(rows)) != place
    assert (rows.number(0)[others] == before.number(0)[others]).all()
    assert np.array_equal(rows.labels, before.labels)


@pytest.mark.parametrize("what", ["numbers = '{}'", "numbers = '{1,2}'", "categories = '{}'", "categories = '{a,b}'"])
def test_a_row_of_another_width_is_named_and_can_be_looked_at(engine: Engine, what: str) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    spoil(engine, schema, "3-7", what)
    with engine.connect() as connection:
        (said,) = read_row_warnings(connection, schema, START + NUM_WINDOWS * HOUR).mistakes
        found = find_event(connection, schema.task_id, "3-7")
    assert said.startswith(f"1 event has more or fewer values than {schema.task.name} has features: 3-7. Written past")
    assert f"morrow events correct {schema.task.name}" in said
    assert [*found.features] == ["x", "kind"]
    if "{}" in what:
        assert None in found.features.values()


def test_a_row_of_one_task_harms_no_other(engine: Engine) -> None:
    spoilt = define(engine, drifting_task(target=REGRESSION), NUM_WINDOWS, as_numbers=True)
    other = define(engine, drifting_task(target=REGRESSION, name="other"), NUM_WINDOWS, as_numbers=True)
    before = reading_of(engine, other).latest.digest
    spoil(engine, spoilt, "3-7", "label = 'abc'")
    assert reading_of(engine, other).latest.digest == before
    with engine.connect() as connection:
        assert not read_row_warnings(connection, other, START + timedelta(days=9)).mistakes
