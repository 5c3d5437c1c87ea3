"""The numbers of a task's rows are kept as rows come and go, by any writer, and reading them counts nothing."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text

import migrations
from migrations import migrate
from service.admin.tasks import read_status
from service.database import Store
from store.engine import make_engine
from store.events.batches import EventBatch
from store.events.erasures import erase_events
from store.events.imports import add_import, retract_events
from store.events.writes import Rejection, append_batch, append_events, correct_event, record_rejections
from store.tasks.catalog import Schema, define_task
from store.tasks.deletion import delete_events, delete_refused, finish_deletion, list_deleted
from store.tasks.lifecycle import begin_deletion, count_contents
from store.tasks.row_counts import RowCounts, count_rows
from tests.integration.store.test_corrections import DEMAND, NOW, START, event

_COUNT = text("""
    SELECT count(*) FILTER (WHERE superseded_at IS NULL), count(*),
           (SELECT count(*) FROM rejected_events WHERE task_id = :task_id)
    FROM events WHERE task_id = :task_id
""")
# As the release before writes them: it knows no import.
_FORMER = text("""
    INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT :task_id, 'former' || :batch || '-' || n, 1, :now, :now, :now, :schema_id, '{1}', '{}', 'yes'
    FROM generate_series(1, :size) AS n
""")
_MANY = text("""
    INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT :task_id, 'e' || n, 1, CAST(:now AS timestamptz) + n * interval '1 s',
           CAST(:now AS timestamptz) + n * interval '1 s', CAST(:now AS timestamptz) + n * interval '1 s', :schema_id,
           ARRAY[n::float8], '{a}', 'yes'
    FROM generate_series(1, :size) AS n
""")
# Rows of events that statements of this transaction have read so far.
_NUM_READ = text("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'events'")


@pytest.fixture
def schema(engine: Engine) -> Schema:
    with engine.begin() as connection:
        return define_task(connection, DEMAND, NOW)[0]


def counted(connection: Connection, schema: Schema) -> RowCounts:
    """The numbers of rows that a count finds."""
    return RowCounts(*connection.execute(_COUNT, {"task_id": schema.task_id}).one())


def test_each_way_to_change_rows_changes_the_counts_as_much(engine: Engine, schema: Schema) -> None:
    def imported(connection: Connection) -> None:
        found = add_import(connection, schema.task_id, actor="who", source="x.csv", now=NOW).import_id
        rows = [event(f"i{n}", START + n) for n in range(2100)]
        append_batch(connection, schema, EventBatch.of(rows), NOW, found)

    def retracted(connection: Connection) -> None:
        retract_events(connection, schema, 1, actor="who", reason="why", now=NOW)

    former = {"task_id": schema.task_id, "schema_id": schema.schema_id, "now": NOW, "batch": 0, "size": 5}
    rejections = [Rejection(one, "why", "{}") for one in ("a", "r", None)]
    steps: list[Callable[[Connection], object]] = [
        lambda c: append_events(c, schema, [event(k) for k in "abcd"], NOW),
        lambda c: append_events(c, schema, [event(k, label="no") for k in "abe"], NOW),
        lambda c: correct_event(c, schema, event("a", label="no"), NOW),
        lambda c: correct_event(c, schema, event("a", label="no"), NOW),
        lambda c: correct_event(c, schema, event("a", label="yes"), NOW + timedelta(hours=1)),
        lambda c: record_rejections(c, schema.task_id, rejections, NOW),
        lambda c: erase_events(c, schema, ["a", "b", "z"], actor="who", reason="why", now=NOW),
        imported,
        lambda c: correct_event(c, schema, event("i7", label="no"), NOW),
        retracted,
        lambda c: c.execute(_FORMER, former),
        lambda c: delete_events(c, schema.task_id, size=7),
        lambda c: delete_refused(c, schema.task_id, size=1),
    ]
    seen = []
    for step in steps:
        with engine.begin() as connection:
            step(connection)
            assert count_rows(connection, schema.task_id) == counted(connection, schema)
        with engine.connect() as connection:
            seen.append(count_rows(connection, schema.task_id))
            assert seen[-1] == counted(connection, schema)
    assert seen[0] == RowCounts(4, 4, 0)
    assert seen[4] == RowCounts(5, 7, 0)
    assert seen[6] == RowCounts(3, 9, 2)
    assert [one.num_events for one in seen[7:10]] == [2103, 2103, 4]


def test_what_is_rolled_back_counts_for_nothing(engine: Engine, schema: Schema) -> None:
    with engine.connect() as connection:
        append_events(connection, schema, [event("a")], NOW)
        connection.rollback()
        assert count_rows(connection, schema.task_id) == RowCounts()


def test_counts_stay_exact_and_few_under_concurrent_writers(engine: Engine, schema: Schema) -> None:
    store, size = Store(engine, places=4, seconds=60), 300

    def produce(producer: int) -> None:
        chosen = random.Random(producer)  # noqa: S311 the choice must be repeatable
        for _ in range(size):
            rows = [event(f"e{chosen.randrange(400)}") for _ in range(chosen.randrange(1, 4))]
            store.transact(partial(append_events, schema=schema, rows=rows, received_at=NOW))
            if chosen.random() < 0.2:
                ids = [f"e{chosen.randrange(400)}"]
                store.transact(partial(erase_events, schema=schema, event_ids=ids, actor="who", reason="why", now=NOW))
            rejections = [Rejection(None, "why", "{}")]
            store.transact(partial(record_rejections, task_id=schema.task_id, rejections=rejections, received_at=NOW))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(produce, producer) for producer in range(4)]:
            done.result()
    with engine.connect() as connection:
        assert count_rows(connection, schema.task_id) == counted(connection, schema)
        assert count_rows(connection, schema.task_id).num_rejected == 4 * size
        assert connection.execute(text("SELECT count(*) FROM row_counts")).scalar_one() < 600


def test_a_writer_waits_for_no_other_that_counts(engine: Engine, schema: Schema) -> None:
    with engine.connect() as first, engine.connect() as second:
        for number in range(600):  # a few of them fold
            with first.begin_nested():
                append_events(first, schema, [event(f"a{number}")], NOW)
            with second.begin_nested():
                append_events(second, schema, [event(f"b{number}")], NOW)
        second.commit()
        first.commit()
        assert count_rows(first, schema.task_id).num_events == 1200


def test_a_writer_in_a_stricter_transaction_counts_too(engine: Engine, schema: Schema) -> None:
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as strict, engine.connect() as other:
        append_events(strict, schema, [event("a")], NOW)
        for number in range(600):
            append_events(other, schema, [event(f"b{number}")], NOW)
            other.commit()
        for number in range(600):
            append_events(strict, schema, [event(f"c{number}")], NOW)
        strict.commit()
    with engine.connect() as connection:
        assert count_rows(connection, schema.task_id).num_events == 1201


def test_a_truncated_table_counts_no_row(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event("a")], NOW)
        record_rejections(connection, schema.task_id, [Rejection("a", "why", "{}")], NOW)
        connection.execute(text("TRUNCATE events"))
        assert count_rows(connection, schema.task_id) == RowCounts(0, 0, 1)
        connection.execute(text("TRUNCATE rejected_events"))
        assert count_rows(connection, schema.task_id) == RowCounts()


def test_the_migration_counts_the_rows_of_the_release_before_and_those_it_writes_later(empty_url: str) -> None:
    engine, config = make_engine(empty_url), Config()
    (folder,) = migrations.__path__
    config.set_main_option("script_location", folder)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0006")
        task_id = connection.execute(
            text("INSERT INTO tasks (name, created_at) VALUES ('demand', now()) RETURNING id")
        ).scalar_one()
        spec = DEMAND.model_dump_json()
        schema_id = connection.execute(
            text(
                "INSERT INTO schemas (task_id, revision, spec, row_schema, created_at) "
                "VALUES (:task_id, 1, CAST(:spec AS jsonb), :row_schema, now()) RETURNING id"
            ),
            {"task_id": task_id, "spec": spec, "row_schema": DEMAND.row_schema},
        ).scalar_one()
        rows = {"task_id": task_id, "schema_id": schema_id, "now": NOW}
        connection.execute(_FORMER, {**rows, "batch": 0, "size": 10})
        connection.execute(text("UPDATE events SET superseded_at = now() WHERE event_id = 'former0-1'"))
        connection.execute(
            text("INSERT INTO rejected_events (task_id, received_at, reason, payload) VALUES (:id, now(), 'x', '{}')"),
            {"id": task_id},
        )
    migrate(empty_url)
    with engine.begin() as connection:
        assert count_rows(connection, task_id) == RowCounts(9, 10, 1)
        connection.execute(_FORMER, {**rows, "batch": 1, "size": 5})
        connection.execute(text("UPDATE events SET superseded_at = now() WHERE event_id = 'former1-1'"))
        assert count_rows(connection, task_id) == RowCounts(13, 15, 1)
    engine.dispose()


def test_nothing_is_left_of_the_counts_of_a_deleted_task(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event("a")], NOW)
        begin_deletion(connection, "demand", actor="who", reason="why", now=NOW)
        delete_events(connection, schema.task_id)
        assert finish_deletion(connection, list_deleted(connection)[0], NOW)
        assert connection.execute(text("SELECT count(*) FROM row_counts")).scalar_one() == 0


def test_the_status_and_what_a_deletion_says_read_a_bounded_number_of_events(engine: Engine, schema: Schema) -> None:
    size = 150_000
    with engine.begin() as connection:
        connection.execute(_MANY, {"task_id": schema.task_id, "schema_id": schema.schema_id, "now": NOW, "size": size})
        connection.execute(text("ANALYZE events"))
    with engine.begin() as connection:
        status = read_status(connection, "demand", None, NOW + timedelta(days=30))
        assert status.num_events == size
        assert count_contents(connection, schema.task_id).num_revisions == size
        assert connection.execute(_NUM_READ).scalar_one() < size / 4
