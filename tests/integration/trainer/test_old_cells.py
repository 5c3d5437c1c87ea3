"""A cycle reads the newest windows of its matrix, and deletes cells that nothing can use."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from contracts.clock import to_micros
from contracts.verdict import MatrixFigures, Verdict
from store.database import error_cells
from store.error_cells import Cell, read_cells, record_cells
from store.releases import record_release
from store.tasks.catalog import Schema
from tests.integration.drifting_task import START, cutoff_after, define, drifting_task, now
from trainer.data.snapshot import Reading, read
from trainer.evaluation.backtest import _needed_pairs, judge
from trainer.evaluation.calibration import TEMPERATURES, calibration_of
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.old_cells import KEPT_WINDOWS, READ_WINDOWS, delete_old_cells
from trainer.evaluation.stored_matrix import read_stored

NUM_WINDOWS = 400
MAX_AGE = 2


@pytest.fixture
def schema(engine: Engine) -> Schema:
    """A task with the cells of four hundred windows, and rows of the newest ones."""
    schema = define(engine, drifting_task(), 12)
    store(engine, schema, schema.task.recipe, range(12 - NUM_WINDOWS, 12))
    return schema


def store(engine: Engine, schema: Schema, recipe: str, windows: Iterable[int]) -> None:
    cells = [
        Cell(cutoff_after(window - age), cutoff_after(window), method, 150, error, error, 150)
        for window in windows
        for age in range(MAX_AGE)
        for method, error in (("gi", 0.3 + window % 7 / 100), ("naive", 0.9))
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, recipe, cells, START)


def windows_of(engine: Engine, schema: Schema) -> list[int]:
    with engine.connect() as connection:
        found = connection.execute(
            select(error_cells.c.window).where(error_cells.c.task_id == schema.task_id).distinct()
        ).scalars()
        return sorted(to_micros(window) for window in found)


def reading_of(engine: Engine, schema: Schema) -> Reading:
    """The newest rows; cells of windows before them were scored on rows that are not read."""
    return replace(read(engine, schema, cutoff_after(12), now()), since=cutoff_after(0))


def test_a_cycle_reads_the_newest_windows_and_judges_as_before(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    fits = FitStore(tmp_path, schema.task)
    reading = reading_of(engine, schema)
    cells = read_stored(engine, reading, fits).cells
    newest = [cutoff_after(window) for window in range(12 - READ_WINDOWS, 12)]
    assert sorted({cell.window for cell in cells}) == newest
    assert len(cells) == READ_WINDOWS * MAX_AGE * 2
    assert (
        sorted({cell.window for cell in read_stored(engine, reading, fits, _needed_pairs(reading, 20)).cells}) == newest
    )
    few = judge(reading, cells)
    with engine.begin() as connection:
        connection.execute(error_cells.delete().where(error_cells.c.task_id == schema.task_id))
    store(engine, schema, schema.task.recipe, range(12 - READ_WINDOWS, 12))
    assert judge(reading, read_stored(engine, reading, fits).cells) == few
    assert few.horizon == MAX_AGE


def test_old_cells_are_deleted_but_those_of_the_version_that_answers(engine: Engine, schema: Schema) -> None:
    other = define(engine, drifting_task(), 1)
    store(engine, other, other.task.recipe, range(12 - NUM_WINDOWS, 12))
    store(engine, schema, "a former recipe", range(12 - NUM_WINDOWS, 12))
    champion = cutoff_after(-300)
    figures = MatrixFigures(
        cutoff=START - 300 * timedelta(hours=1),
        recipe=schema.task.recipe,
        better_method=None,
        rivals=(),
        horizon=2,
        missing_windows=0,
        error_name="log_loss",
        tolerance=0.1,
        min_pairs=3,
        max_error=None,
        ages=(),
    )
    with engine.begin() as connection:
        record_release(
            connection,
            schema.task_id,
            "1",
            action="release",
            valid_until=champion,
            actor="trainer",
            reason="",
            now=START,
            verdict=Verdict.of(matrix=figures),
        )
    delete_old_cells(engine, schema.task_id, schema.task, cutoff_after(12))
    kept = [cutoff_after(window) for window in range(12 - KEPT_WINDOWS - schema.task.guard.max_age, 12)]
    assert windows_of(engine, schema) == [champion, cutoff_after(-299), *kept]
    assert len(windows_of(engine, other)) == NUM_WINDOWS
    assert delete_old_cells(engine, schema.task_id, schema.task, cutoff_after(12)) == 0


def test_a_cycle_reads_the_sketches_of_its_own_method_alone_and_calibrates_as_before(
    engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    sketch, losses = tuple(k / 200 for k in range(201)), (0.3,) * len(TEMPERATURES)
    with engine.begin() as connection:
        connection.execute(error_cells.update().values(scores=list(sketch), tempered=list(losses)))
    found = read_stored(engine, reading_of(engine, schema), FitStore(tmp_path, schema.task)).cells
    for cell in found:
        is_ours = cell.method == schema.task.training.method
        assert (cell.scores, cell.tempered) == ((sketch, losses) if is_ours else ((), ()))
    with engine.connect() as connection:
        whole = read_cells(
            connection, schema.task_id, schema.task.recipe, until=cutoff_after(12), since=found[0].window
        )
    assert [replace(cell, scores=(), tempered=()) for cell in found] == [
        replace(cell, scores=(), tempered=()) for cell in whole
    ]
    assert calibration_of(schema.task, found) == calibration_of(schema.task, whole)
