"""Replays of the drifting task: what each cutoff knew, what it would have served, and how figures are computed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from sqlalchemy import Engine, func, select

from benchmarks.replay_figures import pooled_figures, replay_figures
from benchmarks.result_files import Figure, Label
from cli.reports.replay import held_cutoffs, save_pictures, summary, windows_table
from contracts.clock import format_moment
from contracts.errors import CycleError
from contracts.verdict import COUNTED_WINDOWS, first_failure
from store.database import error_cells, releases
from store.events.writes import append_events, correct_event
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
    settings,
)
from trainer.data.snapshot import Reading, read
from trainer.evaluation.backtest import backtest
from trainer.replay.replay import RIVALS, Replay, reading_as_of, replay
from trainer.replay.report import (
    as_document,
    closings,
    errors_by_horizon,
    errors_on_window,
    find_outcomes,
    inside_band,
    paired_difference,
    realised_coverage,
    served_outcomes,
)

FORM = {
    "task",
    "windows",
    "cells",
    "inside_band",
    "coverage",
    "error_inside_horizon",
    "error_beyond_horizon",
    "closings",
}


def read_all(engine: Engine, schema: Schema, num_windows: int) -> Reading:
    """All that is known when `num_windows` windows are over."""
    return read(engine, schema, cutoff_after(num_windows), now())


def walk(reading: Reading, home: Path, **how: Any) -> Replay:
    how = {"rivals": ()} | how
    return replay(reading, settings=settings(home), device=torch.device("cpu"), report=Story(), **how)


@pytest.fixture
def schema(engine: Engine) -> Schema:
    return define(engine, drifting_task(), 12)


def test_windows_are_served_once_enough_of_them_are_known(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    walked = walk(read_all(engine, schema, 12), tmp_path)
    assert [cutoff.origin for cutoff in walked.cutoffs] == [cutoff_after(k) for k in range(1, 12)]
    assert [cutoff.released for cutoff in walked.cutoffs[:4]] == [None, None, None, "1"]
    assert [cutoff.horizon for cutoff in walked.cutoffs[4:]] == [2] * 7
    assert walked.cutoffs[-1].served == ("8", cutoff_after(11))
    assert errors_on_window(walked, walked.cutoffs[2])["gi"] is None
    served = walked.cells[cutoff_after(11), cutoff_after(11), "gi"]
    assert errors_on_window(walked, walked.cutoffs[-1])["gi"] == served.loss


def test_a_replay_scores_and_judges_as_a_backtest_does(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(target={"name": "y", "kind": "regression"}), 9, as_numbers=True)
    walked = walk(read_all(engine, schema, 9), tmp_path / "replay")
    cells, _ = backtest(
        engine, schema, cutoff_after(9), settings=settings(tmp_path / "backtest"), now=now, report=Story()
    )
    assert len(cells) == 16
    for cell in cells:
        replayed = walked.cells[cell.origin, cell.window, cell.method]
        assert replayed.metric == pytest.approx(cell.metric, rel=1e-4)
        assert (replayed.num_rows, replayed.num_revisions) == (cell.num_rows, cell.num_revisions)


def test_nothing_of_a_replay_reaches_the_tables(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    assert walk(read_all(engine, schema, 12), tmp_path).releases
    with engine.connect() as connection:
        for table in (error_cells, releases):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_past_cutoff_rebuilds_its_digest_despite_later_corrections(
    engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    before = walk(read_all(engine, schema, 10), tmp_path)
    corrected_at = START + 10.5 * HOUR
    with engine.begin() as connection:
        for event in list(drifting_events(2, 3))[:40]:
            other = replace(event, label="no" if event.label == "yes" else "yes", numbers=(9.0,))
            assert correct_event(connection, schema, other, corrected_at) == "corrected"
    reading = read_all(engine, schema, 12)
    after = walk(reading, tmp_path)
    told = len(before.cutoffs)
    assert [one.rows_digest for one in after.cutoffs[:told]] == [one.rows_digest for one in before.cutoffs]
    assert [one.decisions for one in after.cutoffs[:told]] == [one.decisions for one in before.cutoffs]
    uncorrected = reading_as_of(reading, cutoff_after(10)).known(cutoff_after(10))
    assert uncorrected.digest == reading.known(cutoff_after(10)).digest
    known = reading.events.as_of(cutoff_after(11))
    assert (known.numbers[:, 0] == 9.0).sum() == 40
    # The error on the corrected window is told as it is known now.
    place = (cutoff_after(2), cutoff_after(2), "gi")
    assert after.cells[place].num_revisions == ROWS_PER_WINDOW + 40
    assert after.cells[place].loss > before.cells[place].loss


def test_one_event_of_a_wrong_century_makes_no_walk_of_centuries(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 8)
    ancient = replace(next(drifting_events(0, 1)), event_id="ancient", at=cutoff_after(-1_000_000))
    with engine.begin() as connection:
        append_events(connection, schema, [ancient], START)
    walked = walk(read_all(engine, schema, 8), tmp_path)
    told = [cutoff.origin for cutoff in walked.cutoffs]
    assert told == [cutoff_after(k) for k in range(1, 8)]
    assert walked.releases


def test_labels_that_come_late_are_not_known_before(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(label_delay="PT90M"), 0)
    delay = 90 * 60 * 1_000_000
    late = [replace(event, known_at=event.at + delay) for event in drifting_events(0, 12)]
    with engine.begin() as connection:
        append_events(connection, schema, late, START)
    walked = walk(read_all(engine, schema, 14), tmp_path)
    assert walked.cutoffs[0].num_rows == 0
    assert walked.cutoffs[1].num_rows == pytest.approx(ROWS_PER_WINDOW / 2, abs=1)
    missing = [cutoff.decisions[-1].reason for cutoff in walked.cutoffs[2:5]]
    assert missing == ["3 more complete windows are needed"] * 3
    assert len(find_outcomes(walked)) > 0
    assert all(
        outcome.window + HOUR // timedelta(microseconds=1) + delay <= cutoff_after(14)
        for outcome in find_outcomes(walked)
    )


def test_one_window_of_flipped_labels_closes_a_horizon_and_holds_the_next_cutoff(
    engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 12)
    flipped = [replace(event, label="no" if event.label == "yes" else "yes") for event in drifting_events(12, 13)]
    with engine.begin() as connection:
        append_events(connection, schema, flipped, START)
    add_windows(engine, schema, 13, 16)
    walked = walk(read_all(engine, schema, 16), tmp_path)
    shut = closings(walked)
    assert shut[0].valid_until == cutoff_after(12)
    by_origin = {cutoff.origin: cutoff for cutoff in walked.cutoffs}
    failure = first_failure(by_origin[cutoff_after(13)].decisions)
    assert failure is not None
    assert failure.rule == "newest_window"
    assert by_origin[cutoff_after(13)].served is None
    assert as_document(walked)["closings"][0]["window"] == format_moment(cutoff_after(12))
    assert any("is suspect" in sentence for sentence in held_cutoffs(walked))
    assert by_origin[cutoff_after(14)].released is not None


def test_rivals_are_fitted_at_the_origin_of_what_is_served(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    walked = walk(read_all(engine, schema, 12), tmp_path, rivals=RIVALS)
    errors = errors_on_window(walked, walked.cutoffs[-1])
    assert set(errors) == {"gi", "baseline", "last_window", "naive", "gbdt"}
    assert None not in errors.values()
    ours, naive = errors["gi"], errors["naive"]
    assert ours is not None
    assert naive is not None
    assert ours < naive
    assert set(walked.cutoffs[-1].seconds) == {"fit", "score", "judge", *RIVALS}


def test_the_document_has_the_agreed_form(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    walked = walk(read_all(engine, schema, 12), tmp_path)
    document = json.loads(json.dumps(as_document(walked), allow_nan=False))
    assert set(document) == FORM
    assert set(document["windows"][0]) == {"origin", "version", "horizon", "verdict", "metric", "seconds"}
    assert set(document["cells"][0]) == {"age", "window", "expected", "low", "high", "realised", "num_rows"}
    assert document["coverage"]["nominal"] == 0.9
    assert document["windows"][-1]["origin"] == format_moment(cutoff_after(11))
    assert document["windows"][-1]["verdict"] == "released"


def test_figures_are_means_over_what_was_promised(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(guard={"max_age": 3, "tolerance": 0.2, "min_rows": 100}), 16)
    walked = walk(read_all(engine, schema, 16), tmp_path)
    outcomes = find_outcomes(walked)
    assert len({(outcome.origin, outcome.age) for outcome in outcomes}) == len(outcomes)
    assert inside_band(outcomes) == fmean(one.low <= one.realised <= one.high for one in outcomes)
    covered = [(one.covered, one.num_rows) for one in outcomes if one.covered is not None]
    assert realised_coverage(outcomes) == pytest.approx(
        sum(share * rows for share, rows in covered) / sum(rows for _, rows in covered)
    )
    chosen = {cutoff.origin for cutoff in walked.cutoffs if 0 < cutoff.horizon < 3}
    assert chosen, "this test needs a horizon shorter than max_age"
    inside, beyond = errors_by_horizon(walked, outcomes)
    assert inside == fmean(one.realised for one in outcomes if one.origin in chosen and one.is_inside_horizon)
    assert beyond == fmean(one.realised for one in outcomes if one.origin in chosen and not one.is_inside_horizon)
    # The boundary turns, so older models are worse on the same windows.
    difference = paired_difference(walked, outcomes)
    assert difference is not None
    assert difference > 0


def test_a_replay_is_recorded_with_every_window_and_method(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    walked = walk(read_all(engine, schema, 12), tmp_path, rivals=RIVALS)
    figures = {figure.identity: figure for figure in replay_figures("drifting", walked, 9.0)}
    last = format_moment(walked.cutoffs[-1].origin)[:16]
    errors = errors_on_window(walked, walked.cutoffs[-1])
    for method, error in errors.items():
        of: dict[str, Label] = {"stream": "drifting", "window": last, "method": method}
        found = figures[Figure(of=of, measure="log_loss", unit="nats", value=None).identity]
        assert found.value == error
    assert {figure.of["method"] for figure in figures.values() if "method" in figure.of} == set(errors)
    assert sum(figure.measure == "horizon" for figure in figures.values()) == len(walked.cutoffs)
    (band,) = (figure for figure in figures.values() if figure.measure == "in_band")
    assert band.value == 100 * (inside_band(find_outcomes(walked)) or 0)
    assert len(replay_figures("drifting", walked, 9.0)) == len(figures)
    assert {figure.of["stream"] for figure in pooled_figures([walked, walked])} == {"all"}


def test_a_replay_can_begin_late_and_tells_the_same_of_a_cutoff(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    reading = read_all(engine, schema, 12)
    whole, late = walk(reading, tmp_path), walk(reading, tmp_path, first=cutoff_after(8) - 1)
    assert COUNTED_WINDOWS > 12  # the matrix of the late one begins with the first event too
    assert [cutoff.origin for cutoff in late.cutoffs] == [cutoff_after(k) for k in range(8, 12)]
    assert [cutoff.decisions for cutoff in late.cutoffs] == [cutoff.decisions for cutoff in whole.cutoffs[-4:]]


def test_without_events_or_windows_there_is_nothing_to_replay(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 0)
    with pytest.raises(CycleError, match="no event is known"):
        walk(read_all(engine, schema, 3), tmp_path)
    add_windows(engine, schema, 0, 3)
    with pytest.raises(CycleError, match="no window begins after a cutoff"):
        walk(read_all(engine, schema, 1), tmp_path)
    with pytest.raises(CycleError, match="no window begins after a cutoff"):
        walk(read_all(engine, schema, 3), tmp_path, first=cutoff_after(5))


def test_tables_sentences_and_pictures_tell_of_every_window(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    walked = walk(read_all(engine, schema, 12), tmp_path / "home")
    table = windows_table(walked)
    assert table.row_count == len(walked.cutoffs)
    assert len(served_outcomes(walked)) == sum(cutoff.served is not None for cutoff in walked.cutoffs)
    assert _starts(summary(walked)) == ["Inside", "Inside", "Models", "Horizons", "Seconds:"]
    save_pictures(walked, tmp_path / "pictures")
    files = sorted(file.name for file in (tmp_path / "pictures").iterdir())
    assert files == ["expected_and_realised.png", "matrix.png"]


def _starts(sentences: Sequence[str]) -> list[str]:
    return [sentence.split(" ")[0] for sentence in sentences]
