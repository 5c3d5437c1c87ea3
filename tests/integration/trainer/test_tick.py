"""What a tick of the trainer costs: it follows what is new, not how many tasks or old cycles there are."""

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from contracts.failure import REGISTRY_UNREACHABLE
from contracts.verdict import Decision, Verdict, decode_verdict, encode
from store.cycles.leases import claim_cycle, end_cycle
from store.cycles.ledger import list_past_attempts
from store.cycles.requests import override_cycle, request_cycle
from store.tasks.catalog import Schema, define_task
from store.tasks.current_tasks import CurrentTasks
from tests.integration.counted_calls import counting_calls
from tests.integration.drifting_task import (
    HOUR,
    START,
    add_windows,
    claim,
    cutoff_after,
    cycles_of,
    define,
    drifting_task,
    now,
    settings,
)
from tests.integration.statements import counting_statements
from tests.integration.trainer_ticks import MakeTrainer, ask, trainers
from trainer.monitoring.live_scoring import LiveScoring
from trainer.scheduling.scheduler import Trainer

MOST_STATEMENTS = 20


@pytest.fixture
def make_trainer(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[MakeTrainer]:
    with trainers(engine, database_url, mlflow_url, tmp_path) as make:
        yield make


def add_old_cycles(engine: Engine, schema: Schema, count: int, state: str = "released") -> None:
    """Cycles of the hours before the start, each with a verdict."""
    verdict = encode(Verdict.of(Decision("horizon", True, reason="it is long enough")))
    with engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO cycles
                    (task_id, cutoff, attempt, state, requested_at, started_at, ended_at, verdict, version)
                SELECT :task_id, cutoff, 1, :state, cutoff, cutoff, cutoff, CAST(:verdict AS jsonb), 'v' || k
                FROM generate_series(1, :count) AS k
                CROSS JOIN LATERAL (SELECT CAST(:start AS timestamptz) - k * interval '1 hour' AS cutoff) AS hours
            """),
            {"task_id": schema.task_id, "state": state, "verdict": json.dumps(verdict), "count": count, "start": START},
        )


def count_tick(engine: Engine, trainer: Trainer, moment: datetime) -> list[str]:
    with counting_statements(engine) as statements:
        trainer.tick(moment)
    return statements


def test_a_quiet_tick_takes_as_many_statements_at_thirty_tasks_as_at_three(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    trainer, counts = make_trainer(), []
    for num_tasks in (3, 27):
        for _ in range(num_tasks):
            add_old_cycles(engine, define(engine, drifting_task(schedule="window"), 1), 20, "held")
        for _ in range(2):
            trainer._idle._next_check = 0.0
            trainer.tick(START)
        trainer._idle._next_check = 0.0
        counts.append(len(count_tick(engine, trainer, START)))
    assert trainer.running_job is None
    assert counts[0] == counts[1] <= MOST_STATEMENTS


def test_live_scoring_takes_as_many_statements_at_thirty_tasks_as_at_three(engine: Engine, tmp_path: Path) -> None:
    job, counts = LiveScoring(engine, settings(tmp_path), threading.Event()), []
    for num_tasks in (3, 27):
        schemas = [define(engine, drifting_task(), 2) for _ in range(num_tasks)]
        for _ in range(3):
            with counting_statements(engine) as statements:
                job.score_new_labels(START + 3 * HOUR)
        counts.append(len(statements))
    assert counts[0] == counts[1] <= MOST_STATEMENTS
    add_windows(engine, schemas[0], 2, 3)
    with counting_calls(LiveScoring._score_task) as calls:
        job.score_new_labels(START + 3 * HOUR)
        job.score_new_labels(START + 3 * HOUR)
    assert sum(calls.values()) == 1 + 2 * 2, "the task with new events, and two by turns in each pass"


def test_due_cutoffs_of_thirty_tasks_are_requested_by_as_many_statements_as_those_of_three(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    trainer, counts = make_trainer(), []
    for num_tasks in (3, 27):
        schemas = [define(engine, drifting_task(schedule="window"), 1) for _ in range(num_tasks)]
        with counting_statements(engine) as statements:
            trainer._request(START + 5.5 * HOUR)
        counts.append(len(statements))
        assert all(cycles_of(engine, schema)[0].state == "requested" for schema in schemas)
    assert counts[0] == counts[1] <= MOST_STATEMENTS


def test_a_tick_after_five_thousand_cycles_loads_no_verdict_and_few_rows(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema = define(engine, drifting_task(), 0)
    add_old_cycles(engine, schema, 5000)
    trainer = make_trainer()
    with counting_calls(decode_verdict, encode) as calls:
        statements = count_tick(engine, trainer, now())
    assert not calls
    assert not any("verdict" in sql for sql in statements if sql.lstrip().startswith("SELECT"))
    with engine.connect() as connection:
        assert len(list_past_attempts(connection, [schema.task_id])[schema.task_id]) == 1


def test_of_failed_cycles_only_those_since_the_newest_release_are_looked_at(engine: Engine) -> None:
    schema = define(engine, drifting_task(), 0)
    add_old_cycles(engine, schema, 300, "failed")
    for hours in (1, 2):
        cycle = claim(engine, schema, cutoff_after(hours))
        with engine.begin() as connection:
            end_cycle(connection, cycle, "failed", REGISTRY_UNREACHABLE, now())
    with engine.connect() as connection:
        assert len(list_past_attempts(connection, [schema.task_id])[schema.task_id]) == 100
    with engine.begin() as connection:
        connection.execute(text("UPDATE cycles SET state = 'released' WHERE cutoff = :at"), {"at": START + HOUR})
        found = list_past_attempts(connection, [schema.task_id])[schema.task_id]
    assert [(one.cutoff, one.state) for one in found] == [(cutoff_after(2), "failed")]


def test_cutoffs_that_are_tried_again_keep_their_override_and_what_they_replace(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    overruled, again = define(engine, drifting_task(), 0), define(engine, drifting_task(), 0)
    moment = now() - timedelta(seconds=5)
    held = claim(engine, overruled, cutoff_after(1))
    with engine.begin() as connection:
        verdict = Verdict.of(Decision("newest_window", False, reason="it is suspect"))
        end_cycle(connection, held, "held", verdict.failure, moment, verdict=verdict)
        override_cycle(connection, overruled.task_id, held.cycle_id, actor="Ada", reason="it is right", now=moment)
    assert cycles_of(engine, overruled)[0].state == "requested"
    with engine.begin() as connection:
        retried = claim_cycle(connection, "mine", moment, timedelta(hours=1))
        assert retried is not None
        end_cycle(connection, retried, "failed", REGISTRY_UNREACHABLE, moment)
    first = claim(engine, again, cutoff_after(1))
    with engine.begin() as connection:
        end_cycle(connection, first, "released", None, moment, version="1")
        request_cycle(connection, again.task_id, cutoff_after(1), moment, again=True)
        second = claim_cycle(connection, "mine", moment, timedelta(hours=1))
        assert second is not None
        end_cycle(connection, second, "failed", REGISTRY_UNREACHABLE, moment)
    with capture_logs() as lines:
        make_trainer()._request(now())
    assert {line["attempt"] for line in lines if line["event"] == "cycle.requested"} == {3}
    newest = cycles_of(engine, overruled)[0]
    assert (newest.state, newest.override_actor, newest.override_reason) == ("requested", "Ada", "it is right")
    assert cycles_of(engine, again)[0].replaces == first.cycle_id


def test_only_tasks_that_have_changed_are_read_again(engine: Engine) -> None:
    schemas = [define(engine, drifting_task(), 0) for _ in range(3)]
    known = CurrentTasks()
    with engine.connect() as connection:
        assert set(known.read(connection)) == known.schemas.keys() == {schema.task_id for schema in schemas}
    with engine.connect() as connection:
        assert list(known.read(connection)) == []
    changed = schemas[1].task.model_copy(update={"schedule": "window"})
    with engine.begin() as connection:
        define_task(connection, changed, now())
        connection.execute(text("DELETE FROM schemas WHERE task_id = :id"), {"id": schemas[2].task_id})
    with counting_calls(Schema.__init__) as made, engine.connect() as connection:
        assert set(known.read(connection)) == {schema.task_id for schema in schemas[1:]}
    assert sum(made.values()) == 1
    assert known.schemas.keys() == {schemas[0].task_id, schemas[1].task_id}
    assert known.schemas[schemas[1].task_id].task.schedule == "window"


def test_a_task_with_many_requests_takes_turns_with_the_others(engine: Engine) -> None:
    busy, others = define(engine, drifting_task(), 0), [define(engine, drifting_task(), 0) for _ in range(2)]
    for hours in range(1, 20):
        ask(engine, busy, cutoff_after(hours), START)
    for schema in others:
        for hours in (1, 2):
            ask(engine, schema, cutoff_after(hours), START)
    served = []
    for turn in range(8):
        with engine.begin() as connection:
            cycle = claim_cycle(connection, "mine", START + turn * HOUR, timedelta(hours=1))
        assert cycle is not None
        served.append(cycle.task_id)
    first, second = others
    assert served[:3] == [busy.task_id, first.task_id, second.task_id]
    assert served[3:6] == served[:3]
    assert served[6:] == [busy.task_id] * 2


def test_a_task_whose_cycle_is_at_work_is_passed_over(engine: Engine) -> None:
    busy, other = define(engine, drifting_task(), 0), define(engine, drifting_task(), 0)
    for schema in (busy, other):
        ask(engine, schema, cutoff_after(1), START)
    with engine.begin() as connection:
        cycle = claim_cycle(connection, "mine", now(), timedelta(hours=1), except_tasks=[busy.task_id])
        assert cycle is not None
        assert cycle.task_id == other.task_id
        assert claim_cycle(connection, "mine", now(), timedelta(hours=1), except_tasks=[busy.task_id]) is None
