"""No statement scans all events: each finds its task's rows by an index, whatever other tasks hold.

The server itself reports the plan of each statement (`auto_explain`). Its statistics say that the table is a thousand
times as large as it is, and most rows are a neighbour's.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from psycopg.errors import Diagnostic
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection

from contracts.clock import MICROSECOND, to_micros
from service.admin.tasks import read_status
from service.dashboard.queries import read_board, read_filling, read_intake
from service.models.task_states.stored_states import read_task_states
from store.engine import make_engine
from store.events.arrivals import find_last_received, find_newest_before
from store.events.batches import EventBatch
from store.events.erasures import erase_events, find_trained
from store.events.far_rows import find_far_rows
from store.events.imports import add_import, read_import, retract_events
from store.events.reading.columns import read_events
from store.events.reading.counts import count_windows, find_newest, has_unreadable, read_fingerprints
from store.events.reading.known_windows import find_newest_moments, find_windows
from store.events.resent_events import find_told
from store.events.sample import read_sample
from store.events.sealed.manifest import add_file
from store.events.sealed.parquet_rows import to_table
from store.events.sealed.sealing import Limits, _find_span, _given, _move_batch, _read, count_sealable
from store.events.stored_event import find_event
from store.events.writes import Rejection, append_batch, correct_event, record_rejections
from store.labels.unlabelled import find_revision
from store.predictions.labelled import read_labelled
from store.tasks.catalog import Schema, define_task
from store.tasks.deletion import delete_events
from tests.integration.drifting_task import START, cutoff_after, drifting_events, drifting_task
from trainer.data.snapshot import _find_start

HOUR = timedelta(hours=1)
NUM_WINDOWS = 60
NUM_OWN, NUM_OF_NEIGHBOUR = 6_000, 60_000
# As many times as many rows as there are.
FACTOR = 1000

Plan = dict[str, Any]


@pytest.fixture
def tasks(engine: Engine) -> tuple[Schema, Schema]:
    """A task and a neighbour with ten times as many events, which arrived by turns."""
    with engine.begin() as connection:
        schema, _ = define_task(connection, drifting_task(), START)
        neighbour, _ = define_task(connection, drifting_task(), START)
        own_import, other = (
            add_import(connection, one.task_id, actor="admin", source="file", now=START) for one in (schema, neighbour)
        )
        for one, brought_by, count in ((neighbour, other, NUM_OF_NEIGHBOUR), (schema, own_import, NUM_OWN)):
            key = {"task_id": one.task_id, "schema_id": one.schema_id, "import_id": brought_by.import_id}
            connection.execute(_FILL, {**key, "first": START, "span": NUM_WINDOWS * HOUR, "n": count})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE events"))
        connection.execute(
            text("UPDATE pg_class SET reltuples = reltuples * :factor WHERE relname ~ '^events'"), {"factor": FACTOR}
        )
    return schema, neighbour


_FILL = text("""
    INSERT INTO events
        (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label, import_id)
    SELECT :task_id, 'event-' || i, 1, moment, moment, moment, :schema_id, ARRAY[random()],
           ARRAY[CASE WHEN random() < 0.5 THEN 'a' ELSE 'b' END],
           CASE WHEN random() < 0.5 THEN 'yes' ELSE 'no' END, CASE WHEN i % 10 = 0 THEN CAST(:import_id AS bigint) END
    FROM generate_series(0, :n - 1) AS i, LATERAL (
        SELECT CAST(:first AS timestamptz) + CAST(:span AS interval) * (CAST(i AS float8) / :n) AS moment
    ) AS one
    ORDER BY random()
""")


@contextmanager
def explained(database_url: str, plan_cache_mode: str) -> Iterator[tuple[Engine, list[Plan]]]:
    """An engine, and the plans of what its connections execute."""
    plans: list[Plan] = []

    def hear(message: Diagnostic) -> None:
        told = message.message_primary or ""
        if "plan:" in told:
            plans.append(json.loads(told[told.index("{") :]))

    def explain(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"LOAD 'auto_explain'; SET plan_cache_mode = {plan_cache_mode}; {_EXPLAIN}")
        cursor.close()
        connection.commit()
        connection.add_notice_handler(hear)

    engine = make_engine(database_url, pool_size=1)
    event.listen(engine, "connect", explain)
    yield engine, plans
    engine.dispose()


_EXPLAIN = (
    "SET auto_explain.log_min_duration = 0; SET auto_explain.log_format = json; "
    "SET auto_explain.log_nested_statements = on; SET client_min_messages = log"
)


def nodes_on_events(plan: Plan) -> Iterator[Plan]:
    """The nodes of a plan that read events."""

    def walk(node: Plan) -> Iterator[Plan]:
        yield node
        for below in node.get("Plans", ()):
            yield from walk(below)

    for node in walk(plan["Plan"]):
        if node.get("Relation Name", "") == "events" or node.get("Index Name", "").startswith("events"):
            yield node


def conditions(plan: Plan) -> list[str]:
    """The conditions by which a plan finds events in an index."""
    found = []
    for node in nodes_on_events(plan):
        kind = node["Node Type"]
        assert kind in (
            "Index Scan",
            "Index Only Scan",
            "Bitmap Heap Scan",
            "Bitmap Index Scan",
            "Tid Scan",
            "ModifyTable",
        ), f"{kind} of events in {plan['Query Text']}: {json.dumps(plan['Plan'], indent=1)}"
        if "Index" in kind:
            condition = node.get("Index Cond", "")
            assert "task_id" in condition or "import_id" in condition, (condition, plan["Query Text"])
            found.append(condition)
    return found


Use = Callable[[Connection, Schema], object]
START_MICROS = to_micros(START)
NOW = START + NUM_WINDOWS * HOUR
CUTOFF = cutoff_after(NUM_WINDOWS)
NEW_ROW = replace(next(drifting_events(0, 1)), event_id="new")


EARLY = [
    replace(NEW_ROW, event_id=f"early-{k}", at=NEW_ROW.at - 5000 * HOUR // MICROSECOND + k, known_at=NEW_ROW.known_at)
    for k in range(1_100)
]


def stored(**changes: Any) -> Any:
    """The content of a stored row, changed."""
    return replace(NEW_ROW, event_id="event-7", **changes)


def with_history(schema: Schema) -> Schema:
    """The task whose fits read four windows."""
    training = schema.task.training.model_copy(update={"history": 4})
    return replace(schema, task=schema.task.with_training(training))


def imported(connection: Connection, schema: Schema) -> int:
    query = text("SELECT id FROM imports WHERE task_id = :task_id")
    return int(connection.execute(query, {"task_id": schema.task_id}).scalar_one())


def seal_some(connection: Connection, schema: Schema) -> None:
    """Find rows, name a file of them, and let them leave the table, as a sealing does in its transactions."""
    limits = Limits(kept_newest=100, kept_oldest=100)
    span = _find_span(connection, schema, CUTOFF, limits)
    assert span is not None
    assert count_sealable(connection, schema, CUTOFF, limits)
    rows, withheld = _read(connection, {**_given(connection, schema), **span, "size": 500})
    at = {"first_at": rows[0].at, "last_at": rows[-1].at, "last_known_at": rows[-1].at}
    named = {"store": "file:///nowhere", "path": "sealed/none", "digest": "", "schema_ids": [schema.schema_id]}
    file = add_file(connection, {"task_id": schema.task_id, "number": 1, "num_rows": len(rows), **at, **named}, NOW)
    assert _move_batch(connection, schema, file, 0, to_table(rows, withheld, (1, 1))) == len(rows)


# What reads a range of moments.
RANGES: dict[str, Use] = {
    "a read for fits": lambda connection, schema: read_events(
        connection, schema.task_id, schema.task, CUTOFF, since=cutoff_after(50)
    ),
    "a window of a live look": lambda connection, schema: read_events(
        connection, schema.task_id, schema.task, CUTOFF, since=cutoff_after(58), until=cutoff_after(59)
    ),
    "counts of a live look": lambda connection, schema: read_fingerprints(
        connection, schema.task_id, schema.task, CUTOFF, since=cutoff_after(50)
    ),
    "when a window's rows arrived": lambda connection, schema: find_last_received(
        connection, {schema.task_id: (cutoff_after(58), CUTOFF)}
    ),
    "the newest rows of tasks": lambda connection, schema: find_newest_before(connection, {schema.task_id: CUTOFF}),
}
OTHERS: dict[str, Use] = {
    "a read of all rows": lambda connection, schema: read_events(connection, schema.task_id, schema.task, CUTOFF),
    "the newest row": lambda connection, schema: find_newest(connection, schema.task_id, before=CUTOFF),
    "windows with rows": lambda connection, schema: find_windows(
        connection, schema.task_id, schema.task, CUTOFF, most=100
    ),
    "the newest moments": lambda connection, schema: find_newest_moments(
        connection, schema.task_id, schema.task, CUTOFF, most=100
    ),
    "a count of windows": lambda connection, schema: count_windows(
        connection, schema.task_id, schema.task.clock, until=CUTOFF, most=5
    ),
    "moments out of the calendar": lambda connection, schema: has_unreadable(connection, schema.task_id),
    "far rows": lambda connection, schema: find_far_rows(connection, schema, [], NOW),
    "a large group far from the others": lambda connection, schema: (
        append_batch(connection, schema, EventBatch.of(EARLY), NOW),
        find_far_rows(connection, schema, [], NOW),
    ),
    "a sample": read_sample,
    "new rows": lambda connection, schema: append_batch(
        connection, schema, EventBatch.of([NEW_ROW, stored()]), NOW, imported(connection, schema)
    ),
    "refused rows": lambda connection, schema: record_rejections(
        connection, schema.task_id, [Rejection("event-7", "no", "{}")], NOW
    ),
    "a correction": lambda connection, schema: correct_event(connection, schema, stored(label="maybe"), NOW),
    "a stored event": lambda connection, schema: find_event(connection, schema.task_id, "event-7"),
    "rows of a former form": lambda connection, schema: find_told(connection, schema, [NEW_ROW, stored()]),
    "a revision": lambda connection, schema: find_revision(connection, schema.task_id, "event-7"),
    "an erasure": lambda connection, schema: erase_events(
        connection, schema, ["event-7", "event-8"], actor="admin", reason="asked", now=NOW
    ),
    "versions trained on events": lambda connection, schema: find_trained(connection, schema.task_id, ["event-7"]),
    "what is left of an import": lambda connection, schema: read_import(
        connection, schema.task_id, imported(connection, schema)
    ),
    "a retraction": lambda connection, schema: retract_events(
        connection, schema, imported(connection, schema), actor="admin", reason="wrong", now=NOW
    ),
    "a look at tasks": lambda connection, schema: read_task_states(connection, [schema], {}),
    "the status": lambda connection, schema: read_status(connection, schema.task.name, None, NOW),
    "the page": lambda connection, schema: read_board(connection, schema.task.name, None, NOW),
    "the page's rows": lambda connection, schema: read_intake(connection, schema.task.name, NOW),
    "the page's form": lambda connection, schema: read_filling(connection, schema.task.name, schema.task),
    "the rows of a cycle": lambda connection, schema: _find_start(
        connection, with_history(schema), CUTOFF, num_windows=10
    ),
    "labels of answers": lambda connection, schema: [*read_labelled(connection, schema.task_id, "019ad5a")],
    "a sealing": seal_some,
    "a deleted task": lambda connection, schema: delete_events(connection, schema.task_id),
}


@pytest.mark.parametrize("plan_cache_mode", ["force_custom_plan", "force_generic_plan"])
def test_every_statement_finds_its_events_by_an_index(
    database_url: str, tasks: tuple[Schema, Schema], plan_cache_mode: str, subtests: Any
) -> None:
    with explained(database_url, plan_cache_mode) as (engine, plans):
        for (name, use), schema in product((RANGES | OTHERS).items(), tasks):
            with subtests.test(name, task_id=schema.task_id):
                plans.clear()
                snapshot = engine.connect().execution_options(isolation_level="REPEATABLE READ")
                with snapshot as connection, connection.begin() as transaction:
                    use(connection, schema)
                    transaction.rollback()
                found = [condition for plan in plans for condition in conditions(plan)]
                assert found
                if name in RANGES:
                    ranges = [condition for condition in found if "task_id" in condition]
                    assert all("at >= " in condition and "at < " in condition for condition in ranges), ranges


# What looks up events by their ids.
BY_ID = (
    "new rows",
    "refused rows",
    "a correction",
    "a stored event",
    "rows of a former form",
    "a revision",
    "an erasure",
    "versions trained on events",
)
NUM_UNKNOWN = 40_000
_ADD_ONE = text("""
    INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    VALUES (:task_id, 'first', 1, now(), now(), now(), :schema_id, ARRAY[1.0], ARRAY['a'], 'yes')
""")


@pytest.fixture(params=["of one large task", "of small tasks", "of one row"])
def unknown(engine: Engine, request: pytest.FixtureRequest) -> Schema:
    """A task with tens of thousands of rows that the statistics, which are of other tasks, do not know."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE events SET (autovacuum_enabled = false)"))
        schema, *others = [define_task(connection, drifting_task(), START)[0] for _ in range(61)]
        first = {"first": START, "span": NUM_WINDOWS * HOUR, "import_id": None}
        if request.param == "of one large task":
            key = {"task_id": others[0].task_id, "schema_id": others[0].schema_id}
            connection.execute(_FILL, {**key, **first, "n": NUM_OF_NEIGHBOUR})
        for other in others[: 1 if request.param == "of one row" else None]:
            connection.execute(_ADD_ONE, {"task_id": other.task_id, "schema_id": other.schema_id})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE events"))
    with engine.begin() as connection:
        brought_by = add_import(connection, schema.task_id, actor="admin", source="file", now=START)
        key = {"task_id": schema.task_id, "schema_id": schema.schema_id, "import_id": brought_by.import_id}
        connection.execute(_FILL, {**first, **key, "n": NUM_UNKNOWN})
    return schema


@pytest.mark.parametrize("plan_cache_mode", ["force_custom_plan", "force_generic_plan"])
def test_events_of_a_task_that_the_statistics_do_not_know_are_found_by_their_ids(
    database_url: str, unknown: Schema, plan_cache_mode: str, subtests: Any
) -> None:
    with explained(database_url, plan_cache_mode) as (engine, plans):
        for name in BY_ID:
            with subtests.test(name):
                plans.clear()
                with engine.connect() as connection, connection.begin() as transaction:
                    OTHERS[name](connection, unknown)
                    transaction.rollback()
                found = [condition for plan in plans for condition in conditions(plan)]
                assert found
                assert all("event_id = " in condition for condition in found), found


def test_rows_of_a_task_that_the_statistics_do_not_know_are_sent_again_in_seconds(
    engine: Engine, unknown: Schema
) -> None:
    again = EventBatch.of([replace(NEW_ROW, event_id=f"event-{number}") for number in range(NUM_UNKNOWN)])
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = '2s'"))
        assert {*append_batch(connection, unknown, again, NOW)} == {"conflict"}
