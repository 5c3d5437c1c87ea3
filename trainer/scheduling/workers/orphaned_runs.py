"""Runs in MLflow that another process left open, or that ended otherwise than their cycle."""

from typing import TYPE_CHECKING

import structlog
from sqlalchemy import Engine, exists, select

from store.cycles.ledger import Cycle, find_cycles
from store.database import cycles, tasks
from trainer.scheduling.workers.library_loading import fast_imports

if TYPE_CHECKING:
    from trainer.tracking.registry import Registry

log = structlog.get_logger(__name__)

_UNDER_WAY = ("requested", "running")


class Settled:
    """Which cycle of a task this process carried out last, if its run ended as the ledger says.

    While no other cycle of the task has begun since, none of its runs can be orphaned.
    """

    def __init__(self) -> None:
        self._cycles: dict[int, int] = {}

    def covers(self, engine: Engine, cycle: Cycle) -> bool:
        """Whether the task's last cycle before this one is known to have left no run open."""
        if cycle.task_id not in self._cycles:
            return False
        earlier = select(cycles.c.id).where(
            cycles.c.task_id == cycle.task_id, cycles.c.started_at.is_not(None), cycles.c.id != cycle.cycle_id
        )
        with engine.connect() as connection:
            last = connection.execute(earlier.order_by(cycles.c.started_at.desc()).limit(1)).scalar_one_or_none()
        return last == self._cycles[cycle.task_id]

    def note(self, cycle: Cycle, *, is_settled: bool) -> None:
        """A cycle has ended; `is_settled` says whether ledger and run agree on it."""
        self._cycles.pop(cycle.task_id, None)
        if is_settled:
            self._cycles[cycle.task_id] = cycle.cycle_id


def end_orphans(engine: Engine, mlflow_url: str, task_id: int | None = None) -> None:
    """Let the runs of one task, or of all, agree with the ledger, which knows each cycle by its id and lease.

    A run that MLflow shows as running although its cycle has ended is ended. One that has ended otherwise than its
    cycle gets the cycle's end, for example if the trainer was stopped right after a release. The number of requests to
    MLflow does not grow with that of tasks, except by one page of results for each thousand.
    """
    with fast_imports():
        from trainer.tracking.registry import Registry
        from trainer.tracking.runs import EndedRun

    registry = Registry(mlflow_url)
    # A task without an ended cycle has no run that could disagree.
    has_end = exists().where(cycles.c.task_id == tasks.c.id, cycles.c.state.not_in(_UNDER_WAY))
    swept = select(tasks.c.id, tasks.c.name).where(tasks.c.lifecycle != "deleting", has_end)
    with engine.connect() as connection:
        found = connection.execute(swept if task_id is None else swept.where(tasks.c.id == task_id))
        names = {row.id: row.name for row in found}
    if not names:
        return
    runs = [*registry.open_runs(*names.values()), *registry.ended_runs(names.values())]
    with engine.connect() as connection:
        known = find_cycles(connection, {run.cycle_id for run in runs})
    for run in runs:
        cycle = known.get(run.cycle_id)
        if cycle is None or cycle.lease != run.lease or cycle.state in _UNDER_WAY or cycle.task_id not in names:
            continue
        facts = {"task": names[cycle.task_id], "run_id": run.run_id, "cycle_id": run.cycle_id}
        if not isinstance(run, EndedRun):
            _end_run(registry, names[cycle.task_id], run.run_id, cycle)
            log.info("run.orphan_ended", **facts)
        elif (run.status == "FINISHED") is (cycle.state == "failed") or run.state not in (None, cycle.state):
            _end_run(registry, names[cycle.task_id], run.run_id, cycle)
            log.info("run.corrected", **facts, state=cycle.state)


def _end_run(registry: "Registry", task: str, run_id: str, cycle: Cycle) -> None:
    """End a run as its cycle has ended."""
    from trainer.tracking.tags import NOTE_TAG, STATE_TAG, VERDICT_TAG, VERSION_TAG

    verdict = f"{cycle.state}: {cycle.reason}" if cycle.state in ("held", "skipped") else cycle.state
    tags = {STATE_TAG: cycle.state, VERDICT_TAG: verdict}
    if cycle.state == "released" and cycle.version is not None:
        tags[VERSION_TAG] = cycle.version
        if (description := registry.describe_version(task, cycle.version)) is not None:
            tags[NOTE_TAG] = description
    registry.correct_run(run_id, "FAILED" if cycle.state == "failed" else "FINISHED", tags, cycle.reason)
