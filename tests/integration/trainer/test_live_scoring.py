"""The matrix fills itself: what is scored when, by which fits, and that nothing is scored twice."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, text
from structlog.testing import capture_logs

from cli.local.stack import free_port
from contracts.manifest import GRAPH_FILE
from contracts.verdict import decode_verdict
from store.database import error_cells
from store.engine import make_engine
from store.error_cells import NAIVE
from store.events.batches import Event
from store.events.writes import correct_event
from store.releases import record_release
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    ROWS_PER_WINDOW,
    cutoff_after,
    drifting_events,
    drifting_task,
    flip,
    settings,
)
from tests.integration.live_job import NUM_WINDOWS, ages_on, append, cells_of, copy_home, fill, fill_as_of, live, moment
from trainer.evaluation.fit_store import find_origins, recipe_folder
from trainer.monitoring.live_scoring import LiveScoring

TASK = drifting_task(name="live")
DELAYED = drifting_task(name="delayed", label_delay="PT30M")


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose fits are made by the first test that needs them."""
    return tmp_path_factory.mktemp("fits")


@pytest.fixture
def schema(engine: Engine, fits: Path) -> Schema:
    return fill(engine, TASK, fits)


@pytest.fixture
def home(schema: Schema, fits: Path, tmp_path: Path) -> Path:
    """A home of the test's own with these fits."""
    return copy_home(fits, tmp_path)


def window_of(number: int) -> list[Event]:
    return list(drifting_events(number, number + 1))


def test_labels_that_arrive_are_scored_by_the_fits_of_the_last_cutoffs(
    engine: Engine, schema: Schema, home: Path
) -> None:
    assert sorted(find_origins(recipe_folder(home, TASK.name, TASK.recipe))) == [cutoff_after(k) for k in range(3, 8)]
    append(engine, schema, window_of(8))
    assert live(engine, home).score_new_labels(moment(9)) == 2
    (cell,) = ages_on(engine, schema, 8).values()
    assert (cell.origin, cell.num_rows, cell.num_revisions) == (cutoff_after(7), ROWS_PER_WINDOW, ROWS_PER_WINDOW)
    assert cell.is_complete
    assert len(cell.scores) == ROWS_PER_WINDOW
    assert cell.tempered
    (naive,) = ages_on(engine, schema, 8, NAIVE).values()
    assert naive.loss > cell.loss


def test_nothing_is_scored_twice_not_even_after_a_restart(engine: Engine, schema: Schema, home: Path) -> None:
    append(engine, schema, window_of(8))
    job = live(engine, home)
    assert job.score_new_labels(moment(9)) == 2
    assert job.score_new_labels(moment(9)) == 0
    assert live(engine, home).score_new_labels(moment(9.5)) == 0
    assert live(engine, home).score_new_labels(moment(2000)) == 0


def test_a_cycle_finds_the_cells_done(engine: Engine, schema: Schema, home: Path) -> None:
    append(engine, schema, window_of(8))
    assert live(engine, home).score_new_labels(moment(9)) == 2
    before = cells_of(engine, schema)
    fill_as_of(engine, schema, home, 9)
    after = cells_of(engine, schema)
    assert {cell.origin for cell in after} - {cell.origin for cell in before} == {cutoff_after(8)}
    assert set(before) <= set(after)
    assert live(engine, home).score_new_labels(moment(9)) == 0


def test_a_first_look_is_closed_when_all_labels_are_due(engine: Engine, fits: Path, tmp_path: Path) -> None:
    schema = fill(engine, DELAYED, fits)
    home = copy_home(fits, tmp_path)
    append(engine, schema, window_of(8))
    job = live(engine, home)
    assert job.score_new_labels(moment(8.49)) == 2
    first = ages_on(engine, schema, 8)[1]
    assert (first.is_complete, first.num_rows) == (False, 74)
    assert job.score_new_labels(moment(9)) == 6, "of window 7 all labels are due by now"
    assert not ages_on(engine, schema, 8)[1].is_complete
    assert job.score_new_labels(moment(9.49)) == 0
    assert job.score_new_labels(moment(9.5)) == 2
    last = ages_on(engine, schema, 8)[1]
    assert (last.is_complete, last.num_rows) == (True, ROWS_PER_WINDOW)
    assert job.score_new_labels(moment(9.6)) == 0


def test_a_late_label_scores_its_window_again(engine: Engine, schema: Schema, home: Path) -> None:
    *early, last = window_of(8)
    late = replace(last, known_at=cutoff_after(11))
    append(engine, schema, [*early, late])
    job = live(engine, home)
    assert job.score_new_labels(moment(9)) == 2
    assert ages_on(engine, schema, 8)[1].num_rows == ROWS_PER_WINDOW - 1
    assert job.score_new_labels(moment(10.99)) == 0
    assert job.score_new_labels(moment(11)) == 2
    assert ages_on(engine, schema, 8)[1].num_rows == ROWS_PER_WINDOW


def test_a_correction_scores_its_window_again(engine: Engine, schema: Schema, home: Path) -> None:
    append(engine, schema, window_of(8))
    job = live(engine, home)
    job.score_new_labels(moment(9))
    before = ages_on(engine, schema, 8)[1]
    event = window_of(8)[0]
    with engine.begin() as connection:
        correct_event(connection, schema, flip(event), moment(10))
    assert job.score_new_labels(moment(9.99)) == 0
    assert job.score_new_labels(moment(10)) == 2
    after = ages_on(engine, schema, 8)[1]
    assert (after.num_rows, after.num_revisions) == (ROWS_PER_WINDOW, ROWS_PER_WINDOW + 1)
    assert after.loss != before.loss
    assert job.score_new_labels(moment(11)) == 0


def test_a_window_whose_rows_have_all_been_moved_away_has_no_cell(engine: Engine, schema: Schema, home: Path) -> None:
    (event, *_) = window_of(8)
    append(engine, schema, [event])
    job = live(engine, home)
    assert job.score_new_labels(moment(9)) == 2
    with engine.begin() as connection:
        correct_event(connection, schema, replace(event, at=cutoff_after(7)), moment(10))
    assert job.score_new_labels(moment(10)) == 4
    assert ages_on(engine, schema, 8) == {}
    assert {cell.num_revisions for cell in ages_on(engine, schema, 7).values()} == {ROWS_PER_WINDOW + 1}
    assert job.score_new_labels(moment(11)) == 0


def test_live_cells_of_numbers_equal_those_of_a_backtest(engine: Engine, fits: Path) -> None:
    task = drifting_task(name="numbers", target={"name": "y", "kind": "regression"})
    schema = fill(engine, task, fits, as_numbers=True)
    there = set(cells_of(engine, schema))
    with engine.begin() as connection:
        connection.execute(delete(error_cells))
    fill_as_of(engine, schema, fits, NUM_WINDOWS)
    by_backtest = set(cells_of(engine, schema))
    with engine.begin() as connection:
        connection.execute(delete(error_cells))
    assert live(engine, fits).score_new_labels(moment(NUM_WINDOWS)) == len(there)
    assert set(cells_of(engine, schema)) == there > by_backtest


def test_two_trainers_at_once_do_no_harm(engine: Engine, schema: Schema, home: Path, database_url: str) -> None:
    append(engine, schema, window_of(8))
    engines = [make_engine(database_url) for _ in range(4)]
    ready = threading.Barrier(len(engines))

    def look(own: Engine) -> int:
        ready.wait()
        return live(own, home).score_new_labels(moment(9))

    with ThreadPoolExecutor(len(engines)) as pool:
        assert max(pool.map(look, engines)) == 2
    together = cells_of(engine, schema)
    with engine.begin() as connection:
        connection.execute(delete(error_cells).where(error_cells.c.window == moment(8)))
    assert live(engine, home).score_new_labels(moment(9)) == 2
    assert cells_of(engine, schema) == together
    for own in engines:
        own.dispose()


def test_a_trainer_whose_clock_is_behind_takes_nothing_back(engine: Engine, schema: Schema, home: Path) -> None:
    append(engine, schema, window_of(8))
    assert live(engine, home).score_new_labels(moment(9)) == 2
    there = cells_of(engine, schema)
    assert live(engine, home).score_new_labels(moment(8.9)) == 0
    assert cells_of(engine, schema) == there


def test_a_broken_fit_is_skipped_with_one_warning_until_it_is_made_anew(
    engine: Engine, schema: Schema, home: Path
) -> None:
    folder = recipe_folder(home, TASK.name, TASK.recipe) / str(cutoff_after(7))
    whole = (folder / GRAPH_FILE).read_bytes()
    (folder / GRAPH_FILE).write_bytes(whole[:-100])
    append(engine, schema, window_of(8))
    job = live(engine, home)
    with capture_logs() as lines:
        assert [job.score_new_labels(moment(9)) for _ in range(3)] == [0, 0, 0]
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["fit.refused"]
    (folder / GRAPH_FILE).write_bytes(whole)
    manifest = folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes())
    assert job.score_new_labels(moment(9)) == 2


def test_a_version_of_another_recipe_is_scored_while_it_may_be_valid(
    engine: Engine, schema: Schema, home: Path
) -> None:
    wider = TASK.model_copy(update={"training": TASK.training.model_copy(update={"width": 16})})
    fill(engine, wider, home)
    append(engine, schema, window_of(8))
    job = live(engine, home)
    assert job.score_new_labels(moment(9)) == 2
    assert not ages_on(engine, schema, 8)
    verdict = {
        "cutoff": "2026-01-01T07:00:00Z",
        "recipe": TASK.recipe,
        "horizon": 2,
        "error_name": "log_loss",
        "ages": [{"age": 1, "limit": 1e9}],
    }
    with engine.begin() as connection:
        record_release(
            connection,
            schema.task_id,
            "1",
            action="release",
            valid_until=cutoff_after(9),
            actor="trainer",
            reason="a test",
            now=moment(7),
            verdict=decode_verdict(verdict),
        )
    assert job.score_new_labels(moment(10)) == 0, "its last labels have been due for a window"
    assert job.score_new_labels(moment(9.9)) == 2
    assert ages_on(engine, schema, 8)[1].origin == cutoff_after(7)


def test_only_windows_that_a_kept_fit_needs_are_read(engine: Engine, schema: Schema, home: Path) -> None:
    append(engine, schema, drifting_events(8, 12))
    with engine.begin() as connection:
        connection.execute(delete(error_cells))
    with capture_logs() as lines:
        live(engine, home).score_new_labels(moment(12))
    read = [line["window"] for line in lines if line["event"] == "cells.scored"]
    assert read == [f"2026-01-01T{hour:02}:00:00Z" for hour in range(3, 9)]


def test_a_look_is_rested_from_ten_times_as_long_as_it_took(engine: Engine, schema: Schema, home: Path) -> None:
    job = live(engine, home)
    job.tick(moment(8))
    append(engine, schema, window_of(8))
    job.tick(moment(9))
    assert not ages_on(engine, schema, 8)
    job._rest_until = 0.0
    job.tick(moment(9))
    assert ages_on(engine, schema, 8)


def test_a_stop_ends_a_look_between_two_fits(engine: Engine, schema: Schema, home: Path) -> None:
    append(engine, schema, window_of(8))
    stopping = threading.Event()
    stopping.set()
    assert LiveScoring(engine, settings(home), stopping).score_new_labels(moment(9)) == 0
    assert not ages_on(engine, schema, 8)


def test_without_postgresql_the_job_says_so_once_and_waits(tmp_path: Path) -> None:
    nowhere = make_engine(f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing")
    job = live(nowhere, tmp_path)
    with capture_logs() as lines:
        for _ in range(3):
            job._rest_until = 0.0
            job.tick(moment(9))
    assert [line["event"] for line in lines] == ["live.waiting"]
    nowhere.dispose()


def test_a_task_whose_look_fails_keeps_no_other_from_being_scored(
    engine: Engine, schema: Schema, fits: Path, tmp_path: Path
) -> None:
    failing = fill(engine, DELAYED, fits)  # the first by its name
    home = copy_home(fits, tmp_path)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE error_cells ADD CHECK (task_id <> {failing.task_id}) NOT VALID"))
    for one in (failing, schema):
        append(engine, one, window_of(8))
    with capture_logs() as lines:
        live(engine, home).tick(moment(9))
    assert [line["task"] for line in lines if line["event"] == "live.failed"] == [failing.task.name]
    assert ages_on(engine, schema, 8)


def test_the_trainer_process_loads_neither_torch_nor_mlflow() -> None:
    code = "import sys, trainer.scheduling.scheduler; print(sorted({'torch', 'mlflow', 'pandas'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
