"""Cells whose rows are gone, and fits that have read retracted events, count no longer."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, update

from contracts.clock import from_micros
from contracts.task import Task
from store.database import error_cells, events
from store.error_cells import Cell, record_cells
from store.events.batches import Event, EventBatch
from store.events.erasures import erase_events
from store.events.imports import Retraction, add_import, list_retractions, retract_events
from store.events.writes import append_batch, correct_event
from store.tasks.catalog import Schema, define_task
from tests.integration.drifting_task import (
    ROWS_PER_WINDOW,
    START,
    Story,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    flip,
    now,
    settings,
)
from tests.integration.live_job import cells_of, live
from trainer.data.snapshot import read
from trainer.evaluation.backtest import _needed_pairs, backtest
from trainer.evaluation.fit_store import FitStore, candidate_folder, read_moment
from trainer.evaluation.stored_matrix import read_stored

NUM_WINDOWS = 10
CUTOFF = cutoff_after(NUM_WINDOWS)


@pytest.fixture
def task() -> Task:
    return drifting_task(guard={"max_age": 2, "tolerance": 5.0, "min_rows": 100, "min_pairs": 2, "rivals": []})


def import_events(engine: Engine, schema: Schema, found: Iterable[Event]) -> int:
    with engine.begin() as connection:
        begun = add_import(connection, schema.task_id, actor="who", source="file", now=now())
        append_batch(connection, schema, EventBatch.of(list(found)), now(), begun.import_id)
    return begun.import_id


def retract(engine: Engine, schema: Schema, import_id: int) -> None:
    with engine.begin() as connection:
        retract_events(connection, schema, import_id, actor="who", reason="a mistake", now=now())


def fill(engine: Engine, schema: Schema, home: Path, num_windows: int | None = None) -> Story:
    """Fill the matrix as a cycle would."""
    story = Story()
    backtest(engine, schema, CUTOFF, settings=settings(home), now=now, report=story, num_windows=num_windows)
    return story


def define_imported(engine: Engine, task: Task, *, shuffled: bool = False) -> tuple[Schema, int]:
    """The task with an import of all windows."""
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START)
    return schema, import_events(engine, schema, drifting_events(0, NUM_WINDOWS, shuffled=shuffled))


def losses(cells: Iterable[Cell]) -> dict[tuple[int, int], float]:
    return {(cell.origin, cell.window): cell.loss for cell in cells if cell.method == "gi"}


def num_fitted(story: Story) -> int:
    (facts,) = story.of("matrix.missing")
    assert isinstance(facts["num_to_fit"], int)
    return facts["num_to_fit"]


def test_after_a_retraction_and_a_new_import_every_cell_is_of_fits_of_the_new_rows(
    engine: Engine, task: Task, tmp_path: Path
) -> None:
    """The first import has shuffled labels, and two more rows in each window."""
    schema, mistaken = define_imported(engine, task, shuffled=True)
    extra = [
        replace(event, event_id=f"extra {event.event_id}")
        for window in range(NUM_WINDOWS)
        for event in list(drifting_events(window, window + 1))[:2]
    ]
    import_events(engine, schema, extra)
    fill(engine, schema, tmp_path, 8)
    before = cells_of(engine, schema)
    assert {cell.num_rows for cell in before} == {ROWS_PER_WINDOW + 2}

    retract(engine, schema, mistaken)
    import_events(engine, schema, drifting_events(0, NUM_WINDOWS))
    fill(engine, schema, tmp_path, 3)
    after = cells_of(engine, schema)
    assert {cell.num_revisions for cell in after} == {2 * ROWS_PER_WINDOW + 3}
    assert len(losses(after)) == len(set(_needed_pairs(read(engine, schema, CUTOFF, now()), 3)))

    fresh, _ = define_imported(engine, task.model_copy(update={"name": f"{task.name}_fresh"}))
    import_events(engine, fresh, extra)
    fill(engine, fresh, tmp_path, 3)
    assert losses(after).keys() == losses(cells_of(engine, fresh)).keys()
    assert max(losses(after).values()) < min(losses(before).values()), "its fits have learned from the new labels"
    assert num_fitted(fill(engine, schema, tmp_path, 3)) == 0, "a fit of the new rows stays"


def test_a_retraction_leaves_the_fits_that_read_none_of_its_events(engine: Engine, task: Task, tmp_path: Path) -> None:
    schema, _ = define_imported(engine, task)
    later = [replace(event, event_id=f"later {event.event_id}") for event in drifting_events(8, 9)]
    mistaken = import_events(engine, schema, later)
    fill(engine, schema, tmp_path, 8)
    early = {
        cell for cell in cells_of(engine, schema) if cell.origin <= cutoff_after(8) and cell.window < cutoff_after(8)
    }
    retract(engine, schema, mistaken)
    (retraction,) = _retractions(engine, schema)
    assert (retraction.first, retraction.last) == (cutoff_after(8), cutoff_after(8))
    story = fill(engine, schema, tmp_path, 8)
    assert early < set(cells_of(engine, schema))
    origins = {cell.origin for cell in cells_of(engine, schema)}
    assert num_fitted(story) == len([origin for origin in origins if origin > cutoff_after(8)])
    assert {cell.num_rows for cell in cells_of(engine, schema)} == {ROWS_PER_WINDOW}


def _retractions(engine: Engine, schema: Schema) -> list[Retraction]:
    with engine.connect() as connection:
        return list(list_retractions(connection, schema.task_id))


def test_the_live_job_scores_nothing_with_a_fit_of_retracted_events(engine: Engine, task: Task, tmp_path: Path) -> None:
    schema, mistaken = define_imported(engine, task, shuffled=True)
    fill(engine, schema, tmp_path, 3)
    retract(engine, schema, mistaken)
    import_events(engine, schema, drifting_events(0, NUM_WINDOWS))
    with engine.begin() as connection:
        connection.execute(delete(error_cells).where(error_cells.c.task_id == schema.task_id))
    assert live(engine, tmp_path).score_new_labels(now()) == 0
    fill(engine, schema, tmp_path, 3)
    with engine.begin() as connection:
        connection.execute(delete(error_cells).where(error_cells.c.task_id == schema.task_id))
    assert live(engine, tmp_path).score_new_labels(now()) > 0


def test_an_erasure_ends_the_cells_of_its_window_and_no_fit(engine: Engine, task: Task, tmp_path: Path) -> None:
    schema, _ = define_imported(engine, task)
    fill(engine, schema, tmp_path, 8)
    fits = FitStore(tmp_path, task)
    old = cutoff_after(4)
    moments = fits.read_moments()
    fits.discard(old)
    fits.discard(cutoff_after(3))
    with engine.begin() as connection:
        erase_events(connection, schema, ["4-7"], actor="who", reason="asked", now=now())
    assert num_fitted(fill(engine, schema, tmp_path, 3)) == 0
    left = {cell for cell in cells_of(engine, schema) if cell.window == old}
    assert left == set(), "the fits of both ages are gone"
    assert fits.read_moments() == {origin: at for origin, at in moments.items() if origin not in (old, cutoff_after(3))}


def test_a_correction_of_an_old_window_is_scored_by_kept_fits_or_ends_its_cells(
    engine: Engine, task: Task, tmp_path: Path
) -> None:
    schema = define(engine, task, NUM_WINDOWS)
    fill(engine, schema, tmp_path, 8)
    window, event = cutoff_after(4), next(drifting_events(4, 5))
    FitStore(tmp_path, task).discard(window)
    with engine.begin() as connection:
        correct_event(connection, schema, flip(event), from_micros(cutoff_after(6)))
    assert num_fitted(fill(engine, schema, tmp_path, 3)) == 0
    there = [cell for cell in cells_of(engine, schema) if cell.window == window]
    assert {(cell.origin, cell.method, cell.num_revisions) for cell in there} == {
        (cutoff_after(3), method, ROWS_PER_WINDOW + 1) for method in ("gi", "naive")
    }


@pytest.mark.parametrize("keeps_fits", [True, False])
def test_rows_that_were_deleted_by_sql_count_no_longer(
    engine: Engine, task: Task, tmp_path: Path, keeps_fits: bool
) -> None:
    schema, _ = define_imported(engine, task)
    fill(engine, schema, tmp_path, 8)
    window = cutoff_after(4)
    if not keeps_fits:
        for origin in (window, cutoff_after(3)):
            FitStore(tmp_path, task).discard(origin)
    with engine.begin() as connection:
        of_task = events.c.task_id == schema.task_id
        connection.execute(delete(events).where(of_task, events.c.event_id.in_(["4-1", "4-2"])))
    fill(engine, schema, tmp_path, 3)
    there = {cell.num_rows for cell in cells_of(engine, schema) if cell.window == window}
    assert there == ({ROWS_PER_WINDOW - 2} if keeps_fits else set())


def test_a_retraction_in_windows_before_the_reading_ends_their_cells(
    engine: Engine, task: Task, tmp_path: Path
) -> None:
    training = task.training.model_copy(update={"history": 3})
    schema, _ = define_imported(engine, task.model_copy(update={"training": training}))
    mistaken = import_events(engine, schema, [replace(next(drifting_events(2, 3)), event_id="one more")])
    held = ROWS_PER_WINDOW + 1
    cells = [
        Cell(cutoff_after(window), cutoff_after(window), "gi", rows, 0.5, 0.5, rows)
        for window, rows in ((1, ROWS_PER_WINDOW), (2, held))
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, from_micros(CUTOFF))
    reading = read(engine, schema, CUTOFF, now(), since=cutoff_after(5))
    fits = FitStore(tmp_path, schema.task)
    assert read_stored(engine, reading, fits).cells == cells
    retract(engine, schema, mistaken)
    assert read_stored(engine, reading, fits).cells == cells[:1]
    assert cells_of(engine, schema) == cells[:1]


def test_a_cell_that_another_trainer_scored_ahead_of_our_clock_stays(
    engine: Engine, task: Task, tmp_path: Path
) -> None:
    schema, _ = define_imported(engine, task)
    fill(engine, schema, tmp_path, 3)
    window = cutoff_after(NUM_WINDOWS - 2)
    with engine.begin() as connection:
        connection.execute(
            update(error_cells)
            .where(error_cells.c.task_id == schema.task_id, error_cells.c.window == from_micros(window))
            .values(num_revisions=ROWS_PER_WINDOW + 5, scored_at=from_micros(cutoff_after(100_000)))
        )
    reading = read(engine, schema, CUTOFF, now())
    stored = read_stored(engine, reading, FitStore(tmp_path, schema.task))
    assert window not in {cell.window for cell in stored.cells}
    assert window in {cell.window for cell in cells_of(engine, schema)}
    assert read_moment(candidate_folder(tmp_path, schema.task, window)) is not None
