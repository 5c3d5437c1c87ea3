"""Which cells a cycle needs, and what one costs, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from contracts.errors import CycleError
from contracts.verdict import EXTRA_WINDOWS
from store.error_cells import NAIVE
from tests.unit.tiny_events import HOUR, rows, task
from trainer.data.windows import (
    complete_until,
    in_window,
    needed_pairs,
    num_like_today,
    pairs_to_score,
    target_windows,
)
from trainer.evaluation.calibration import LEAST_PROBABILITY, TEMPERATURES, nonconformity, sketch
from trainer.evaluation.scoring import (
    make_cell,
    row_errors,
    score,
    score_naive,
)
from trainer.methods.naive_answer import naive_answer


def test_a_window_is_complete_once_all_its_labels_are_due() -> None:
    late = task(label_delay="PT30M")
    assert complete_until(late, 10 * HOUR) == 9 * HOUR
    assert complete_until(task(), 10 * HOUR) == 10 * HOUR


def test_target_windows_are_the_newest_complete_ones_that_have_rows() -> None:
    known = rows([h * HOUR for h in (0, 1, 2, 4, 5)], [0.0] * 5)
    late = task(label_delay="PT30M")
    assert EXTRA_WINDOWS == 1
    assert target_windows(late, known, 6 * HOUR) == [1 * HOUR, 2 * HOUR, 4 * HOUR]
    assert target_windows(task(), known, 6 * HOUR) == [2 * HOUR, 4 * HOUR, 5 * HOUR]


def test_every_age_is_needed_on_every_target_window() -> None:
    pairs = needed_pairs([5 * HOUR, 6 * HOUR], task().clock, task().guard)
    assert set(pairs) == {(o * HOUR, w * HOUR) for o, w in ((5, 5), (4, 5), (3, 5), (6, 6), (5, 6), (4, 6))}


def test_an_event_on_a_boundary_is_scored_in_the_window_that_it_begins() -> None:
    found = in_window(rows([HOUR - 1, HOUR, 2 * HOUR - 1, 2 * HOUR], [0.0] * 4), HOUR, task().clock)
    assert found.at.tolist() == [HOUR, 2 * HOUR - 1]


def test_log_loss_and_error_rate_count_a_class_that_the_fit_never_saw() -> None:
    labelled = rows([0, 1, 2], [0, 1, 2], ("a", "b", "new"))
    outputs = [np.array([[0.2, 0.8], [0.25, 0.75], [0.5, 0.5]], np.float32)]
    loss, error = score(task(), ("b", "a"), outputs, labelled)
    expected = (-math.log(0.8) - math.log(0.25) - math.log(LEAST_PROBABILITY)) / 3
    assert loss == pytest.approx(expected, rel=1e-6)
    assert error == pytest.approx(2 / 3)


def test_regression_costs_the_gaussian_likelihood_and_the_absolute_error() -> None:
    outputs = [np.array([1.0, 2.0], np.float32), np.array([1.0, 2.0], np.float32)]
    loss, error = score(task("regression"), (), outputs, rows([0, 1], [2.0, 2.0]))
    half_log = 0.5 * math.log(2 * math.pi)
    assert loss == pytest.approx((half_log + 0.5 + half_log + math.log(2.0)) / 2)
    assert error == pytest.approx(0.5)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_in_another_unit_the_likelihood_is_shifted_by_its_logarithm(unit: float) -> None:
    outputs = [np.array([1.0, 2.0], np.float32), np.array([1.0, 2.0], np.float32)]
    loss, error = score(task("regression"), (), outputs, rows([0, 1], [2.0, 2.0]))
    scaled = [output * np.float32(unit) for output in outputs]
    found, found_error = score(task("regression"), (), scaled, rows([0, 1], [2 * unit, 2 * unit]))
    assert found == pytest.approx(loss + math.log(unit))
    assert found_error == pytest.approx(error * unit)


def test_answers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(CycleError, match="not finite"):
        score(task(), ("a", "b"), [np.array([[np.nan, 1.0]], np.float32)], rows([0], [0], ("a", "b")))


def test_naive_says_the_shares_of_the_newest_window_that_the_origin_knew() -> None:
    known = rows([0, 1, HOUR, HOUR + 1, HOUR + 2], [0, 0, 1, 1, 0], ("a", "b"))
    target = rows([2 * HOUR], [1], ("a", "b"))
    given = naive_answer(task(), known, ("a", "b"))
    cell = score_naive(task(), given, ("a", "b"), target, origin=2 * HOUR, window=2 * HOUR)
    assert (cell.method, cell.num_rows, cell.metric) == (NAIVE, 1, 0.0)
    assert cell.loss == pytest.approx(-math.log(2.5 / 4), rel=1e-5)


def test_naive_of_a_number_is_the_mean_of_the_newest_window() -> None:
    known = rows([0, HOUR, HOUR + 1], [100.0, 2.0, 4.0])
    given = naive_answer(task("regression"), known, ())
    cell = score_naive(task("regression"), given, (), rows([2 * HOUR], [5.0]), origin=2 * HOUR, window=2 * HOUR)
    assert cell.metric == pytest.approx(2.0)
    given = naive_answer(task("regression"), replace(known, labels=np.array([1.0, 7.0, 7.0])), ())
    same = score_naive(task("regression"), given, (), rows([2 * HOUR], [7.0]), origin=2 * HOUR, window=2 * HOUR)
    assert same.metric == 0.0


def test_a_cell_of_classes_holds_its_scores_and_its_losses_by_temperature() -> None:
    """At the graph's own temperature the tempered loss is the cell's."""
    temperature = TEMPERATURES[18]
    outputs = [np.array([[0.2, 0.8], [0.25, 0.75]], np.float32)]
    labelled = rows([0, 1], [0, 1], ("a", "b"))
    cell = make_cell(
        task(),
        ("b", "a"),
        outputs,
        labelled,
        origin=2 * HOUR,
        window=3 * HOUR,
        method="gi",
        num_revisions=5,
        is_complete=False,
        temperature=temperature,
    )
    assert (cell.origin, cell.window, cell.method, cell.num_rows) == (2 * HOUR, 3 * HOUR, "gi", 2)
    assert (cell.num_revisions, cell.is_complete) == (5, False)
    assert (cell.loss, cell.metric) == score(task(), ("b", "a"), outputs, labelled)
    assert cell.tempered[18] == pytest.approx(cell.loss, rel=1e-6)
    assert cell.scores == sketch(nonconformity(task(), ("b", "a"), outputs, labelled, temperature))


def test_a_cell_of_numbers_holds_scores_and_no_temperatures() -> None:
    outputs = [np.array([1.0, 2.0], np.float32), np.array([0.5, 2.0], np.float32)]
    labelled = rows([0, 1], [2.0, 2.0])
    cell = make_cell(task("regression"), (), outputs, labelled, origin=0, window=HOUR, method="gbdt")
    assert (cell.scores, cell.tempered, cell.method) == ((0.0, 2.0), (), "gbdt")


def test_naive_needs_no_sketches() -> None:
    known, target = rows([0, 1], [0, 1], ("a", "b")), rows([2 * HOUR], [1], ("a", "b"))
    given = naive_answer(task(), known, ("a", "b"))
    cell = score_naive(task(), given, ("a", "b"), target, origin=2 * HOUR, window=2 * HOUR, num_revisions=3)
    assert (cell.scores, cell.tempered, cell.num_revisions) == ((), (), 3)


def test_row_errors_are_what_the_tasks_error_is_the_mean_of() -> None:
    outputs = [np.array([[0.2, 0.8], [0.25, 0.75]], np.float32)]
    labelled = rows([0, 1], [0, 1], ("a", "new"))
    errors = row_errors(task(), ("a", "b"), outputs, labelled)
    assert errors.tolist() == pytest.approx([-math.log(0.2), -math.log(LEAST_PROBABILITY)])
    numbers = [np.array([1.0, 2.0], np.float32), np.array([0.5, 2.0], np.float32)]
    assert row_errors(task("regression"), (), numbers, rows([0, 1], [2.0, -2.0])).tolist() == [1.0, 4.0]


def test_every_age_is_scored_on_the_newest_windows() -> None:
    known = rows([k * HOUR for k in range(9)], [0.0] * 9, ("a",))
    pairs = pairs_to_score(task(), known, 9 * HOUR, 4)
    assert pairs == sorted(needed_pairs([k * HOUR for k in (5, 6, 7, 8)], task().clock, task().guard), key=by_window)


def test_an_origin_after_an_empty_window_is_scored_only_where_too_few_others_are_there() -> None:
    known = rows([k * HOUR for k in (0, 1, 2, 3, 4, 6, 7, 8, 9)], [0.0] * 9, ("a",))
    pairs = pairs_to_score(task(), known, 10 * HOUR, 3)
    assert 6 * HOUR not in {origin for origin, _ in pairs}
    assert 6 * HOUR not in {window for _, window in pairs}
    for age in range(3):
        windows = [window for origin, window in pairs if window - origin == age * HOUR]
        assert len(windows) >= 2
        assert all((window, window) in pairs for window in windows)
    # Every second window is empty, so no window follows one with rows.
    sparse = rows([2 * k * HOUR for k in range(6)], [0.0] * 6, ("a",))
    found = pairs_to_score(task(), sparse, 11 * HOUR, 2)
    assert found == sorted(needed_pairs([8 * HOUR, 10 * HOUR], task().clock, task().guard), key=by_window)


def test_windows_whose_origins_know_too_few_rows_are_not_like_today() -> None:
    even = rows([k * HOUR for k in range(10)], [0.0] * 10, ("a",))
    # Half of the rows are known at 5:00. With three ages, the window at 7:00 is the first without an earlier origin.
    assert num_like_today(task(), even, 10 * HOUR) == 3
    assert num_like_today(task(label_delay="PT30M"), even, 10 * HOUR) == 2
    young = rows([0, HOUR, *(2 * HOUR + k for k in range(10)), 3 * HOUR], [0.0] * 13, ("a",))
    assert num_like_today(task(), young, 4 * HOUR) == 0


def by_window(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1], -pair[0]
