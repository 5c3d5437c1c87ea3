"""A claimed cycle at work: its row in the ledger, its MLflow run, and the reports of its progress.

Steps, ends and releases go through here. Each is one short transaction under the lease, is retried while PostgreSQL is
away, and updates the MLflow run as well.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from contracts.clock import format_moment
from contracts.errors import LeaseLost
from contracts.failure import Failure
from contracts.manifest import Manifest
from contracts.verdict import Decision, Verdict
from store.cycles.leases import begin_step, end_cycle, renew_lease
from store.cycles.ledger import Cycle, State, Step, find_cycles, find_released_cutoff
from store.errors import StoreOutage
from store.outages import name_outage
from store.releases import record_release
from store.tasks.catalog import lock_task
from trainer.evaluation.release_gates import check_overtaken
from trainer.network.device import begin_usage, machine_figures
from trainer.progress import RUN_LEFT_OPEN, Report
from trainer.tracking.descriptions import describe_cycle
from trainer.tracking.registry import Champion, Registry
from trainer.tracking.run_buffer import Run
from trainer.tracking.runs import RunStatus
from trainer.tracking.tags import NOTE_TAG, STATE_TAG, VERDICT_TAG, VERSION_TAG

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Attempt:
    """One claimed cycle, and where it is recorded: PostgreSQL, MLflow, and the log."""

    engine: Engine
    registry: Registry
    run: Run
    cycle: Cycle
    task: str
    installation: str
    lease_time: timedelta
    now: Callable[[], datetime]
    report: Report
    # The steps that have begun.
    steps: list[Step] = field(default_factory=list)
    # CPU seconds that the process had used for earlier cycles.
    cpu_before: float = field(default_factory=begin_usage)

    def begin(self, step: Step, **found: Any) -> None:
        """Record the step before its work begins, and renew the lease. Raises LeaseLost.

        The run gets the CPU time and memory used so far; their step is the number of seconds since the claim.
        """
        self.run.flush_if_due()
        self.steps.append(step)
        self.write(
            lambda connection: begin_step(
                connection, self.cycle, step, self.now(), self.lease_time, run_id=self.run.run_id, **found
            )
        )
        self.report("cycle.step", step=step, cycle_id=self.cycle.cycle_id)
        began = self.cycle.started_at or self.cycle.requested_at
        for key, value in machine_figures(self.cpu_before).items():
            self.run.log_metric(key, value, round((self.now() - began).total_seconds()))

    def end(self, state: State, verdict: Verdict, **found: Any) -> State:
        """End a cycle that releases nothing, for the verdict's reason. Raises LeaseLost."""
        failure = verdict.failure
        assert failure is not None
        self.write(
            lambda connection: end_cycle(
                connection, self.cycle, state, failure, self.now(), verdict=verdict, run_id=self.run.run_id, **found
            )
        )
        self.report("cycle.ended", state=state, reason=failure.reason)
        self._end_run("FINISHED", state, f"{state}: {failure.reason}", failure.reason)
        return state

    def fail(self, status: RunStatus, failure: Failure) -> State | None:
        """End cycle and run as failed, if their stores answer; else the scheduler ends them after the lease expires.

        A cycle that has ended before, for example by its release a moment ago, stays as it ended, and so does its run.
        Returns the state in which the cycle ended here, None if it did not.
        """
        try:
            with self.engine.begin() as connection:
                end_cycle(connection, self.cycle, "failed", failure, self.now(), run_id=self.run.run_id)
            self.report("cycle.ended", state="failed", reason=failure.reason)
        except (LeaseLost, SQLAlchemyError) as error:
            if isinstance(error, SQLAlchemyError) and name_outage(error) is None:
                raise
            log.warning(
                "cycle.not_ended", cycle_id=self.cycle.cycle_id, error=type(error).__name__, remedy="morrow doctor"
            )
            return self._follow_ledger(status, failure)
        self._end_run(status, "failed", "failed", failure.reason)
        return "failed"

    def check_newest_cutoff(self, connection: Connection, champion: Champion | None) -> Decision:
        """Whether the ledger has released a newer cutoff, or the alias names one: after a kill either may be ahead."""
        named = None if champion is None else champion.cutoff
        known = [one for one in (find_released_cutoff(connection, self.cycle.task_id), named) if one is not None]
        return check_overtaken(max(known, default=None), self.cycle.cutoff)

    def move_alias(self, version: str) -> Decision | None:
        """Move the alias to the version while this trainer holds the cycle; returns the rule that a newer cutoff broke.

        The lock on the task's row keeps cycles of other cutoffs out; that on the cycle's row keeps the lease from
        expiring unnoticed. PostgreSQL ends the transaction of a trainer that stops half-way.
        """
        with self.engine.begin() as connection:
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
            lock_task(connection, self.cycle.task_id)
            renew_lease(connection, self.cycle, self.now(), self.lease_time)
            decision = self.check_newest_cutoff(connection, self.registry.champion(self.task))
            if not decision.passed:
                return decision
            self.registry.move_alias(self.task, version)
        return None

    def release(self, manifest: Manifest, version: str, verdict: Verdict) -> State:
        """Record the release with its verdict and end the cycle, in one transaction. Raises LeaseLost."""

        def work(connection: Connection) -> None:
            now = self.now()
            record_release(
                connection,
                self.cycle.task_id,
                version,
                action="release",
                valid_until=manifest.valid_until,
                actor=self.cycle.override_actor or "trainer",
                reason=self.cycle.override_reason or f"cycle {self.cycle.cycle_id}",
                now=now,
                calibration=manifest.calibration,
                verdict=verdict,
            )
            end_cycle(connection, self.cycle, "released", None, now, version=version, run_id=self.run.run_id)

        self.write(work)
        valid_until = format_moment(manifest.valid_until)
        self.report("cycle.ended", state="released", version=version, valid_until=valid_until)
        self._end_released_run(version)
        return "released"

    def check_lease(self) -> None:
        """Renew the lease, right before something is written that others can see. Raises LeaseLost."""
        self.write(lambda connection: renew_lease(connection, self.cycle, self.now(), self.lease_time))

    def write(self, work: Callable[[Connection], None]) -> None:
        """Do short work in a transaction; while PostgreSQL is away, retry for as long as the lease can last."""
        deadline = time.monotonic() + self.lease_time.total_seconds()
        while True:
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                if (outage := name_outage(error)) is None:
                    raise
                if time.monotonic() >= deadline:
                    raise StoreOutage(outage) from error
                time.sleep(1)

    def _follow_ledger(self, status: RunStatus, failure: Failure) -> State | None:
        """End the run as the ledger says that the cycle has ended; returns "released" if it was released.

        If the ledger does not answer after a release has begun, the run stays open: a sweep ends it later.
        """
        try:
            with self.engine.connect() as connection:
                cycle = find_cycles(connection, [self.cycle.cycle_id]).get(self.cycle.cycle_id)
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise
            if "release" in self.steps:
                self.report(RUN_LEFT_OPEN, run_id=self.run.run_id)
                return None
            cycle = None
        if cycle is not None and cycle.state == "released":
            self._end_released_run(str(cycle.version))
            return "released"
        self._end_run(status, "failed", "failed", failure.reason)
        return None

    def _end_released_run(self, version: str) -> None:
        self.run.set_tags({STATE_TAG: "released", VERDICT_TAG: "released", VERSION_TAG: version})
        self._close_run("FINISHED", None)

    def _end_run(self, status: RunStatus, state: State, verdict: str, reason: str) -> None:
        description = describe_cycle(self.task, self.cycle.cutoff, f"It was {_ENDINGS[state]}: {reason}")
        self.run.set_tags({STATE_TAG: state, VERDICT_TAG: verdict, NOTE_TAG: description})
        self._close_run(status, reason)

    def _close_run(self, status: RunStatus, reason: str | None) -> None:
        if not self.run.end(status, reason):
            self.report(RUN_LEFT_OPEN, run_id=self.run.run_id)


_ENDINGS = {"held": "held", "skipped": "skipped", "failed": "ended by a failure"}
