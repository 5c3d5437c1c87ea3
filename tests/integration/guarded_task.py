"""Rows of `releases` for tests of the guard, in windows after the start, and the story that they tell."""

from typing import Any

from sqlalchemy import Engine

from contracts.calibration import Calibration
from contracts.verdict import RowFigures
from store.releases import Action, Release, list_releases
from store.tasks.catalog import Schema
from tests.integration.drifting_task import cutoff_after
from tests.integration.live_job import moment
from tests.integration.published_versions import note


def write(
    engine: Engine,
    schema: Schema,
    action: Action,
    valid_until: float,
    *,
    version: str = "1",
    at: float = 8,
    verdict: dict[str, Any] | RowFigures | None = None,
    calibration: Calibration | None = None,
) -> None:
    """A row; moments in windows after the start."""
    note(
        engine,
        schema,
        version,
        action,
        valid_until=cutoff_after(0) + round(valid_until * schema.task.clock.window),
        now=moment(at),
        verdict=verdict,
        calibration=calibration,
        cutoff=cutoff_after(0),
    )


def rows_of(engine: Engine, schema: Schema) -> list[Release]:
    """Oldest first."""
    with engine.connect() as connection:
        return list_releases(connection, schema.task_id)[::-1]


def story(engine: Engine, schema: Schema) -> list[tuple[str, str, float]]:
    """(version, action, bound in windows after the start), oldest first."""
    window = schema.task.clock.window
    return [(row.version, row.action, (row.valid_until - cutoff_after(0)) / window) for row in rows_of(engine, schema)]
