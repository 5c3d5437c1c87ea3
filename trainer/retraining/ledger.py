"""One claimed cycle at work: what it works with, and the only ways in which it writes to the ledger.

Steps, ends and failures go through here, so that each is one short transaction under the lease, outlives a restart of
PostgreSQL, and takes the MLflow run along.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.errors import LeaseLost
from contracts.failure import Failure, FailureCode
from store.catalog import Schema
from store.cycles import Cycle, State, Step, begin_step, end_cycle
from store.errors import StoreOutage
from store.outages import name_outage
from trainer.evaluation.backtest import Report
from trainer.network.device import machine_figures
from trainer.settings import TrainerSettings
from trainer.tracking.descriptions import describe_cycle
from trainer.tracking.registry import RunStatus
from trainer.tracking.run_buffer import Run
from trainer.tracking.tags import NOTE_TAG, STATE_TAG, VERDICT_TAG

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Attempt:
    """One claimed cycle and what it works with."""

    engine: Engine
    settings: TrainerSettings
    cycle: Cycle
    schema: Schema
    run: Run
    now: Callable[[], datetime]
    report: Report

    @property
    def lease_time(self) -> timedelta:
        return timedelta(seconds=self.settings.lease_seconds)


def begin(attempt: Attempt, step: Step, **found: Any) -> None:
    """Name the step in a transaction of its own before its work begins. Raises LeaseLost.

    The run gets what the process has used by then, with the seconds since the cycle was claimed as step.
    """
    attempt.run.deliver()
    in_store(
        attempt,
        lambda connection: begin_step(
            connection, attempt.cycle, step, attempt.now(), attempt.lease_time, **run_id(attempt), **found
        ),
    )
    attempt.report("cycle.step", step=step, cycle_id=attempt.cycle.cycle_id)
    began = attempt.cycle.started_at or attempt.cycle.requested_at
    for key, value in machine_figures().items():
        attempt.run.measure(key, value, round((attempt.now() - began).total_seconds()))


def end(attempt: Attempt, state: State, verdict: dict[str, Any], **found: Any) -> State:
    """End a cycle that rightly releases nothing, for the verdict's reason."""
    reason = str(verdict["reason"])
    broken = {decision["rule"] for decision in verdict["decisions"] if not decision["passed"]}
    failure = Failure(FailureCode.OVERTAKEN if "newest_cutoff" in broken else FailureCode.RULE_BROKEN, reason)
    in_store(
        attempt,
        lambda connection: end_cycle(
            connection, attempt.cycle, state, failure, attempt.now(), verdict=verdict, **run_id(attempt), **found
        ),
    )
    attempt.report("cycle.ended", state=state, reason=reason)
    _note_end(attempt, state, f"{state}: {reason}", reason)
    attempt.run.end("FINISHED", reason)
    return state


def fail(attempt: Attempt, status: RunStatus, failure: Failure) -> State | None:
    """End cycle and run as failed, as far as their stores answer; leases and the scheduler see to the rest."""
    state: State | None = "failed"
    try:
        with attempt.engine.begin() as connection:
            end_cycle(connection, attempt.cycle, "failed", failure, attempt.now(), **run_id(attempt))
        attempt.report("cycle.ended", state="failed", reason=failure.reason)
    except (LeaseLost, SQLAlchemyError) as error:
        if isinstance(error, SQLAlchemyError) and name_outage(error) is None:
            raise
        log.warning("cycle.not_ended", cycle_id=attempt.cycle.cycle_id, error=type(error).__name__)
        state = None
    _note_end(attempt, "failed", "failed", failure.reason)
    attempt.run.end(status, failure.reason)
    return state


def in_store(attempt: Attempt, work: Callable[[Connection], None]) -> None:
    """Do short work in a transaction; while PostgreSQL is away, try again for as long as the lease can last."""
    deadline = time.monotonic() + attempt.settings.lease_seconds
    while True:
        try:
            with attempt.engine.begin() as connection:
                return work(connection)
        except SQLAlchemyError as error:
            if (outage := name_outage(error)) is None:
                raise
            if time.monotonic() >= deadline:
                raise StoreOutage(outage) from error
            time.sleep(1)


def run_id(attempt: Attempt) -> dict[str, str]:
    """The run's id for the ledger, as soon as MLflow has given one."""
    return {} if attempt.run.run_id is None else {"run_id": attempt.run.run_id}


def _note_end(attempt: Attempt, state: State, verdict: str, reason: str) -> None:
    words = describe_cycle(attempt.schema.task, attempt.cycle.cutoff, f"It was {_ENDINGS[state]}: {reason}")
    attempt.run.note(tags={STATE_TAG: state, VERDICT_TAG: verdict, NOTE_TAG: words})


_ENDINGS = {"held": "held", "skipped": "skipped", "failed": "ended by a failure"}
