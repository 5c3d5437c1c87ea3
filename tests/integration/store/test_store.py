"""The store on a real PostgreSQL: append once, read as of, keep a ledger that one trainer wins."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, text

from contracts.clock import to_micros
from contracts.errors import Conflict, LeaseLost, NotFound
from contracts.failure import Failure, FailureCode
from contracts.task import Task
from contracts.verdict import MatrixFigures, Verdict
from migrations import is_migrated, migrate
from store.cycles.leases import begin_step, claim_cycle, end_cycle, expire_leases
from store.cycles.ledger import Cycle, find_released_cutoff, list_cycles
from store.cycles.requests import request_cycle
from store.database import metadata
from store.error_cells import Cell, read_cells, record_cells
from store.events.batches import Event
from store.events.reading.columns import NEVER, read_events
from store.events.writes import Rejection, append_events, record_rejections
from store.releases import Overlay, read_overlay, record_release
from store.tasks.catalog import Schema, define_task, find_task, list_tasks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
START = to_micros(NOW)
HOUR = 3_600_000_000
LEASE = timedelta(seconds=30)
TASK = Task.model_validate(
    {
        "name": "demand",
        "window": "PT1H",
        "features": [
            {"name": "price", "kind": "number", "optional": True},
            {"name": "load", "kind": "number"},
            {"name": "region", "kind": "category"},
        ],
        "target": {"name": "up", "kind": "classification"},
    }
)


def event(number: int, at: int = START, known_at: int | None = None, label: str = "yes", **changes: object) -> Event:
    values: dict[str, object] = {"numbers": (float("nan"), number / 3), "categories": (f"r{number % 3}",)} | changes
    return Event(f"e{number}", at, at if known_at is None else known_at, label=label, **values)  # type: ignore[arg-type]


@pytest.fixture
def schema(engine: Engine) -> Schema:
    with engine.begin() as connection:
        return define_task(connection, TASK, NOW)[0]


def test_the_migrations_build_exactly_the_described_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        assert is_migrated(connection)
        context = MigrationContext.configure(connection, opts={"include_name": is_described})
        assert compare_metadata(context, metadata) == []


def is_described(name: str | None, kind: str, _parents: object) -> bool:
    """Partitions are made as days come, with what their table has."""
    return kind != "table" or not str(name).startswith("predictions_")


def test_processes_that_migrate_together_all_succeed(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(migrate, empty_url) for _ in range(4)]:
            done.result()


def test_a_changed_task_adds_a_revision_and_an_equal_one_adds_none(engine: Engine) -> None:
    with engine.begin() as connection:
        first, written = define_task(connection, TASK, NOW)
        assert (first.revision, written) == (1, True)
        assert define_task(connection, TASK, NOW) == (first, False)
        wider = TASK.model_copy(update={"training": TASK.training.model_copy(update={"width": 32})})
        assert define_task(connection, wider, NOW)[0].revision == 2
        assert find_task(connection, "demand").task == wider
        assert [stored.revision for stored in list_tasks(connection)] == [2]
        with pytest.raises(NotFound):
            find_task(connection, "nothing")


def test_each_row_is_stored_once_and_says_what_became_of_it(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        assert append_events(connection, schema, [event(1), event(2)], NOW) == ["created", "created"]
    again = [event(1), event(2, label="no"), event(3), event(3), event(3, label="no")]
    with engine.begin() as connection:
        assert append_events(connection, schema, again, NOW) == [
            "duplicate",
            "conflict",
            "created",
            "duplicate",
            "conflict",
        ]
        assert connection.execute(text("SELECT count(*) FROM events")).scalar_one() == 3


def test_a_row_in_conflict_is_no_duplicate_when_it_is_sent_twice(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event(1)], NOW)
        twice = [event(1, label="no"), event(1, label="no")]
        assert append_events(connection, schema, twice, NOW) == ["conflict", "conflict"]


def test_a_batch_larger_than_any_parameter_limit_is_one_transaction(engine: Engine, schema: Schema) -> None:
    batch = [event(number) for number in range(25_000)]
    with engine.begin() as connection:
        assert set(append_events(connection, schema, batch, NOW)) == {"created"}
        assert set(append_events(connection, schema, batch, NOW)) == {"duplicate"}


def test_two_producers_of_the_same_rows_store_them_once(engine: Engine, schema: Schema) -> None:
    batch = [event(number) for number in range(2000)]
    ready = threading.Barrier(4)

    def produce(shift: int) -> list[str]:
        ready.wait()
        with engine.begin() as connection:
            return list(append_events(connection, schema, batch[shift:] + batch[:shift], NOW))

    with ThreadPoolExecutor(4) as pool:
        outcomes = [outcome for row in pool.map(produce, [0, 500, 1000, 1500]) for outcome in row]
    assert outcomes.count("created") == 2000
    assert outcomes.count("duplicate") == 6000


def test_a_read_returns_what_was_written(engine: Engine, schema: Schema) -> None:
    batch = [event(number, at=START + number) for number in range(2500)]
    with engine.begin() as connection:
        append_events(connection, schema, list(reversed(batch)), NOW)
        columns = read_events(connection, schema.task_id, TASK, START + HOUR)
    assert columns.at.tolist() == [row.at for row in batch]
    assert np.isnan(columns.numbers[:, 0]).all()
    assert columns.numbers[:, 1].tolist() == [row.numbers[1] for row in batch]
    assert [columns.vocabularies[0][code] for code in columns.categories[:, 0]] == [r.categories[0] for r in batch]
    assert [columns.classes[code] for code in columns.labels] == [row.label for row in batch]
    assert (columns.superseded_at == NEVER).all()
    assert 0.03 < columns.withheld.mean() < 0.07


def test_an_origin_sees_what_had_happened_and_was_known(engine: Engine, schema: Schema) -> None:
    rows = [
        event(1, at=START - 1),
        event(2, at=START),
        event(3, at=START - 2, known_at=START),
        event(4, at=START - 2, known_at=START + 1),
    ]
    with engine.begin() as connection:
        append_events(connection, schema, rows, NOW)
        columns = read_events(connection, schema.task_id, TASK, START)
        later = read_events(connection, schema.task_id, TASK, START + HOUR)
    assert columns.numbers[:, 1].tolist() == [1.0, 1 / 3]
    assert later.as_of(START).digest == columns.digest != later.digest
    assert later.as_of(START).at.tolist() == columns.at.tolist()
    assert len(later.in_window(START, START + HOUR)) == 1


def test_an_empty_store_reads_as_no_rows(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        columns = read_events(connection, schema.task_id, TASK, START)
    assert len(columns) == 0
    assert columns.numbers.shape == (0, 2)


def test_regression_labels_round_trip_exactly(engine: Engine) -> None:
    task = Task.model_validate(TASK.model_dump() | {"name": "price", "target": {"name": "up", "kind": "regression"}})
    values = [0.1, 1e300, -5e-324, 3.0]
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, NOW)
        append_events(
            connection, schema, [event(n, at=START + n, label=repr(value)) for n, value in enumerate(values)], NOW
        )
        columns = read_events(connection, schema.task_id, task, START + HOUR)
    assert columns.labels.tolist() == values
    assert columns.classes == ()


def test_refused_rows_are_kept_whatever_they_hold(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        record_rejections(connection, schema.task_id, [Rejection("a\x00\ud800", "NUL \x00", "{\x00}")], NOW)
        kept = connection.execute(text("SELECT event_id, reason, payload FROM rejected_events")).one()
    assert kept == ("a\\x00\\ud800", "NUL \\x00", "{\\x00}")


def test_one_trainer_wins_a_cycle_and_a_lost_lease_releases_nothing(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        asked = request_cycle(connection, schema.task_id, START, NOW)
        assert request_cycle(connection, schema.task_id, START, NOW) == asked
    with engine.begin() as one, engine.begin() as other:
        cycle = claim_cycle(one, "one", NOW, LEASE)
        assert claim_cycle(other, "other", NOW, LEASE) is None
    assert cycle is not None
    with engine.begin() as connection:
        begin_step(connection, cycle, "read", NOW, LEASE, num_rows=7)
        late = NOW + 2 * LEASE
        with pytest.raises(LeaseLost):
            begin_step(connection, cycle, "fit", late, LEASE)
        assert [gone.cycle_id for gone in expire_leases(connection, late)] == [cycle.cycle_id]
        with pytest.raises(LeaseLost):
            end_cycle(connection, cycle, "released", None, late, version="1")
        again = request_cycle(connection, schema.task_id, START, late)
        assert again.attempt == 2
        second = claim_cycle(connection, "two", late, LEASE)
        assert second is not None
        end_cycle(connection, second, "released", None, late, version="1")
        with pytest.raises(Conflict):
            request_cycle(connection, schema.task_id, START, late)
        assert [(c.attempt, c.state) for c in list_cycles(connection, schema.task_id)] == [
            (2, "released"),
            (1, "failed"),
        ]


def release(connection: Connection, cycle: Cycle, version: str) -> Cycle:
    """The claimed cycle, released by a trainer of the task's recipe."""
    claimed = claim_cycle(connection, f"lease {cycle.cycle_id}", NOW, LEASE)
    assert claimed is not None
    assert claimed.cycle_id == cycle.cycle_id
    verdict = Verdict(True, matrix=MatrixFigures(recipe="old"))
    end_cycle(connection, claimed, "released", None, NOW, version=version, verdict=verdict)
    return claimed


def test_a_released_cutoff_is_trained_once_more_where_it_is_wanted_or_the_recipe_has_changed(
    engine: Engine, schema: Schema
) -> None:
    with engine.begin() as connection:
        first = request_cycle(connection, schema.task_id, START, NOW, recipe="old", again=True)
        assert first.replaces is None
        release(connection, first, "1")
        for recipe in (None, "old"):
            with pytest.raises(Conflict, match=r"as version 1\. .*--again"):
                request_cycle(connection, schema.task_id, START, NOW, recipe=recipe)
        second = request_cycle(connection, schema.task_id, START, NOW, recipe="new")
        assert (second.attempt, second.replaces) == (2, first.cycle_id)
        release(connection, second, "2")
        third = request_cycle(connection, schema.task_id, START, NOW, recipe="old", again=True)
        assert (third.attempt, third.replaces) == (3, second.cycle_id)
        claimed = claim_cycle(connection, "a lease", NOW, LEASE)
        assert claimed is not None
        end_cycle(connection, claimed, "failed", Failure(FailureCode.STOPPED, "It was stopped."), NOW)
        # A retry needs no new wish.
        fourth = request_cycle(connection, schema.task_id, START, NOW, recipe="old")
        assert (fourth.attempt, fourth.replaces) == (4, second.cycle_id)
        release(connection, fourth, "3")
        assert [cycle.state for cycle in list_cycles(connection, schema.task_id)] == [
            "released",
            "failed",
            "released",
            "released",
        ]
        assert find_released_cutoff(connection, schema.task_id) == START


def test_one_released_attempt_is_replaced_once(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        release(connection, request_cycle(connection, schema.task_id, START, NOW), "1")
        release(connection, request_cycle(connection, schema.task_id, START, NOW, again=True), "2")
    with engine.begin() as connection:
        third = request_cycle(connection, schema.task_id, START, NOW, again=True)
        # As if another trainer had been asked to replace the first release as well.
        connection.execute(text("UPDATE cycles SET replaces = :id WHERE attempt = 3"), {"id": third.cycle_id - 2})
        claimed = claim_cycle(connection, "a lease", NOW, LEASE)
        assert claimed is not None
        with pytest.raises(Conflict):
            end_cycle(connection, claimed, "released", None, NOW, version="3")


def test_a_scheduled_tasks_newest_cutoff_comes_before_what_was_asked_for_by_hand(
    engine: Engine, schema: Schema
) -> None:
    with engine.begin() as connection:
        for hour in (0, 2, 1):
            request_cycle(connection, schema.task_id, START + hour * HOUR, NOW)
        scheduled = claim_cycle(connection, "one", NOW, LEASE, newest_first=[schema.task_id])
        by_hand = claim_cycle(connection, "two", NOW, LEASE)
    assert scheduled is not None
    assert scheduled.cutoff == START + 2 * HOUR
    assert by_hand is not None
    assert by_hand.cutoff == START


def test_tasks_take_turns_however_many_cutoffs_one_is_asked_for(engine: Engine, schema: Schema) -> None:
    served = []
    with engine.begin() as connection:
        other, _ = define_task(connection, schema.task.model_copy(update={"name": "other"}), NOW)
        for hour in range(3):
            request_cycle(connection, schema.task_id, START + hour * HOUR, NOW)
        for minute in range(4):
            moment = NOW + timedelta(minutes=minute)
            cycle = claim_cycle(connection, f"lease {minute}", moment, LEASE)
            assert cycle is not None
            end_cycle(connection, cycle, "held", Failure(FailureCode.RULE_BROKEN, "no age is validated"), moment)
            served.append((cycle.task_id, cycle.cutoff))
            if minute == 0:
                request_cycle(connection, other.task_id, START + 9 * HOUR, moment)
    assert served == [
        (schema.task_id, START),
        (other.task_id, START + 9 * HOUR),
        (schema.task_id, START + HOUR),
        (schema.task_id, START + 2 * HOUR),
    ]


def test_a_cutoff_older_than_a_thousand_others_is_asked_for_again(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        first = request_cycle(connection, schema.task_id, START, NOW)
        claimed = claim_cycle(connection, "lease", NOW, LEASE)
        assert claimed is not None
        end_cycle(connection, claimed, "skipped", Failure(FailureCode.RULE_BROKEN, "too few rows"), NOW)
        for hour in range(1, 1002):
            request_cycle(connection, schema.task_id, START + hour * HOUR, NOW)
        again = request_cycle(connection, schema.task_id, START, NOW)
    assert (first.attempt, again.attempt) == (1, 2)


def test_cells_are_replaced_and_read_only_up_to_a_window(engine: Engine, schema: Schema) -> None:
    cell = Cell(START, START, "gi", 10, 0.5, 0.1)
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, "r", [cell, Cell(START, START + HOUR, "gi", 10, 0.6, 0.2)], NOW)
        record_cells(connection, schema.task_id, "r", [Cell(START, START, "gi", 11, 0.4, 0.1)], NOW)
        assert read_cells(connection, schema.task_id, "r", until=START + HOUR) == [
            Cell(START, START, "gi", 11, 0.4, 0.1)
        ]
        assert read_cells(connection, schema.task_id, "other", until=START + HOUR) == []


def test_the_newest_release_row_of_a_version_counts(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        assert read_overlay(connection, schema.task_id, "1") is None
        for hours in (3, 1):
            record_release(
                connection,
                schema.task_id,
                "1",
                action="release" if hours == 3 else "close",
                valid_until=START + hours * HOUR,
                actor="trainer",
                reason="",
                now=NOW,
            )
        assert read_overlay(connection, schema.task_id, "1") == Overlay(START + HOUR, None)
