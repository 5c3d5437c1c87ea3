"""Rows of the log are stored once each, only for tasks that are there, in the partition of their day."""

import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import Engine, text

from contracts.clock import to_micros
from store.predictions.ids import PredictionIds
from store.predictions.lookups import find_prediction
from store.predictions.partitions import (
    delete_before,
    drop_partition,
    find_missing,
    list_partitions,
    make_partition,
    partition_of,
)
from store.predictions.rows import write_row, write_source
from store.predictions.writes import Stored, store_rows
from store.tasks.catalog import Schema

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY = timedelta(days=1)
IDS = PredictionIds()


def a_row(schema: Schema, asked_at: datetime = NOW, prediction_id: bytes | None = None, **changes: Any) -> bytes:
    given: dict[str, Any] = {
        "key_name": "asks",
        "features": b'{"distance":1400.0,"carrier":null}',
        "answer": b'{"prediction":"late"}',
    }
    source = write_source(changes.pop("task_id", schema.task_id), "7")
    return write_row(prediction_id or IDS.make(to_micros(asked_at)), source, to_micros(NOW), **(given | changes))


def id_of(row: bytes) -> UUID:
    return UUID(bytes=row[6:22])


def tables_of(engine: Engine) -> dict[str, int]:
    """The number of rows in each partition."""
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT tableoid::regclass::text, count(*) FROM predictions GROUP BY 1"))
        return {row[0]: row[1] for row in rows}


def store(engine: Engine, schema: Schema, *rows: bytes) -> Stored:
    return store_rows(engine, b"".join(rows), len(rows), {schema.task_id})


def test_a_row_reads_back_as_it_was_written(engine: Engine, schema: Schema) -> None:
    row = a_row(schema)
    assert store(engine, schema, row, a_row(schema, features=None, key_name=None)) == Stored(2)
    with engine.connect() as connection:
        found = find_prediction(connection, id_of(row))
        assert found is not None
        assert (found.task_id, found.task, found.version) == (schema.task_id, schema.task.name, "7")
        assert (found.at, found.asked_at, found.key_name) == (NOW, NOW, "asks")
        assert (found.features, found.answer) == ({"distance": 1400.0, "carrier": None}, {"prediction": "late"})
        assert find_prediction(connection, id_of(row), {schema.task_id + 1}) is None
        assert find_prediction(connection, id_of(a_row(schema))) is None


def test_rows_that_are_sent_again_are_stored_once(engine: Engine, schema: Schema) -> None:
    """After a kill between the commit and its note, or a lost answer to the commit."""
    first, second = a_row(schema), a_row(schema)
    assert store(engine, schema, first) == Stored(1)
    assert store(engine, schema, first, second) == Stored(2)
    assert store(engine, schema, first, second) == Stored(2)
    assert sum(tables_of(engine).values()) == 2


def test_rows_of_a_task_that_is_gone_or_being_deleted_are_left_out(engine: Engine, schema: Schema) -> None:
    gone = a_row(schema, task_id=schema.task_id + 1000)
    ids = {schema.task_id, schema.task_id + 1000}
    assert store_rows(engine, gone + a_row(schema), 2, ids) == Stored(1, num_without_task=1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE tasks SET lifecycle = 'deleting'"))
    assert store(engine, schema, a_row(schema)) == Stored(0, num_without_task=1)


def test_a_task_that_the_release_before_deletes_takes_its_rows_along(engine: Engine, schema: Schema) -> None:
    store(engine, schema, a_row(schema))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM schemas"))
        connection.execute(text("DELETE FROM tasks"))
    assert tables_of(engine) == {}


def test_a_deletion_waits_for_a_writer_and_finds_its_rows(engine: Engine, schema: Schema) -> None:
    """As with a foreign key: no row of a task can come after its deletion."""
    has_begun = threading.Event()

    def delete() -> None:
        has_begun.set()
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM schemas"))
            connection.execute(text("DELETE FROM tasks"))

    deleting = threading.Thread(target=delete)
    with engine.begin() as connection:
        connection.execute(text("SELECT id FROM tasks FOR KEY SHARE"))
        deleting.start()
        has_begun.wait()
        connection.execute(
            text("INSERT INTO predictions (id, task_id, version, at, answer) VALUES (:id, :task_id, '7', now(), '{}')"),
            {"id": id_of(a_row(schema)), "task_id": schema.task_id},
        )
    deleting.join()
    assert tables_of(engine) == {}


def test_a_row_that_postgresql_cannot_hold_is_left_out_and_no_other(engine: Engine, schema: Schema) -> None:
    rows = [a_row(schema) for _ in range(8)]
    bad = [a_row(schema, key_name="a\x00b"), a_row(schema, answer=b'{"mean":NaN}')]
    assert store(engine, schema, *rows[:3], bad[0], *rows[3:], bad[1]) == Stored(8, num_refused=2)
    assert sum(tables_of(engine).values()) == 8


def test_an_outage_stores_nothing_and_is_raised(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE predictions RENAME TO hidden"))
    with pytest.raises(psycopg.errors.UndefinedTable):
        store(engine, schema, a_row(schema))


@pytest.fixture
def divided(engine: Engine) -> Engine:
    """Yesterday, today and tomorrow have partitions."""
    for day in (NOW - DAY, NOW, NOW + DAY):
        with engine.begin() as connection:
            assert make_partition(connection, partition_of(day.date())) == 0
    return engine


def test_rows_are_in_the_partition_of_their_day_to_the_millisecond(divided: Engine, schema: Schema) -> None:
    midnight = NOW.replace(hour=0)
    store(
        divided, schema, *(a_row(schema, at) for at in (midnight - timedelta(milliseconds=1), midnight, NOW + 30 * DAY))
    )
    assert tables_of(divided) == {"predictions_20261129": 1, "predictions_20261130": 1, "predictions_default": 1}


def test_a_lookup_reads_one_partition(divided: Engine, schema: Schema) -> None:
    row = a_row(schema)
    with divided.connect() as connection:
        plan = (
            connection.execute(text("EXPLAIN SELECT FROM predictions WHERE id = :id"), {"id": id_of(row)})
            .scalars()
            .all()
        )
    assert sum("predictions_" in line for line in plan) <= 2
    assert "predictions_20261130" in "".join(plan)


def test_a_day_takes_its_rows_from_the_default_partition(divided: Engine, schema: Schema) -> None:
    """No trainer ran for a while: the days of all rows that wait there are made, and none is lost."""
    late = [a_row(schema, NOW + 5 * DAY), a_row(schema, NOW + 5 * DAY), a_row(schema, NOW - 9 * DAY)]
    store(divided, schema, *late)
    with divided.connect() as connection:
        missing = find_missing(connection, NOW, 2)
    assert [one.day for one in missing] == [date(2026, 11, 21), date(2026, 12, 2), date(2026, 12, 5)]
    for partition in missing:
        with divided.begin() as connection:
            make_partition(connection, partition)
    assert tables_of(divided) == {"predictions_20261205": 2, "predictions_20261121": 1}
    with divided.connect() as connection:
        assert not find_missing(connection, NOW, 2)
        assert find_prediction(connection, id_of(late[0])) is not None
    assert store(divided, schema, *late) == Stored(3)


def test_a_day_is_dropped_whole_and_may_be_dropped_twice(divided: Engine, schema: Schema) -> None:
    store(divided, schema, a_row(schema, NOW - DAY), a_row(schema))
    for _ in range(2):
        with divided.begin() as connection:
            drop_partition(connection, partition_of((NOW - DAY).date()))
    assert tables_of(divided) == {"predictions_20261130": 1}
    with divided.connect() as connection:
        assert [one.day for one in list_partitions(connection)] == [date(2026, 11, 30), date(2026, 12, 1)]


def test_two_processes_may_make_the_same_day(engine: Engine, schema: Schema) -> None:
    def make() -> None:
        with engine.begin() as connection:
            make_partition(connection, partition_of(NOW.date()))

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engine.connect() as connection:
        assert [one.day for one in list_partitions(connection)] == [NOW.date()]


def test_partitions_change_while_rows_are_written(engine: Engine, schema: Schema) -> None:
    """Days come and go while a writer stores rows: every row is stored once, and nobody meets a deadlock."""
    stopping = threading.Event()
    stored: list[Stored] = []

    def write() -> None:
        while not stopping.is_set():
            stored.append(store(engine, schema, *(a_row(schema, NOW + DAY * (k % 3)) for k in range(30))))

    writer = threading.Thread(target=write)
    writer.start()
    for ahead in range(3):
        with engine.begin() as connection:
            make_partition(connection, partition_of((NOW + DAY * ahead).date()))
        with engine.begin() as connection:
            make_partition(connection, partition_of((NOW - DAY * (ahead + 1)).date()))
        with engine.begin() as connection:
            drop_partition(connection, partition_of((NOW - DAY * (ahead + 1)).date()))
    stopping.set()
    writer.join()
    assert sum(tables_of(engine).values()) == sum(one.num_stored for one in stored) == 30 * len(stored)


def test_old_rows_of_one_task_go_in_batches_and_others_stay(divided: Engine, schema: Schema) -> None:
    store(divided, schema, *(a_row(schema, NOW - DAY + timedelta(seconds=k)) for k in range(5)), a_row(schema))
    with divided.begin() as connection:
        found = [delete_before(connection, schema.task_id, NOW, size=2) for _ in range(4)]
    assert found == [2, 2, 1, 0]
    assert tables_of(divided) == {"predictions_20261130": 1}
