"""Rivals have cells in our matrix: they are fitted at our origins, scored on our windows, kept and continued."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import Engine, delete, text

from store.database import error_cells
from store.error_cells import Cell, read_cells
from store.events.writes import correct_event
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    HOUR,
    ROWS_PER_WINDOW,
    START,
    Story,
    add_windows,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    now,
)
from tests.integration.drifting_task import settings as settings_for
from trainer.data.snapshot import read
from trainer.evaluation.backtest import backtest
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import HorizonRule, judge_horizon
from trainer.evaluation.origin_fits import seeds_of
from trainer.methods.gbdt import fit_gbdt, read_gbdt
from trainer.rivals.missing_cells import find_missing_cells
from trainer.rivals.rivals import fill_rivals, rival_folder

RIVALS = ["baseline", "last_window", "gbdt", "extrapolated_linear"]
GUARD: dict[str, Any] = {"max_age": 2, "tolerance": 5.0, "min_rows": 100, "rivals": RIVALS}
CPU = torch.device("cpu")


def define_with_matrix(engine: Engine, home: Path, num_windows: int = 8, **changes: Any) -> Schema:
    """A task with rivals whose matrix has the cells of our method and of naive."""
    schema = define(engine, drifting_task(guard=GUARD | changes.pop("guard", {}), **changes), num_windows)
    fill_ours(engine, schema, home, num_windows)
    return schema


def fill_ours(engine: Engine, schema: Schema, home: Path, num_windows: int) -> None:
    backtest(
        engine, schema, cutoff_after(num_windows), settings=settings_for(home), now=now, report=lambda *_, **__: None
    )


def fill(engine: Engine, schema: Schema, home: Path, num_windows: int, story: Story) -> list[Cell]:
    reading = read(engine, schema, cutoff_after(num_windows), now())
    return fill_rivals(engine, reading, settings_for(home), CPU, story)


def places(cells: list[Cell], method: str) -> set[tuple[int, int, int, int]]:
    return {
        (cell.origin, cell.window, cell.num_rows, cell.num_revisions)
        for cell in cells
        if cell.method == method and cell.is_complete
    }


def matrix(engine: Engine, schema: Schema) -> list[Cell]:
    with engine.connect() as connection:
        return read_cells(connection, schema.task_id, schema.task.recipe, until=cutoff_after(1000))


def missing(engine: Engine, schema: Schema) -> set[str]:
    with engine.connect() as connection:
        return {cell.method for cell in find_missing_cells(connection, schema, cutoff_after(1000))}


def test_rivals_are_scored_where_our_method_is(engine: Engine, tmp_path: Path) -> None:
    schema = define_with_matrix(engine, tmp_path)
    assert missing(engine, schema) == set(RIVALS)
    added = fill(engine, schema, tmp_path, 8, Story())
    cells = matrix(engine, schema)
    ours = places(cells, "gi")
    assert len(ours) == 8
    for rival in RIVALS:
        assert places(cells, rival) == ours
        assert places(added, rival) == ours
    assert missing(engine, schema) == set()
    assert fill(engine, schema, tmp_path, 8, Story()) == []


def test_a_rival_is_scored_again_where_ours_was_scored_on_other_rows_without_a_revision(
    engine: Engine, tmp_path: Path
) -> None:
    """As by SQL, or as by a class that a task no longer has."""
    schema = define_with_matrix(engine, tmp_path)
    fill(engine, schema, tmp_path, 8, Story())
    with engine.begin() as connection:
        connection.execute(text("UPDATE error_cells SET num_rows = num_rows + 1 WHERE method = 'baseline'"))
    assert missing(engine, schema) == {"baseline"}
    fill(engine, schema, tmp_path, 8, Story())
    cells = matrix(engine, schema)
    assert places(cells, "baseline") == places(cells, "gi")
    assert missing(engine, schema) == set()


@pytest.mark.parametrize("method", [*RIVALS, "time_perturb"])
def test_rivals_learn_what_can_be_learned(engine: Engine, tmp_path: Path, method: str) -> None:
    schema = define_with_matrix(engine, tmp_path, guard={"rivals": [method]})
    fill(engine, schema, tmp_path, 8, Story())
    cells = matrix(engine, schema)
    verdict = judge_horizon(
        cells, HorizonRule(method=method, error_name="log_loss", clock=schema.task.clock, guard=schema.task.guard)
    )
    assert verdict.ages[0].mean < 0.7 * verdict.ages[0].naive


def test_a_regression_has_its_rivals_too(engine: Engine, tmp_path: Path) -> None:
    task = drifting_task(guard=GUARD, target={"name": "y", "kind": "regression"})
    schema = define(engine, task, 8, as_numbers=True)
    fill_ours(engine, schema, tmp_path, 8)
    added = fill(engine, schema, tmp_path, 8, Story())
    assert {cell.method for cell in added} == set(RIVALS)
    naive = {(cell.origin, cell.window): cell.metric for cell in matrix(engine, schema) if cell.method == "naive"}
    assert all(cell.metric < 0.7 * naive[cell.origin, cell.window] for cell in added if cell.method == "gbdt")


def test_the_next_window_costs_each_rival_one_fit(engine: Engine, tmp_path: Path) -> None:
    schema = define_with_matrix(engine, tmp_path)
    fill(engine, schema, tmp_path, 8, Story())
    folders = set((tmp_path / "candidates").glob("*/*/*"))
    add_windows(engine, schema, 8, 9)
    fill_ours(engine, schema, tmp_path, 9)
    ours = set((tmp_path / "candidates" / schema.task.name / schema.task.recipe).iterdir())
    added = fill(engine, schema, tmp_path, 9, Story())
    new = set((tmp_path / "candidates").glob("*/*/*")) - folders - ours
    assert len(new) == len(RIVALS)
    assert len(added) == len(RIVALS) * schema.task.guard.max_age


def test_a_correction_is_scored_again_without_a_fit(engine: Engine, tmp_path: Path) -> None:
    schema = define_with_matrix(engine, tmp_path)
    fill(engine, schema, tmp_path, 8, Story())
    folders = set((tmp_path / "candidates").glob("*/*/*"))
    event = next(drifting_events(7, 8))
    corrected = replace(event, label="no" if event.label == "yes" else "yes")
    with engine.begin() as connection:
        correct_event(connection, schema, corrected, START + 8.5 * HOUR)
    assert missing(engine, schema) == set()
    fill_ours(engine, schema, tmp_path, 9)
    assert missing(engine, schema) == set(RIVALS)
    added = fill(engine, schema, tmp_path, 9, Story())
    assert {cell.window for cell in added} == {cutoff_after(7)}
    assert {cell.num_revisions for cell in added} == {ROWS_PER_WINDOW + 1}
    assert missing(engine, schema) == set()
    assert set((tmp_path / "candidates").glob("*/*/*")) == folders


def test_nothing_that_became_known_later_reaches_a_booster(engine: Engine, tmp_path: Path) -> None:
    schema = define_with_matrix(engine, tmp_path, guard={"rivals": ["gbdt"]})
    fill(engine, schema, tmp_path, 8, Story())
    origin = cutoff_after(6)
    as_of = read(engine, schema, origin, now())
    booster = read_gbdt(rival_folder(tmp_path, as_of, "gbdt", origin), schema.task.recipe).booster
    (seed, *_) = seeds_of(schema.task)
    alone = fit_gbdt(schema.task, as_of.fit_rows(origin), origin, seed=seed, threads=1)
    assert booster.model_to_string() == alone.booster.model_to_string()


def test_a_lost_cell_is_scored_again_from_the_kept_fit(engine: Engine, tmp_path: Path) -> None:
    schema = define_with_matrix(engine, tmp_path)
    fill(engine, schema, tmp_path, 8, Story())
    before = matrix(engine, schema)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "candidates").glob("*/*/*/*")}
    with engine.begin() as connection:
        connection.execute(delete(error_cells).where(error_cells.c.method.in_(RIVALS)))
    fill(engine, schema, tmp_path, 8, Story())
    assert matrix(engine, schema) == before
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "candidates").glob("*/*/*/*")} == stamps


def test_old_fits_of_rivals_are_deleted_with_ours(engine: Engine, tmp_path: Path) -> None:
    schema = define_with_matrix(engine, tmp_path)
    fill(engine, schema, tmp_path, 8, Story())
    FitStore(tmp_path, schema.task).delete_older(cutoff_after(1000))
    assert list((tmp_path / "candidates").glob("*/*/*")) == []


def test_without_lightgbm_the_other_rivals_are_fitted_and_one_line_says_so(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, story = define_with_matrix(engine, tmp_path), Story()
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    fill(engine, schema, tmp_path, 8, story)
    assert missing(engine, schema) == {"gbdt"}
    assert [facts["method"] for facts in story.of("rival.left_out")] == ["gbdt"]
    assert story.of("rival.failed") == []
