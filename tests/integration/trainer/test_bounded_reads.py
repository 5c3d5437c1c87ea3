"""A cycle reads from the oldest row that a fit can use, and decides as if it had read every row."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, update

from contracts.clock import MICROSECOND, from_micros
from store.database import error_cells
from store.error_cells import Cell, record_cells
from store.events.reading.known_windows import find_windows
from store.events.writes import append_events, correct_event
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    START,
    Story,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    now,
    settings,
)
from trainer.data.snapshot import Reading, read
from trainer.evaluation.backtest import _needed_pairs, fill_and_judge, read_needed
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.stored_matrix import StoredCells, read_stored
from trainer.evaluation.units import InThisProcess
from trainer.replay.replay import _origins, first_needed

HISTORY = 3
NUM_WINDOWS = 20
CUTOFF = cutoff_after(NUM_WINDOWS)


def task_with_history(history: int | None = HISTORY, **changes: Any) -> Any:
    task = drifting_task(**changes)
    return task.model_copy(update={"training": task.training.model_copy(update={"history": history})})


@pytest.fixture
def schema(engine: Engine) -> Schema:
    """Twenty windows without the tenth, a late row, and a correction in the newest window."""
    schema = define(engine, task_with_history(), 10)
    rows = list(drifting_events(11, NUM_WINDOWS))
    rows[7] = replace(rows[7], known_at=rows[7].at + 3 * timedelta(hours=1) // MICROSECOND)
    with engine.begin() as connection:
        append_events(connection, schema, rows, START)
        correct_event(connection, schema, replace(rows[-1], label="yes" if rows[-1].label == "no" else "no"), START)
    return schema


def both(engine: Engine, schema: Schema) -> tuple[Reading, Reading]:
    """The bounded reading and the whole one."""
    return read_needed(engine, schema, CUTOFF, now()), read(engine, schema, CUTOFF, now())


def judged(engine: Engine, reading: Reading, home: Path) -> Any:
    store, executor = FitStore(home, reading.schema.task), InThisProcess(settings(home))
    return fill_and_judge(
        StoredCells(engine), reading, store, settings(home), executor, report=Story(), on_epoch=lambda _epoch: None
    )


def test_only_rows_that_a_fit_can_use_are_read(engine: Engine, schema: Schema) -> None:
    bounded, whole = both(engine, schema)
    assert bounded.since is not None
    oldest = min(origin for origin, _ in _needed_pairs(bounded))
    assert bounded.since == oldest - HISTORY * schema.task.clock.window
    assert bounded.events.at.min() >= bounded.since
    assert len(bounded.events) < len(whole.events) * 2 / 3


def test_every_origin_knows_the_same_rows(engine: Engine, schema: Schema) -> None:
    bounded, whole = both(engine, schema)
    pairs = _needed_pairs(whole)
    assert _needed_pairs(bounded) == pairs
    for origin in {origin for origin, _ in pairs} | {CUTOFF}:
        assert bounded.reaches(origin)
        assert bounded.known(origin).digest == whole.known(origin).digest
    assert all(whole.fingerprints[window] == found for window, found in bounded.fingerprints.items())


def test_a_kept_fit_of_a_whole_reading_is_scored_without_fitting_again(
    engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    bounded, whole = both(engine, schema)
    cells, verdict = judged(engine, whole, tmp_path)
    fits = {file: file.read_bytes() for file in tmp_path.rglob("*.onnx")}
    found, same = judged(engine, bounded, tmp_path)
    assert (found, same) == (cells, verdict)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.onnx")} == fits


def test_fits_and_cells_are_those_of_a_whole_reading(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    bounded, whole = both(engine, schema)
    cells, verdict = judged(engine, bounded, tmp_path / "bounded")
    with engine.begin() as connection:
        connection.execute(error_cells.delete().where(error_cells.c.task_id == schema.task_id))
    assert judged(engine, whole, tmp_path / "whole") == (cells, verdict)
    assert verdict.num_known == NUM_WINDOWS - 1


def test_cells_of_windows_before_the_reading_count_unless_they_know_later_rows(
    engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    store = FitStore(tmp_path, schema.task)
    recipe, window = schema.task.recipe, cutoff_after(2)
    bounded, whole = both(engine, schema)
    known = whole.fingerprints[window][1]
    cells = [
        Cell(window, window, "gi", known, 0.5, 0.5, known),
        Cell(window, cutoff_after(3), "gi", known, 0.5, 0.5, known + 1),
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, recipe, cells, from_micros(CUTOFF))
    assert read_stored(engine, bounded, store).cells == cells
    with engine.begin() as connection:
        later = from_micros(CUTOFF) + timedelta(minutes=1)
        connection.execute(update(error_cells).where(error_cells.c.task_id == schema.task_id).values(scored_at=later))
    assert read_stored(engine, bounded, store).cells == read_stored(engine, whole, store).cells == cells[:1]


@pytest.mark.parametrize("training", [{"history": None}, {"history": HISTORY, "tune": True}])
def test_all_rows_are_read_if_a_fit_may_use_them(engine: Engine, schema: Schema, training: dict[str, Any]) -> None:
    task = schema.task
    free = replace(schema, task=task.model_copy(update={"training": task.training.model_copy(update=training)}))
    assert len(read_needed(engine, free, CUTOFF, now()).events) == len(read(engine, free, CUTOFF, now()).events)


def test_all_rows_are_read_if_the_newest_may_be_far_off(engine: Engine, schema: Schema) -> None:
    late = [replace(event, event_id=f"odd-{k}", at=cutoff_after(80)) for k, event in enumerate(drifting_events(0, 1))]
    with engine.begin() as connection:
        append_events(connection, schema, late[:5], START)
    cutoff = cutoff_after(81)
    reading = read_needed(engine, schema, cutoff, now())
    assert reading.since is None
    assert reading.latest.digest == read(engine, schema, cutoff, now()).latest.digest


def test_windows_are_those_with_current_rows(engine: Engine, schema: Schema) -> None:
    expected = sorted({*map(cutoff_after, range(10)), *map(cutoff_after, range(11, NUM_WINDOWS))}, reverse=True)
    with engine.connect() as connection:
        found = find_windows(connection, schema.task_id, schema.task, CUTOFF, most=100)
        assert found == expected
        assert find_windows(connection, schema.task_id, schema.task, CUTOFF, most=3) == expected[:3]


def test_a_replay_reads_from_where_its_first_fit_reads(engine: Engine) -> None:
    schema = define(engine, task_with_history(), 0)
    with engine.begin() as connection:
        rows = [row for row in drifting_events(0, 130) if row.event_id.endswith(("-1", "-2"))]
        append_events(connection, schema, rows, START)
    first, cutoff = cutoff_after(125), cutoff_after(130)
    whole = read(engine, schema, cutoff, now())
    bounded = read(engine, schema, cutoff, now(), since=first_needed(schema.task, first))
    origins = _origins(whole, first)
    assert _origins(bounded, first) == origins
    assert [bounded.known(origin).digest for origin in origins] == [whole.known(origin).digest for origin in origins]
    assert len(bounded.events) < len(whole.events)
