"""Rows of `releases` for tests of the guard, in windows after the start, and the story that they tell."""

from typing import Any

from sqlalchemy import Engine

from contracts.calibration import Calibration
from contracts.catalog import Schema
from contracts.releases import Action, Release, list_releases, record_release
from tests.integration.drifting import cutoff_after
from tests.integration.living import moment


def write(
    engine: Engine,
    schema: Schema,
    action: Action,
    valid_until: float,
    *,
    version: str = "1",
    at: float = 8,
    verdict: dict[str, Any] | None = None,
    calibration: Calibration | None = None,
) -> None:
    """A row; moments in windows after the start."""
    with engine.begin() as connection:
        record_release(
            connection,
            schema.task_id,
            version,
            action=action,
            valid_until=cutoff_after(0) + round(valid_until * schema.task.clock.window),
            actor="a test",
            reason="a test",
            now=moment(at),
            verdict=verdict,
            calibration=calibration,
        )


def rows_of(engine: Engine, schema: Schema) -> list[Release]:
    """Oldest first."""
    with engine.connect() as connection:
        return list_releases(connection, schema.task_id)[::-1]


def story(engine: Engine, schema: Schema) -> list[tuple[str, str, float]]:
    """(version, action, bound in windows after the start), oldest first."""
    window = schema.task.clock.window
    return [(row.version, row.action, (row.valid_until - cutoff_after(0)) / window) for row in rows_of(engine, schema)]
