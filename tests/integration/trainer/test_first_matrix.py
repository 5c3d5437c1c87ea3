"""How many windows a first cycle scores: as many as a verdict on the model needs, if the past holds them."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from contracts.quality.skill import FEW_WINDOWS
from contracts.verdict import EXTRA_WINDOWS
from store.tasks.catalog import Schema
from tests.integration.drifting_task import Story, cutoff_after, define, drifting_task, now, settings
from trainer.evaluation.backtest import fill_and_judge, read_needed
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.stored_matrix import StoredCells
from trainer.evaluation.units import InThisProcess


def fill(engine: Engine, schema: Schema, num_windows: int, home: Path) -> tuple[int, int]:
    """The number of windows that are scored, and of origins that had to be fitted."""
    reading, story = read_needed(engine, schema, cutoff_after(num_windows), now()), Story()
    store = FitStore(home, schema.task)
    cells, _ = fill_and_judge(
        StoredCells(engine),
        reading,
        store,
        settings(home),
        InThisProcess(settings(home)),
        report=story,
        on_epoch=lambda _epoch: None,
    )
    scored = {cell.window for cell in cells if cell.method == schema.task.training.method and cell.is_complete}
    return len(scored), sum(int(str(facts["num_to_fit"])) for facts in story.of("matrix.missing"))


@pytest.mark.parametrize(("num_windows", "num_scored"), [(14, FEW_WINDOWS), (9, 3 + EXTRA_WINDOWS)])
def test_a_first_matrix_holds_the_windows_that_a_verdict_needs_if_enough_rows_precede_them(
    engine: Engine, tmp_path: Path, num_windows: int, num_scored: int
) -> None:
    schema = define(engine, drifting_task(), num_windows)
    found, num_fits = fill(engine, schema, num_windows, tmp_path)
    assert found == num_scored
    assert num_fits >= num_scored
    assert fill(engine, schema, num_windows, tmp_path)[1] == 0  # nothing is fitted twice
