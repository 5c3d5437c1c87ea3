"""A drifting task whose matrix is filled and whose fits are kept, and the live job that looks at it."""

import shutil
import threading
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from contracts.task import Task
from store.error_cells import Cell, read_cells
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema
from tests.integration.drifting_task import HOUR, START, Story, cutoff_after, define, settings
from trainer.evaluation.backtest import backtest
from trainer.evaluation.horizon import HorizonVerdict
from trainer.monitoring.live_scoring import LiveScoring

NUM_WINDOWS = 8


def moment(num_windows: float) -> datetime:
    """That many windows after the start."""
    return START + num_windows * HOUR


def fill(engine: Engine, task: Task, home: Path, **how: bool) -> Schema:
    """The task with its matrix filled as of the newest boundary, and nothing left to score then.

    Fits that are kept already are only scored.
    """
    schema = define(engine, task, NUM_WINDOWS, **how)
    fill_as_of(engine, schema, home, NUM_WINDOWS)
    live(engine, home).score_new_labels(moment(NUM_WINDOWS))
    return schema


def fill_as_of(engine: Engine, schema: Schema, home: Path, num_windows: int) -> HorizonVerdict:
    """Fill the matrix as of that many windows after the start; the verdict on it."""
    _, verdict = backtest(
        engine,
        schema,
        cutoff_after(num_windows),
        settings=settings(home),
        now=lambda: moment(num_windows),
        report=Story(),
    )
    return verdict


def copy_home(fits: Path, home: Path) -> Path:
    """A home with copies of the fits of another."""
    shutil.copytree(fits / "candidates", home / "candidates")
    return home


def live(engine: Engine, home: Path) -> LiveScoring:
    """The live job as a trainer that has just started has it."""
    return LiveScoring(engine, settings(home), threading.Event())


def append(engine: Engine, schema: Schema, batch: Iterable[Event], received_at: datetime = START) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, list(batch), received_at)


def cells_of(engine: Engine, schema: Schema, recipe: str | None = None) -> list[Cell]:
    with engine.connect() as connection:
        return read_cells(connection, schema.task_id, recipe or schema.task.recipe, until=cutoff_after(1000))


def ages_on(engine: Engine, schema: Schema, window: int, method: str = "gi") -> dict[int, Cell]:
    """Age -> cell on the window that many windows after the start."""
    clock = schema.task.clock
    return {
        clock.age(cell.origin, cell.window): cell
        for cell in cells_of(engine, schema)
        if cell.window == cutoff_after(window) and cell.method == method
    }
