"""How a task stands beyond the version that answers: its releases, last cycles and realised errors.

Read in a few small queries, once per look of the follower for all tasks, so that a scrape of the metrics never asks the
database; the status of a task reads the same anew.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import Connection, func, select

from contracts.clock import format_moment, to_micros
from contracts.task import Task
from contracts.verdict import Comparison, MatrixFigures
from service.models.model import Forecaster
from store.catalog import Schema
from store.cells import error_of, read_marks
from store.columns import count_windows, find_newest
from store.cycles import Cycle, find_judged
from store.database import cycles, tasks
from store.releases import BOUND_ACTIONS, CHAMPION_ACTIONS, Action, Release, list_releases

ENDED = ("released", "held", "skipped", "failed")
# How sentences tell of a cycle that released nothing.
ENDINGS = {"held": "was held", "skipped": "was skipped", "failed": "failed"}
# Cycles that are looked at to count failures in a row.
MAX_RECENT = 50

State = Literal["no_model", "valid", "closed", "expired"]


@dataclass(frozen=True)
class Recent:
    """How an attempt stands, without its verdict. `cutoff` in microseconds."""

    cutoff: int
    state: str
    reason: str | None


@dataclass(frozen=True)
class RealisedError:
    """Mean error of the answering version on the window of that age; `window` is its start in microseconds."""

    age: int
    window: int
    error: float
    num_rows: int
    is_complete: bool


@dataclass(frozen=True)
class Standing:
    """What the database says of a task.

    champion   the version that the newest release or rollback made champion
    version    the version that answers here
    released   the newest row of a release
    bound      the newest row that set until when this version is valid
    recent     attempts, newest cutoff first
    judged     the newest attempt whose candidate was released or held
    realised   finite errors of this version, by age
    awaited    complete windows that a first verdict needs more, by a count; 0 once there is a verdict
    newest     when the newest event happened, moments to come included, in microseconds
    """

    defined_at: datetime
    champion: str | None
    version: str | None
    released: Release | None
    bound: Release | None
    recent: tuple[Recent, ...]
    judged: Cycle | None
    realised: tuple[RealisedError, ...]
    awaited: int = 0
    newest: int | None = None

    @property
    def closing(self) -> Release | None:
        """The row that has closed the version's horizon, unless it has been reopened since."""
        return self.bound if self.bound is not None and self.bound.action == "close" else None

    @property
    def last_ended(self) -> Recent | None:
        """The newest attempt that has ended."""
        return next((attempt for attempt in self.recent if attempt.state in ENDED), None)

    @property
    def num_failed(self) -> int:
        """Attempts that failed one after the other, up to now."""
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
        """The row by which an admin has set the version's bound, unless another has since."""
        return self.bound if self.bound is not None and self.bound.action == "override" else None

    @property
    def missing_windows(self) -> int:
        """Complete windows that are wanted before a horizon can be judged: by the newest verdict, or by the count."""
        return self.awaited if self.judged is None else self._matrix.missing_windows

    @property
    def _matrix(self) -> MatrixFigures:
        verdict = None if self.judged is None else self.judged.verdict
        return MatrixFigures() if verdict is None or verdict.matrix is None else verdict.matrix


def read_standing(connection: Connection, schema: Schema, forecaster: Forecaster | None) -> Standing:
    """How a task stands; `forecaster` is what answers for it here."""
    task_id = schema.task_id
    champion = _newest(connection, task_id, CHAMPION_ACTIONS)
    judged = find_judged(connection, task_id)
    return Standing(
        defined_at=connection.execute(select(tasks.c.created_at).where(tasks.c.id == task_id)).scalar_one(),
        champion=None if champion is None else champion.version,
        version=None if forecaster is None else forecaster.version,
        released=_newest(connection, task_id, ("release",)),
        bound=None if forecaster is None else _newest(connection, task_id, BOUND_ACTIONS, forecaster.version),
        recent=_read_recent(connection, task_id),
        judged=judged,
        realised=() if forecaster is None else _read_realised(connection, task_id, forecaster),
        awaited=0 if judged is not None else _count_awaited(connection, schema),
        newest=find_newest(connection, task_id),
    )


def state_of(forecaster: Forecaster | None, standing: Standing | None, now: int) -> State:
    """The state of a task in one word; `now` in microseconds."""
    if forecaster is None:
        return "no_model"
    if now <= forecaster.valid_until:
        return "valid"
    return "closed" if standing is not None and standing.closing is not None else "expired"


def seconds_since_release(standing: Standing, now: datetime) -> float | None:
    """Seconds since a cycle last released a version; None where none has."""
    return None if standing.released is None else (now - standing.released.at).total_seconds()


def why_stale(task: Task, standing: Standing, now: datetime, cycle_limit: timedelta) -> str | None:
    """Why a task that retrains by schedule has had no new version for longer than a window and a cycle may take.

    None where it has, and for a task that is retrained on request only.
    """
    since = standing.defined_at if standing.released is None else standing.released.at
    if task.schedule == "manual" or now - since <= task.window + cycle_limit:
        return None
    newest = standing.recent[0] if standing.recent else None
    last = standing.last_ended
    if last is not None and last.state != "released":
        return f"the cycle of {format_moment(last.cutoff)} {ENDINGS[last.state]}: {last.reason}"
    if newest is None or newest.state in ENDED:
        return "no cycle has been asked for since: is the trainer running?"
    return f"the cycle of {format_moment(newest.cutoff)} has not ended yet"


def _count_awaited(connection: Connection, schema: Schema) -> int:
    """One window to learn from, and as many after it as a horizon is judged on, less those that are there."""
    wanted = schema.task.guard.min_pairs + 1
    now = connection.execute(select(func.now())).scalar_one()
    until = schema.task.clock.window_start(to_micros(now - schema.task.label_delay))
    return wanted - count_windows(connection, schema.task_id, schema.task.clock, until=until, most=wanted)


def _newest(
    connection: Connection, task_id: int, actions: Sequence[Action], version: str | None = None
) -> Release | None:
    rows = list_releases(connection, task_id, version=version, actions=actions, limit=1, with_calibration=False)
    return rows[0] if rows else None


def _read_recent(connection: Connection, task_id: int) -> tuple[Recent, ...]:
    rows = connection.execute(
        select(cycles.c.cutoff, cycles.c.state, cycles.c.reason)
        .where(cycles.c.task_id == task_id)
        .order_by(cycles.c.cutoff.desc(), cycles.c.attempt.desc())
        .limit(MAX_RECENT)
    )
    return tuple(Recent(to_micros(cutoff), state, reason) for cutoff, state, reason in rows)


def _read_realised(connection: Connection, task_id: int, forecaster: Forecaster) -> tuple[RealisedError, ...]:
    manifest, task = forecaster.manifest, forecaster.task
    marks = read_marks(connection, task_id, manifest.recipe, since=manifest.cutoff)
    return tuple(
        RealisedError(
            task.clock.age(mark.origin, mark.window),
            mark.window,
            error_of(mark, manifest.error_name),
            mark.num_rows,
            mark.is_complete,
        )
        for mark in marks
        if mark.origin == manifest.cutoff
        and mark.method == task.training.method
        and math.isfinite(error_of(mark, manifest.error_name))
    )
