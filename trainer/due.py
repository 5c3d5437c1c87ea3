"""Which cutoff a task is due for, and whether one that failed is tried again: pure rules over the ledger of cycles.

After downtime only the newest cutoff counts. A fit that was interrupted is tried again for every task, because it was
asked for and it was not the model's fault; a fit that failed by itself only where the task is retrained by schedule,
since whoever asks by hand wants to see it fail.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from contracts.clock import to_micros
from contracts.cycles import LEASE_RAN_OUT, Cycle
from contracts.task import Task

REGISTRY_UNREACHABLE = "The registry does not answer."
STORE_UNREACHABLE = "The event store does not answer."
STOPPED = "The trainer was stopped."
OVERTAKEN = "a newer cutoff is due"
OVERRULED = "Something more urgent came up."

_INTERRUPTIONS = (REGISTRY_UNREACHABLE, STORE_UNREACHABLE, STOPPED, LEASE_RAN_OUT)
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
    has_registry: bool,
) -> int | None:
    """The cutoff to request now, or None. `cycles` are the task's, newest cutoff and attempt first.

    `has_registry` says whether MLflow answers: a finished fit that waits for it is not tried again before. Neither that
    wait nor a stop that somebody asked for counts among the attempts.
    """
    by_schedule = task.schedule == "window"
    if by_schedule and (not cycles or cycles[0].cutoff < newest_cutoff(task, now)):
        return newest_cutoff(task, now)
    if not cycles or cycles[0].state != "failed":
        return None
    last, ended_at = cycles[0], cycles[0].ended_at
    reasons = [cycle.reason for cycle in cycles if cycle.cutoff == last.cutoff]
    if ended_at is None or now < ended_at + retry_pause(len(reasons), pause):
        return None
    if last.reason == REGISTRY_UNREACHABLE:
        return last.cutoff if has_registry else None
    num_counted = sum(reason not in (REGISTRY_UNREACHABLE, STOPPED) for reason in reasons)
    may_retry = (by_schedule or last.reason in _INTERRUPTIONS) and num_counted < max_attempts
    return last.cutoff if may_retry else None


def retry_pause(num_attempts: int, pause: timedelta) -> timedelta:
    """How long to wait after that many attempts: doubling, up to a quarter of an hour."""
    return min(pause * 2.0 ** min(num_attempts - 1, 20), _LONGEST_PAUSE)
