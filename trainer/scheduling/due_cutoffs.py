"""Which cutoff of a task is due, and whether a failed one is retried: pure rules over the task's cycles.

After downtime only the newest cutoff counts, and cutoffs that somebody asked for. A task without events has nothing to
train, and one whose events stopped has nothing new: both wait for events. A file that is being imported is waited for,
so that no version is trained on its first half. An interrupted fit is retried, since its interruption says nothing
about the model. A fit that failed by itself is retried only for a scheduled task: an admin who asked for a fit by hand
wants to see its failure.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby, takewhile
from typing import Protocol

from contracts.clock import to_micros
from contracts.cutoffs import newest_cutoff, useful_cutoff
from contracts.failure import STORE_OUTAGES, FailureCode
from contracts.task import Task
from store.cycles.ledger import State

# Such attempts do not count: the fit waits for MLflow, or somebody stopped the trainer.
_UNCOUNTED = frozenset({FailureCode.REGISTRY_UNREACHABLE, FailureCode.STOPPED})
_INTERRUPTIONS = STORE_OUTAGES | _UNCOUNTED | {FailureCode.LEASE_EXPIRED}
_LONGEST_PAUSE = timedelta(minutes=15)
# If no event of the past has come for this long, an import counts as finished.
QUIET = timedelta(seconds=10)


class Attempted(Protocol):
    """An attempt at a cutoff, as far as the rules go."""

    @property
    def cutoff(self) -> int: ...
    @property
    def state(self) -> State: ...
    @property
    def requested_at(self) -> datetime: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def failure_code(self) -> FailureCode | None: ...


def due_cutoff(
    task: Task,
    cycles: Sequence[Attempted],
    now: datetime,
    *,
    max_attempts: int,
    pause: timedelta,
    has_registry: Callable[[], bool],
    newest_event: int | None,
    last_received: datetime | None,
) -> int | None:
    """The cutoff to request now, or None. `cycles` are the task's, newest cutoff and attempt first.

    `has_registry` says whether MLflow answers: a finished fit that waits for it is not retried before. Neither such a
    wait nor a stop on request counts as an attempt. `newest_event` is the newest event before the newest boundary
    (microseconds). `last_received` says when the last event in the span of a possible import came (`import_span`).
    """
    if newest_event is not None and lacks_newest(task, cycles, now):
        cutoff = useful_cutoff(task, now, newest_event)
        if not cycles or cycles[0].cutoff < cutoff:
            return None if _is_recent(last_received, now) else cutoff
    for _, group in groupby(cycles, key=lambda cycle: cycle.cutoff):
        # Attempts before a release have had their result: those after it were requested to replace it.
        attempts = list(group)
        later = list(takewhile(lambda cycle: cycle.state != "released", attempts))
        is_newest = attempts[0].cutoff == cycles[0].cutoff
        if later and _may_retry(task, later, now, pause, is_newest=is_newest):
            if later[0].failure_code is FailureCode.REGISTRY_UNREACHABLE:
                is_due = has_registry()
            else:
                is_due = sum(attempt.failure_code not in _UNCOUNTED for attempt in later) < max_attempts
            if is_due:
                return later[0].cutoff
        if len(later) < len(attempts):  # nothing older can be released after a release
            return None
    return None


def lacks_newest(task: Task, cycles: Sequence[Attempted], now: datetime) -> bool:
    """Whether the newest boundary of a scheduled task has no attempt."""
    return task.schedule == "window" and (not cycles or cycles[0].cutoff < newest_cutoff(task, now))


def import_span(task: Task, cycles: Sequence[Attempted], now: datetime, newest: int) -> tuple[int, int] | None:
    """The window long past in which events that still come are a file that is being imported; None if none would be.

    It is the window of the newest event, or the one beyond any horizon. The first cycle of a task waits for imports,
    and so does one as of an earlier boundary.
    """
    boundary = newest_cutoff(task, now)
    if cycles and useful_cutoff(task, now, newest) >= boundary:
        return None
    clock = task.clock
    start = min(clock.window_start(newest), boundary - (task.guard.max_age + 1) * clock.window)
    return start, start + clock.window


def _is_recent(received: datetime | None, now: datetime) -> bool:
    return received is not None and timedelta(0) <= now - received < QUIET


def _may_retry(task: Task, attempts: Sequence[Attempted], now: datetime, pause: timedelta, *, is_newest: bool) -> bool:
    """Whether a failed cutoff deserves another attempt: the newest one does, and older ones that somebody asked for."""
    last, first = attempts[0], attempts[-1]
    if last.state != "failed" or last.ended_at is None or now < last.ended_at + retry_pause(len(attempts), pause):
        return False
    if last.failure_code not in _INTERRUPTIONS:
        return is_newest and task.schedule == "window"
    # The scheduler makes its own requests while the window lasts.
    is_asked_for = task.schedule == "manual" or to_micros(first.requested_at) >= first.cutoff + task.clock.window
    return is_newest or is_asked_for


def retry_pause(num_attempts: int, pause: timedelta) -> timedelta:
    """Backoff after that many attempts: it doubles, up to 15 minutes."""
    return min(pause * 2.0 ** min(num_attempts - 1, 20), _LONGEST_PAUSE)
