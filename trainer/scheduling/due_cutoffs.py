"""Which cutoff of a task is due, and whether a failed one is retried: pure rules over the task's cycles.

After downtime only the newest cutoff counts, and cutoffs that somebody asked for. An interrupted fit is retried, since
its interruption says nothing about the model. A fit that failed by itself is retried only for a scheduled task: an
admin who asked for a fit by hand wants to see its failure.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from contracts.clock import to_micros
from contracts.failure import STORE_OUTAGES, FailureCode
from contracts.task import Task
from store.cycles import Cycle

# Such attempts do not count: the fit waits for MLflow, or somebody stopped the trainer.
_UNCOUNTED = frozenset({FailureCode.REGISTRY_UNREACHABLE, FailureCode.STOPPED})
_INTERRUPTIONS = STORE_OUTAGES | _UNCOUNTED | {FailureCode.LEASE_EXPIRED}
_LONGEST_PAUSE = timedelta(minutes=15)


def newest_cutoff(task: Task, now: datetime) -> int:
    """The newest window boundary that has been reached, microseconds."""
    return task.clock.window_start(to_micros(now))


def due_cutoff(
    task: Task,
    cycles: Sequence[Cycle],
    now: datetime,
    *,
    max_attempts: int,
    pause: timedelta,
    has_registry: Callable[[], bool],
) -> int | None:
    """The cutoff to request now, or None. `cycles` are the task's, newest cutoff and attempt first.

    `has_registry` says whether MLflow answers: a finished fit that waits for it is not retried before. Neither such a
    wait nor a stop on request counts as an attempt.
    """
    newest = newest_cutoff(task, now)
    if task.schedule == "window" and (not cycles or cycles[0].cutoff < newest):
        return newest
    for _, group in groupby(cycles, key=lambda cycle: cycle.cutoff):
        attempts = list(group)
        last, ended_at = attempts[0], attempts[0].ended_at
        if last.state == "released":  # nothing older can be released after it
            return None
        if last.state != "failed" or ended_at is None or now < ended_at + retry_pause(len(attempts), pause):
            continue
        if not _may_retry(task, attempts, is_newest=last.cutoff == cycles[0].cutoff):
            continue
        if last.failure_code is FailureCode.REGISTRY_UNREACHABLE:
            may_try = has_registry()
        else:
            may_try = sum(attempt.failure_code not in _UNCOUNTED for attempt in attempts) < max_attempts
        if may_try:
            return last.cutoff
    return None


def _may_retry(task: Task, attempts: Sequence[Cycle], *, is_newest: bool) -> bool:
    """Whether a failed cutoff deserves another attempt: the newest one does, and older ones that somebody asked for."""
    last, first = attempts[0], attempts[-1]
    if last.failure_code not in _INTERRUPTIONS:
        return is_newest and task.schedule == "window"
    # The scheduler makes its own requests while the window lasts.
    is_asked_for = task.schedule == "manual" or to_micros(first.requested_at) >= first.cutoff + task.clock.window
    return is_newest or is_asked_for


def retry_pause(num_attempts: int, pause: timedelta) -> timedelta:
    """Backoff after that many attempts: it doubles, up to 15 minutes."""
    return min(pause * 2.0 ** min(num_attempts - 1, 20), _LONGEST_PAUSE)
