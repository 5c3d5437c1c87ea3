"""The horizon rule by hand-computed cells."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.clock import Clock
from contracts.task import Guard
from contracts.verdict import COUNTED_WINDOWS, Comparison
from store.error_cells import NAIVE, Cell
from trainer.evaluation.bands import adapted_coverage, mean_upper_bound, predictive_band, predictive_limit
from trainer.evaluation.horizon import (
    HorizonRule,
    HorizonVerdict,
    after_empty_windows,
    better_method,
    compare_rivals,
    judge_horizon,
)

CLOCK = Clock(window=10_000_000, offset=0, span=260_000_000)


def cells(errors: dict[int, list[float]], naive: float = 1.0) -> list[Cell]:
    """`errors[age][i]` is the error at that age on target window i."""
    found = []
    for age, row in errors.items():
        for index, error in enumerate(row):
            window = (100 + index) * CLOCK.window
            origin = window - age * CLOCK.window
            found.append(Cell(origin, window, "gi", 50, error, error / 2))
            found.append(Cell(origin, window, NAIVE, 50, naive, naive))
    return found


def judge(errors: dict[int, list[float]], naive: float = 1.0, **guard: float) -> HorizonVerdict:
    return judge_horizon(
        cells(errors, naive),
        HorizonRule(method="gi", error_name="log_loss", clock=CLOCK, guard=Guard.model_validate(guard)),
    )


def test_too_few_windows_release_nothing_and_say_how_many_are_missing() -> None:
    verdict = judge({0: [0.5, 0.5]})
    assert (verdict.horizon, verdict.missing_windows) == (0, 1)
    assert verdict.reason == "1 more complete window is needed"


def test_the_upper_bound_is_the_hand_computed_t_bound() -> None:
    # differences 0.01, 0.02, 0.03: mean 0.02, s = 0.01, t(0.95, 2) = 2.919986
    assert mean_upper_bound([0.01, 0.02, 0.03]) == pytest.approx(0.02 + 2.919986 * 0.01 / math.sqrt(3), abs=1e-7)


def test_the_band_is_the_hand_computed_predictive_interval() -> None:
    low, high = predictive_band([1.0, 2.0, 3.0], discount=1)
    half = 2.919986 * 1.0 * math.sqrt(1 + 1 / 3)
    assert low == pytest.approx(2 - half, abs=1e-6)
    assert high == pytest.approx(2 + half, abs=1e-6)


def test_a_band_whose_level_wanders_is_the_hand_computed_one_of_the_steady_model() -> None:
    # δ = 0.5. ω: 1, 1.5, 1.75. m: 1, 5/3, 17/7. s² = ((1)²/3 + (4/3)² / (7/3)) / 2 = 23/42.
    low, high = predictive_band([1.0, 2.0, 3.0], discount=0.5)
    half = 2.919986 * math.sqrt(23 / 42 * (1 + 2 / 1.75))
    assert low == pytest.approx(17 / 7 - half, abs=1e-6)
    assert high == pytest.approx(17 / 7 + half, abs=1e-6)
    _, later = predictive_band([1.0, 2.0, 3.0], discount=0.5, lead=3)
    assert later == pytest.approx(17 / 7 + 2.919986 * math.sqrt(23 / 42 * (1 + 4 / 1.75)), abs=1e-6)


def test_a_hard_window_shared_by_all_ages_is_not_taken_for_ageing() -> None:
    hard = [0.5, 0.9, 0.5, 0.5]
    verdict = judge({0: hard, 1: [error + 0.01 for error in hard]}, max_age=2)
    assert verdict.horizon == 2


def test_the_horizon_ends_at_the_first_age_that_grows_too_much() -> None:
    verdict = judge({0: [0.5] * 4, 1: [0.52] * 4, 2: [0.6] * 4, 3: [0.5] * 4}, max_age=4)
    assert verdict.horizon == 2
    assert not verdict.ages[2].is_valid
    assert verdict.ages[2].increase == pytest.approx(0.1)
    assert verdict.ages[2].allowed == pytest.approx(0.05)


def test_windows_without_events_before_the_cutoff_count_as_age() -> None:
    verdict = judge({0: [0.50] * 4, 1: [0.51] * 4, 2: [0.52] * 4, 3: [0.53] * 4}, max_age=4)
    assert after_empty_windows(verdict, 0) == verdict
    shorter = after_empty_windows(verdict, 3)
    assert (shorter.horizon, shorter.reason) == (1, None)
    assert [(age.age, age.num_windows) for age in shorter.ages] == [(0, 4)]
    assert shorter.ages[0].mean == pytest.approx(0.53)
    nothing = after_empty_windows(verdict, 4)
    assert (nothing.horizon, nothing.ages) == (0, verdict.ages)
    assert nothing.reason == "no event of the newest 4 windows is known, and the validated horizon is 4 windows"


def test_what_silence_ends_is_told_by_the_ages_that_the_matrix_has() -> None:
    verdict = judge({0: [0.50] * 4, 1: [0.80] * 4}, max_age=4)
    nothing = after_empty_windows(verdict, 1)
    assert nothing.reason == "no event of the newest 1 window is known, and the validated horizon is 1 window"
    assert [(age.age, age.is_valid) for age in nothing.ages] == [(0, True), (1, False)]
    assert nothing.ages[1].growth == pytest.approx(0.3)


def test_an_age_that_does_not_beat_naive_ends_the_horizon() -> None:
    assert judge({0: [0.5] * 4}, naive=0.5).horizon == 0
    assert judge({0: [0.5] * 4}, naive=0.51, max_age=1).horizon == 1


def test_max_error_is_an_absolute_limit() -> None:
    assert judge({0: [0.5] * 4}, max_error=0.49).horizon == 0


def test_unpaired_windows_do_not_count_as_pairs() -> None:
    verdict = judge({0: [0.5] * 3, 1: [0.5] * 3}, min_pairs=3)
    shifted = [
        Cell(cell.origin + 2 * CLOCK.window, cell.window + 2 * CLOCK.window, cell.method, 50, cell.loss, cell.metric)
        if CLOCK.age(cell.origin, cell.window) == 1
        else cell
        for cell in cells({0: [0.5] * 3, 1: [0.5] * 3})
    ]
    assert verdict.horizon == 2
    fewer = judge_horizon(
        shifted, HorizonRule(method="gi", error_name="log_loss", clock=CLOCK, guard=Guard(min_pairs=3))
    )
    assert fewer.horizon == 1
    assert fewer.ages[1].reason == "only 1 of 3 windows to compare on"


def test_regression_is_judged_by_its_mean_absolute_error() -> None:
    verdict = judge_horizon(
        cells({0: [0.5] * 3}),
        HorizonRule(method="gi", error_name="mean_absolute_error", clock=CLOCK, guard=Guard(max_age=1)),
    )
    assert verdict.ages[0].mean == 0.25


@given(
    st.lists(st.lists(st.floats(0.1, 0.9), min_size=4, max_size=4), min_size=1, max_size=4),
    st.floats(0.01, 1),
    st.floats(1, 5),
)
def test_the_horizon_never_shrinks_with_more_tolerance(rows: list[list[float]], tolerance: float, more: float) -> None:
    errors = dict(enumerate(rows))
    assert judge(errors, tolerance=tolerance).horizon <= judge(errors, tolerance=tolerance * more).horizon


def test_errors_of_windows_that_are_not_complete_do_not_count() -> None:
    first_look = [replace(cell, is_complete=False) for cell in cells({0: [0.5] * 3})]
    verdict = judge_horizon(first_look, HorizonRule(method="gi", error_name="log_loss", clock=CLOCK, guard=Guard()))
    assert (verdict.horizon, verdict.missing_windows) == (0, 3)


def test_the_mean_is_held_to_naive_on_the_windows_that_both_were_scored_on() -> None:
    ours = cells({0: [0.5, 0.5, 0.9]}, naive=0.6)
    without_the_last = [cell for cell in ours if cell.method == "gi" or cell.window < 102 * CLOCK.window]
    guard = Guard(max_age=1)
    for matrix, horizon in ((ours, 0), (without_the_last, 1)):
        verdict = judge_horizon(matrix, HorizonRule(method="gi", error_name="log_loss", clock=CLOCK, guard=guard))
        assert verdict.horizon == horizon
    alone = [cell for cell in ours if cell.method == "gi"]
    verdict = judge_horizon(alone, HorizonRule(method="gi", error_name="log_loss", clock=CLOCK, guard=guard))
    assert (verdict.horizon, verdict.reason) == (0, "naive has no errors to compare with at this age")


def test_the_limit_is_the_hand_computed_one_sided_bound() -> None:
    # mean 2, s = 1, t(0.99, 2) = 6.964557
    assert predictive_limit([1.0, 2.0, 3.0]) == pytest.approx(2 + 6.964557 * math.sqrt(1 + 1 / 3), abs=1e-5)


def better(theirs: dict[str, dict[int, list[float]]], horizon: int = 1) -> Comparison | None:
    matrix = cells({0: [0.5, 0.6, 0.7], 1: [0.6, 0.7, 0.8]})
    for rival, errors in theirs.items():
        matrix += [replace(cell, method=rival) for cell in cells(errors) if cell.method == "gi"]
    return better_method(compare(matrix, tuple(theirs), horizon))


def compare(matrix: list[Cell], rivals: tuple[str, ...], horizon: int = 1) -> list[Comparison]:
    return compare_rivals(
        matrix, method="gi", rivals=rivals, error_name="log_loss", clock=CLOCK, guard=Guard(), horizon=horizon
    )


def test_every_rival_is_told_of_beside_ours_whether_it_is_better_or_not() -> None:
    matrix = cells({0: [0.5, 0.6, 0.7]})
    for rival, errors in {"gbdt": [0.8, 0.9, 1.0], "baseline": [0.5, 0.6]}.items():
        matrix += [replace(cell, method=rival) for cell in cells({0: errors}) if cell.method == "gi"]
    (gbdt,) = compare(matrix, ("gbdt", "baseline"))  # two windows of baseline are too few
    assert (gbdt.method, gbdt.num_windows, gbdt.is_better) == ("gbdt", 3, False)
    assert gbdt.error == pytest.approx(0.6)
    assert gbdt.difference == pytest.approx(0.3)


def test_a_rival_is_compared_on_the_same_rows_only() -> None:
    matrix = cells({0: [0.5, 0.6, 0.7, 9.0]})
    for rival in ("gbdt", "baseline"):
        matrix += [replace(cell, method=rival) for cell in cells({0: [0.8, 0.9, 1.0, 1.0]}) if cell.method == "gi"]
    newest = max(cell.window for cell in matrix)
    stale = [
        replace(cell, num_rows=cell.num_rows - 1) if (cell.method, cell.window) == ("gbdt", newest) else cell
        for cell in matrix
    ]
    gbdt, baseline = compare(stale, ("gbdt", "baseline"))
    assert (gbdt.num_windows, baseline.num_windows) == (3, 4)
    assert [gbdt.error, baseline.error] == pytest.approx([0.6, 2.7])


def test_a_clearly_better_rival_is_named_with_its_figures() -> None:
    found = better({"gbdt": {0: [0.39, 0.50, 0.61]}})  # less by 0.11, 0.10, 0.09; t(0.95, 2) = 2.919986
    assert found is not None
    assert (found.method, found.num_windows) == ("gbdt", 3)
    assert found.error == pytest.approx(0.6)
    assert found.difference == pytest.approx(-0.10)
    assert found.upper == pytest.approx(-0.10 + 2.919986 * 0.01 / math.sqrt(3), abs=1e-7)


def test_the_best_of_several_better_rivals_is_named() -> None:
    found = better({"gbdt": {0: [0.4, 0.5, 0.6]}, "baseline": {0: [0.3, 0.4, 0.5]}})
    assert found is not None
    assert found.method == "baseline"


def test_several_rivals_are_each_held_to_a_stricter_bound() -> None:
    lucky = {0: [0.45, 0.58, 0.66]}  # mean −0.0367, s = 0.0153: beyond the bound alone, but not as one of three
    worse = {0: [0.9, 0.9, 0.9]}
    assert better({"gbdt": lucky}) is not None
    assert better({"gbdt": lucky, "baseline": worse, "last_window": worse}) is None


def test_a_gain_below_one_percent_or_on_too_few_windows_is_none() -> None:
    assert better({"gbdt": {0: [0.495, 0.595, 0.695]}}) is None
    assert better({"gbdt": {0: [0.1, 0.1]}}) is None
    assert better({}) is None


def test_a_target_window_counts_once_by_its_mean_over_the_ages_inside_the_horizon() -> None:
    rival = {"gbdt": {0: [0.4, 0.5, 0.6], 1: [0.8, 0.9, 1.0]}}
    assert better(rival, horizon=0) == better(rival, horizon=1)
    assert better(rival, horizon=1) is not None
    assert better(rival, horizon=2) is None


def test_a_band_is_widened_by_one_step_where_an_earlier_one_missed() -> None:
    """The band of the last window was taken from 1, 2 and 3 and missed 9, so α falls by 0.05 · 0.9."""
    found = dict(enumerate([1.0, 2.0, 3.0, 9.0], start=100))
    errors = {0: {window * CLOCK.window: error for window, error in found.items()}}
    inside = {0: errors[0] | {103 * CLOCK.window: 2.0}}
    # That of the window before held: 3 lies within 1.5 ± 6.31 · 0.71 · 1.22. Each that holds gives 0.05 · 0.1 back.
    assert adapted_coverage(errors, CLOCK) == pytest.approx(0.90 - 0.005 + 0.045)
    assert adapted_coverage(inside, CLOCK) == pytest.approx(0.90 - 0.005 - 0.005)


def test_a_band_knows_no_window_whose_labels_were_not_due_at_its_origin() -> None:
    errors = {0: {window * CLOCK.window: error for window, error in enumerate([1.0, 2.0, 3.0, 9.0], start=100)}}
    assert adapted_coverage(errors, CLOCK, label_delay=1) == pytest.approx(0.90 + 0.045)  # 1.5 ± 5.5 misses 9
    assert adapted_coverage(errors, CLOCK, label_delay=2 * CLOCK.window) == 0.90
    assert adapted_coverage({2: errors[0]}, CLOCK) == 0.90


def test_ages_share_one_coverage_and_each_window_counts_once() -> None:
    wild = {window * CLOCK.window: error for window, error in enumerate([1.0, 2.0, 3.0, 9.0], start=100)}
    calm = wild | {103 * CLOCK.window: 2.0}
    # At window 103 one of two bands missed: age 1 knows two windows of its own there, 1.5 ± 5.5.
    assert adapted_coverage({0: wild, 1: calm}, CLOCK) == pytest.approx(0.90 - 0.005 + 0.05 * (0.5 - 0.1))


def test_equal_errors_have_a_band_without_width_that_holds() -> None:
    errors = {0: {window * CLOCK.window: 0.3 for window in range(100, 120)}}
    assert adapted_coverage(errors, CLOCK) == pytest.approx(0.90 - 18 * 0.005)


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=2, max_size=12), min_size=1, max_size=4))
def test_bands_are_asked_for_at_least_half_and_at_most_99_percent(rows: list[list[float]]) -> None:
    errors = {age: {k * CLOCK.window: error for k, error in enumerate(row)} for age, row in enumerate(rows)}
    assert 0.5 <= adapted_coverage(errors, CLOCK) <= 0.99


def test_only_the_newest_windows_count() -> None:
    long_ago = [0.1, 0.9] * 20
    verdict = judge({0: long_ago + [0.5] * COUNTED_WINDOWS}, max_age=1)
    (age,) = verdict.ages
    assert (age.num_windows, age.mean, age.limit) == (COUNTED_WINDOWS, 0.5, 0.5)
