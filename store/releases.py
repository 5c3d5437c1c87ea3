"""The append-only history of releases: which version, when, by whom and why, and the end of its validity.

release    a cycle moved the alias to this version
rollback   the alias was moved back to it, through the API or in MLflow
calibrate  labels that arrived later changed its quantiles
close      a realised error above its limit ended its horizon
reopen     corrected labels no longer show that error
override   an admin set its horizon by hand
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, null, select

from contracts.calibration import Calibration
from contracts.clock import from_micros, to_micros
from contracts.verdict import MatrixFigures, Rollback, RowFigures, Verdict, decode_row, encode
from store.cycles.ledger import is_releasing
from store.database import releases
from store.readable_rows import ReadRows, read_all, read_rows

ALIAS = "champion"

Action = Literal["release", "rollback", "calibrate", "close", "reopen", "override"]

# Rows that say which version the alias names, and rows that set the end of a version's validity.
CHAMPION_ACTIONS: tuple[Action, ...] = ("release", "rollback")
BOUND_ACTIONS: tuple[Action, ...] = ("release", "close", "reopen", "override")


@dataclass(frozen=True)
class Release:
    """One row. `valid_until` is in microseconds; `verdict` holds the figures behind it, of its action's type."""

    release_id: int
    version: str
    action: Action
    valid_until: int
    calibration: Calibration | None
    verdict: RowFigures | None
    actor: str
    reason: str
    at: datetime

    @property
    def matrix(self) -> MatrixFigures | None:
        """The error matrix's figures of a version at its release; None for rows of other actions."""
        return self.verdict.matrix if isinstance(self.verdict, Verdict) else None


@dataclass(frozen=True)
class Overlay:
    """What the newest rows say of a version beyond its manifest; `calibration` is None if no row has one."""

    valid_until: int
    calibration: Calibration | None


def record_release(
    connection: Connection,
    task_id: int,
    version: str,
    *,
    action: Action,
    valid_until: int,
    actor: str,
    reason: str,
    now: datetime,
    calibration: Calibration | None = None,
    verdict: RowFigures | None = None,
) -> Release:
    """Append one row; `valid_until` in microseconds since the epoch."""
    row = connection.execute(
        releases.insert().returning(*_COLUMNS),
        {
            "task_id": task_id,
            "version": version,
            "action": action,
            "valid_until": from_micros(valid_until),
            "calibration": None if calibration is None else msgspec.to_builtins(calibration),
            "verdict": None if verdict is None else encode(verdict),
            "actor": actor,
            "reason": reason,
            "at": now,
        },
    ).one()
    return _release(row)


def read_overlay(connection: Connection, task_id: int, version: str) -> Overlay | None:
    """The newest bound and the newest calibration of a version; None if it has no row. Raises RowUnreadable.

    The bound counts also if the calibration cannot be read.
    """
    of_version = releases.c.task_id == task_id, releases.c.version == version
    newest = select(releases.c.id, releases.c.valid_until).where(*of_version).order_by(releases.c.id.desc()).limit(1)
    found = read_all(connection, releases, newest, lambda row: to_micros(row.valid_until))
    if not found:
        return None
    calibrated = (
        select(releases.c.id, releases.c.calibration)
        .where(*of_version, releases.c.calibration.is_not(None))
        .order_by(releases.c.id.desc())
        .limit(1)
    )
    calibrations = read_rows(
        connection, releases, calibrated, lambda row: msgspec.convert(row.calibration, Calibration)
    ).rows
    return Overlay(found[0], calibrations[0] if calibrations else None)


def is_released_as(connection: Connection, task_id: int, version: str, cutoff: int) -> bool:
    """Whether the rows of a version may belong to the model of this cutoff (microseconds).

    After a model was deleted from the registry, and in a new registry, versions count from 1 again. The newest release
    of a number then names another cutoff. Rows without a cutoff may belong to any model.
    Raises RowUnreadable.
    """
    newest = (
        select(releases.c.id, releases.c.verdict["cutoff"].label("cutoff"))
        .where(releases.c.task_id == task_id, releases.c.version == version, releases.c.action == "release")
        .order_by(releases.c.id.desc())
        .limit(1)
    )
    found = read_all(connection, releases, newest, lambda row: msgspec.convert(row.cutoff, datetime | None))
    return not found or found[0] in (None, from_micros(cutoff))


def list_releases(
    connection: Connection,
    task_id: int,
    *,
    version: str | None = None,
    actions: Sequence[Action] | None = None,
    limit: int = 1000,
    with_calibration: bool = True,
) -> list[Release]:
    """A task's rows, newest first; only those of one version or of some actions, if given. Raises RowUnreadable."""
    query = _newest(task_id, version, actions, limit, with_calibration)
    return list(read_all(connection, releases, query, _release))


def list_readable_releases(
    connection: Connection,
    task_id: int,
    *,
    version: str | None = None,
    actions: Sequence[Action] | None = None,
    limit: int = 1000,
    with_calibration: bool = False,
) -> ReadRows[Release]:
    """The same without rows that cannot be read, which are named."""
    return read_rows(connection, releases, _newest(task_id, version, actions, limit, with_calibration), _release)


def find_former(connection: Connection, task_id: int, champion: str | None) -> str | None:
    """The version that was champion before `champion` was released; None if there is no such version.

    So each further rollback goes further back, and never returns to a version that was rolled back.
    """
    rows = list_releases(connection, task_id, actions=CHAMPION_ACTIONS, with_calibration=False)
    released = [row.release_id for row in rows if row.action == "release" and row.version == champion]
    return next(
        (row.version for row in rows if row.version != champion and not (released and row.release_id > released[-1])),
        None,
    )


def note_moved_alias(connection: Connection, task_id: int, version: str, now: datetime) -> bool:
    """Record that somebody moved the alias in MLflow to a version released before; returns whether that is so.

    The caller holds the row of the task (`store.tasks.catalog.lock_task`); the alias now names `version`.
    Nothing is recorded for a version that was never released, or while a cycle is releasing and moves the alias itself.
    """
    if is_releasing(connection, task_id):
        return False
    rows = list_releases(connection, task_id, actions=CHAMPION_ACTIONS, limit=1, with_calibration=False)
    overlay = read_overlay(connection, task_id, version)
    if not rows or rows[0].version == version or overlay is None:
        return False
    if not list_releases(connection, task_id, version=version, actions=["release"], limit=1, with_calibration=False):
        return False
    record_release(
        connection,
        task_id,
        version,
        action="rollback",
        valid_until=overlay.valid_until,
        actor="mlflow",
        reason="the alias was moved in MLflow",
        now=now,
        verdict=Rollback(rows[0].version),
    )
    return True


def _newest(
    task_id: int, version: str | None, actions: Sequence[Action] | None, limit: int, with_calibration: bool
) -> Select[*tuple[Any, ...]]:
    chosen: list[ColumnElement[bool]] = [releases.c.task_id == task_id]
    if version is not None:
        chosen.append(releases.c.version == version)
    if actions is not None:
        chosen.append(releases.c.action.in_(actions))
    columns = [column if with_calibration or column.name != "calibration" else null() for column in _COLUMNS]
    return select(*columns).where(*chosen).order_by(releases.c.id.desc()).limit(limit)


_COLUMNS = (
    releases.c.id,
    releases.c.version,
    releases.c.action,
    releases.c.valid_until,
    releases.c.calibration,
    releases.c.verdict,
    releases.c.actor,
    releases.c.reason,
    releases.c.at,
)


def _release(row: Sequence[Any]) -> Release:
    release_id, version, action, valid_until, calibration, verdict, *rest = row
    calibrated = None if calibration is None else msgspec.convert(calibration, Calibration)
    figures = None if verdict is None else decode_row(action, verdict)
    return Release(release_id, version, action, to_micros(valid_until), calibrated, figures, *rest)
