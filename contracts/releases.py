"""The append-only record of what was released when, by whom and why, and until when each version is valid.

release    a cycle let the alias name this version
rollback   the alias was moved back to it, through the API or in MLflow
calibrate  labels that have arrived since changed its quantiles
close      a realised error above its limit ended its horizon
reopen     a correction took that error back
override   an admin set its horizon by hand
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, select

from contracts.calibration import Calibration
from contracts.clock import from_micros, to_micros
from contracts.database import releases

ALIAS = "champion"

Action = Literal["release", "rollback", "calibrate", "close", "reopen", "override"]


@dataclass(frozen=True)
class Release:
    """One row. `valid_until` in microseconds; `verdict` holds the figures that it rests on."""

    release_id: int
    version: str
    action: Action
    valid_until: int
    calibration: Calibration | None
    verdict: dict[str, Any] | None
    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class Overlay:
    """What the newest rows say of a version beyond its manifest; `calibration` is None where no row has one."""

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
    verdict: dict[str, Any] | None = None,
) -> None:
    """Append one row; `valid_until` in microseconds since the epoch."""
    connection.execute(
        releases.insert(),
        {
            "task_id": task_id,
            "version": version,
            "action": action,
            "valid_until": from_micros(valid_until),
            "calibration": None if calibration is None else msgspec.to_builtins(calibration),
            "verdict": verdict,
            "actor": actor,
            "reason": reason,
            "at": now,
        },
    )


def read_overlay(connection: Connection, task_id: int, version: str) -> Overlay | None:
    """The newest bound and the newest calibration of a version; None where it has no row."""
    found = list_releases(connection, task_id, version=version)
    if not found:
        return None
    calibrations = (release.calibration for release in found if release.calibration is not None)
    return Overlay(found[0].valid_until, next(calibrations, None))


def list_releases(
    connection: Connection, task_id: int, *, version: str | None = None, limit: int = 1000
) -> list[Release]:
    """A task's rows, or those of one version, newest first."""
    of_version = [] if version is None else [releases.c.version == version]
    rows = connection.execute(
        select(
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
        .where(releases.c.task_id == task_id, *of_version)
        .order_by(releases.c.id.desc())
        .limit(limit)
    )
    return [
        Release(
            release_id,
            version_,
            action,
            to_micros(valid_until),
            None if calibration is None else msgspec.convert(calibration, Calibration),
            *rest,
        )
        for release_id, version_, action, valid_until, calibration, *rest in rows
    ]
