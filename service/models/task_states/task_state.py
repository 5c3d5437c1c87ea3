"""The state of a task: its newest releases, last cycles and realised errors, and how its alias is followed.

`service.models.task_states.stored_states` reads the states of any number of tasks. The follower keeps those of its last
poll, so a scrape of the metrics never queries the database. The status of a task is read again for each request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from contracts.clock import format_moment, to_micros
from contracts.cutoffs import newest_cutoff, useful_cutoff
from contracts.quality.given_answers import AnswerQuality
from contracts.shown import say_count
from contracts.task import Task
from contracts.verdict import Comparison, MatrixFigures, Verdict
from service.models.forecaster import Forecaster
from service.validation.values import is_in_calendar
from store.releases import Release

ENDED = ("released", "held", "skipped", "failed")
# What sentences say of a cycle that released nothing.
ENDINGS = {"held": "was held", "skipped": "was skipped", "failed": "failed"}
# So many erased events, compared with the rows of a version, change what it should have learned.
ERASED_SHARE = 0.1
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

State = Literal["no_model", "valid", "closed", "expired"]


@dataclass(frozen=True)
class RegistryState:
    """How following a task's alias goes; `champion` is the version that the alias named last.

    With `is_refused`, that version is broken: no process could answer with it.
    """

    state: Literal["ok", "degraded"] = "ok"
    reason: str | None = None
    champion: str | None = None
    is_refused: bool = False


@dataclass(frozen=True)
class RecentAttempt:
    """An attempt without its verdict. `cutoff` in microseconds; `ended_at` is None before its end."""

    cutoff: int
    state: str
    reason: str | None
    ended_at: datetime | None = None


@dataclass(frozen=True)
class RealisedError:
    """Mean error of the answering version on the window of that age; `window` is its start in microseconds."""

    age: int
    window: int
    error: float
    num_rows: int
    is_complete: bool


@dataclass(frozen=True)
class TaskState:
    """What the database says about a task.

    champion   the version that the newest release or rollback made champion
    version    the version that answers here
    released   the newest row of a release, without its figures
    bound      the newest row that set the end of this version's validity
    recent     attempts, newest cutoff first
    judged     the verdict of the newest attempt whose candidate was released or held
    realised   finite errors of this version, by age
    awaited    complete windows that are still needed for a first verdict, by a count; 0 once there is a verdict
    newest     timestamp of the newest event, future events included, in microseconds

    `num_retracted` are the events of imports that this version has read and that were retracted since, and `num_erased`
    those that were erased since. `num_unlabelled` events wait for their label, `num_waiting` labels for their event.
    `answered` says how right the answers of this version were, by age.
    """

    defined_at: datetime
    champion: str | None
    version: str | None
    released: Release | None
    bound: Release | None
    recent: tuple[RecentAttempt, ...]
    judged: Verdict | None
    realised: tuple[RealisedError, ...]
    awaited: int = 0
    newest: int | None = None
    num_retracted: int = 0
    num_erased: int = 0
    num_unlabelled: int = 0
    num_waiting: int = 0
    answered: tuple[tuple[int, AnswerQuality], ...] = ()

    @classmethod
    def unknown(cls, forecaster: Forecaster | None, now: datetime) -> "TaskState":
        """The state of a task of which nothing could be read; nothing is said to be missing or overdue."""
        version = None if forecaster is None else forecaster.version
        return cls(now, None, version, None, None, (), None, (), newest=to_micros(now))

    @property
    def closing(self) -> Release | None:
        """The row that closed the version's horizon, unless it was reopened since."""
        return self.bound if self.bound is not None and self.bound.action == "close" else None

    @property
    def last_ended(self) -> RecentAttempt | None:
        """The attempt that ended last, whatever its cutoff: a release after a held cycle may have an older one."""
        ended = [attempt for attempt in self.recent if attempt.state in ENDED]
        return max(ended, key=lambda attempt: attempt.ended_at or _LONG_AGO, default=None)

    @property
    def num_failed(self) -> int:
        """Attempts in a row that failed, up to now."""
        ended = [attempt.state for attempt in self.recent if attempt.state in ENDED]
        return next((place for place, state in enumerate(ended) if state != "failed"), len(ended))

    @property
    def better_method(self) -> Comparison | None:
        """The rival that the newest verdict found clearly better."""
        return self._matrix.better_method

    @property
    def rivals(self) -> tuple[Comparison, ...]:
        """Every rival compared with our method in the newest verdict."""
        return self._matrix.rivals

    @property
    def override(self) -> Release | None:
        """The row by which an admin set the version's bound, unless a later row set it."""
        return self.bound if self.bound is not None and self.bound.action == "override" else None

    @property
    def missing_windows(self) -> int:
        """Complete windows that are still needed to judge a horizon: by the newest verdict, or by the count."""
        return self.awaited if self.judged is None else self._matrix.missing_windows

    @property
    def _matrix(self) -> MatrixFigures:
        return MatrixFigures() if self.judged is None or self.judged.matrix is None else self.judged.matrix


def state_of(forecaster: Forecaster | None, task_state: TaskState | None, now: int) -> State:
    """The state of a task in one word; `now` in microseconds."""
    if forecaster is None:
        return "no_model"
    if now <= forecaster.valid_until:
        return "valid"
    return "closed" if task_state is not None and task_state.closing is not None else "expired"


def lacks_versions(registries: Mapping[str, RegistryState], forecasters: Mapping[str, Forecaster]) -> bool:
    """Whether a task with a champion has no version that answers, and another process could have one."""
    missing = (one for task, one in registries.items() if one.champion and task not in forecasters)
    return any(not (one.is_refused and forecasters) for one in missing)


def seconds_since_release(task_state: TaskState, now: datetime) -> float | None:
    """Seconds since a cycle last released a version; None if none has."""
    return None if task_state.released is None else (now - task_state.released.at).total_seconds()


def next_cycle(task: Task, now: int) -> str | None:
    """The next window boundary; None if cycles run on request only."""
    if task.schedule == "manual":
        return None
    boundary = task.clock.window_start(now) + task.clock.window
    return format_moment(boundary) if is_in_calendar(boundary) else None


def why_stale(task: Task, task_state: TaskState, now: datetime, cycle_limit: timedelta) -> str | None:
    """Why a scheduled task got no new version for longer than a window and a cycle may take; None if it did.

    None as well for a task that is retrained on request only.
    """
    since = task_state.defined_at if task_state.released is None else task_state.released.at
    if task.schedule == "manual" or now - since <= task.window + cycle_limit:
        return None
    newest = task_state.recent[0] if task_state.recent else None
    last = task_state.last_ended
    if last is not None and last.state != "released":
        return f"the cycle of {format_moment(last.cutoff)} {ENDINGS[last.state]}: {last.reason}"
    if newest is None or newest.state in ENDED:
        return _why_no_cycle(task, task_state, now)
    return f"the cycle of {format_moment(newest.cutoff)} has not ended yet"


def _why_no_cycle(task: Task, task_state: TaskState, now: datetime) -> str:
    """Why no cycle was requested: a scheduled cycle waits for events."""
    if task_state.newest is None:
        return f"no event is stored: send labelled rows to POST /events?task={task.name}"
    if useful_cutoff(task, now, task_state.newest) < newest_cutoff(task, now):
        return (
            f"the newest event is of {format_moment(task_state.newest)}: the next cycle waits for newer events, sent "
            f"to POST /events?task={task.name}"
        )
    return "no cycle has been asked for since: is the trainer running?"


def say_missing(task: str, task_state: TaskState | None) -> str:
    """Why no version of a task answers, and what releases one."""
    last = None if task_state is None else task_state.last_ended
    ended = ""
    if last is not None and last.state in ENDINGS:
        reason = f": {last.reason}" if last.reason else ""
        ended = f" The cycle of {format_moment(last.cutoff)} {ENDINGS[last.state]}{reason}".rstrip(".") + "."
    return (
        f"No version of {task} had been released when this process looked last.{ended} `morrow cycle {task}` trains "
        f"one, and `morrow task show {task}` says what it lacks."
    )


def say_withdrawn(forecaster: Forecaster, task_state: TaskState) -> str | None:
    """What a version has learned from that is gone: any retraction counts, and erasures of a tenth of its rows."""
    gone = []
    if task_state.num_retracted:
        gone.append(f"{say_count(task_state.num_retracted, 'event')} of retracted imports")
    if task_state.num_erased >= ERASED_SHARE * forecaster.manifest.num_rows:
        gone.append(f"up to {say_count(task_state.num_erased, 'erased event')}")
    return " and from ".join(gone) or None
