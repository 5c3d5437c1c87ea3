"""Conformal quantiles and temperature, by hand, against crepes, and on streams that drift."""

import math
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from crepes import ConformalRegressor
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.calibration import LEVELS, AgeQuantiles, Calibration, find_quantile, raise_quantiles, untempered
from contracts.clock import Clock
from store.error_cells import Cell
from tests.unit.tiny_events import rows, task
from trainer.evaluation.calibration import (
    LEAST_PROBABILITY,
    TEMPERATURES,
    calibrate,
    fit_temperature,
    nonconformity,
    share_covered,
    sketch,
    tempered_losses,
)

CLOCK = Clock(window=1_000_000, offset=0, span=26_000_000)


def cell_of(scores: NDArray[np.float64] | Sequence[float], index: int, age: int = 0) -> Cell:
    """A cell of these rows at target window `index`."""
    values = np.asarray(scores, np.float64)
    window = index * CLOCK.window
    return Cell(window - age * CLOCK.window, window, "gi", len(values), 0.5, 0.5, scores=sketch(values))


def quantile(cells: Sequence[Cell], coverage: float, age: int = 0, label_delay: int = 0) -> float | None:
    found = calibrate(cells, method="gi", clock=CLOCK, max_age=4, label_delay=label_delay)
    return find_quantile(found, age, coverage)


def test_scoring_needs_no_torch() -> None:
    code = "import sys, trainer.export.opened_artefact, trainer.evaluation.scoring; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_number_misfits_by_its_distance_in_scales() -> None:
    outputs = [np.array([1.0, 2.0], np.float32), np.array([0.5, 4.0], np.float32)]
    found = nonconformity(task("regression"), (), outputs, rows([0, 1], [2.0, -2.0]))
    assert found.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("unit", [1e-30, 1e-15, 1e15, 1e30])
def test_the_unit_of_labels_does_not_count(unit: float) -> None:
    outputs = [np.array([unit, 2 * unit], np.float32), np.array([0.5 * unit, 4 * unit], np.float32)]
    found = nonconformity(task("regression"), (), outputs, rows([0, 1], [2 * unit, -2 * unit]))
    np.testing.assert_allclose(found, [2.0, 1.0], rtol=1e-6)


def test_a_class_misfits_by_what_its_probability_lacks_and_by_1_where_the_fit_never_saw_it() -> None:
    outputs = [np.array([[0.25, 0.75], [0.25, 0.75], [0.5, 0.5]], np.float32)]
    labelled = rows([0, 1, 2], [0, 1, 2], ("a", "b", "new"))
    assert nonconformity(task(), ("a", "b"), outputs, labelled).tolist() == [0.75, 0.25, 1.0]


def test_classes_misfit_alike_whatever_temperature_their_graph_has() -> None:
    raw = np.array([[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]], np.float32)
    powers = raw ** (1 / 1.7)
    warm = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    labelled = rows([0, 1], [1, 0], ("a", "b", "c"))
    np.testing.assert_allclose(untempered(warm, 1.7), raw, rtol=1e-5)
    np.testing.assert_allclose(
        nonconformity(task(), ("a", "b", "c"), [warm], labelled, temperature=1.7), [0.7, 0.1], rtol=1e-5
    )


def test_a_sketch_holds_all_scores_up_to_201_and_then_as_many_quantiles() -> None:
    few = np.arange(201.0)[::-1]
    assert sketch(few) == tuple(range(201))
    assert sketch(np.arange(2001.0)) == tuple(range(0, 2001, 10))
    assert sketch(np.array([])) == ()


def test_the_quantile_of_one_window_has_the_finite_sample_rank() -> None:
    cells = [cell_of(np.arange(1.0, 20.0), 0)]  # 19 rows: rank ⌈20·0.9⌉ = 18, and 0.95 asks for rank 19
    assert quantile(cells, 0.9) == 18.0
    assert quantile(cells, 0.95) == 19.0
    assert quantile(cells, 0.96) is None


def test_rows_of_several_windows_are_one_pool() -> None:
    cells = [cell_of([1.0, 5.0, 3.0], 0), cell_of([4.0, 2.0, 6.0, 7.0], 0)]
    assert quantile(cells, 0.5) == 4.0


def test_a_window_above_its_quantile_raises_the_next_by_one_step() -> None:
    """Nine rows 1 … 9 give rank 5 at half; the next window lies above it whole, so α falls from 0.5 by 0.2 · 0.5."""
    cells = [cell_of(np.arange(1.0, 10.0), 0), cell_of(np.arange(11.0, 20.0), 1)]
    # 18 rows, 1 − α = 0.6: rank ⌈19 · 0.6⌉ = 12, the third of the later window; without the step ⌈19 · 0.5⌉ = 10.
    assert quantile(cells, 0.5) == 13.0


def test_a_fit_is_judged_by_windows_whose_labels_were_due_at_its_origin() -> None:
    """At age 1 the window before the target is not complete at the origin, so nothing is learnt from the second."""
    first, second = np.arange(1.0, 10.0), np.arange(11.0, 20.0)
    at_once = [cell_of(first, 0, age=1), cell_of(second, 1, age=1)]
    assert quantile(at_once, 0.5, age=1) == 11.0
    apart = [cell_of(first, 0, age=1), cell_of(second, 2, age=1)]
    assert quantile(apart, 0.5, age=1) == 13.0
    assert quantile(apart, 0.5, age=1, label_delay=1) == 11.0


def test_an_age_beyond_the_guard_and_cells_that_are_not_complete_are_left_out() -> None:
    early = Cell(0, 0, "gi", 3, 0.5, 0.5, is_complete=False, scores=(9.0, 9.0, 9.0))
    found = calibrate(
        [cell_of([1.0, 2.0, 3.0], 0), early, cell_of([1.0, 2.0, 3.0], 9, age=4)], method="gi", clock=CLOCK, max_age=4
    )
    assert [(age.age, age.num_rows) for age in found.ages] == [(0, 3)]


@pytest.mark.parametrize("num_rows", [9, 50, 200, 201])
def test_crepes_gives_the_same_quantiles(num_rows: int) -> None:
    scores = np.random.default_rng(num_rows).gamma(2.0, size=num_rows)
    (age,) = calibrate([cell_of(scores, 0)], method="gi", clock=CLOCK, max_age=1).ages
    for level, ours in zip(LEVELS, age.quantiles, strict=False):
        assert ours == pytest.approx(_crepes(scores, level), rel=1e-12), level
    assert len(age.quantiles) == sum(math.ceil((num_rows + 1) * level - 1e-9) <= num_rows for level in LEVELS)


@pytest.mark.parametrize("num_rows", [202, 1000, 20_000])
def test_a_sketch_gives_crepes_quantiles_within_half_a_percent_of_probability(num_rows: int) -> None:
    scores = np.random.default_rng(num_rows).gamma(2.0, size=num_rows)
    (age,) = calibrate([cell_of(scores, 0)], method="gi", clock=CLOCK, max_age=1).ages
    assert len(age.quantiles) >= LEVELS.index(0.99)
    for level, ours in zip(LEVELS, age.quantiles, strict=False):
        theirs = _crepes(scores, level)
        assert abs(float((scores <= ours).mean() - (scores <= theirs).mean())) <= 0.005, level


def _crepes(scores: NDArray[np.float64], level: float) -> float:
    """A hair below the level: crepes cuts (1 − c)(n + 1) down to a whole number, 1.9999… among them."""
    fitted = ConformalRegressor().fit(residuals=scores)
    return float(fitted.predict_int(np.array([0.0]), confidence=level - 1e-9)[0, 1])


@given(
    st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
)
def test_quantiles_are_finite_and_never_fall_and_do_not_depend_on_the_order_of_rows(
    windows: list[list[float]], seed: int
) -> None:
    shuffled = [np.random.default_rng(seed).permutation(window) for window in windows]
    found = calibrate([cell_of(w, k) for k, w in enumerate(windows)], method="gi", clock=CLOCK, max_age=1)
    assert found == calibrate([cell_of(w, k) for k, w in enumerate(shuffled)], method="gi", clock=CLOCK, max_age=1)
    quantiles = np.array(found.ages[0].quantiles)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles) >= 0).all()


@given(st.floats(0.3, 3.0), st.floats(0.5, 3.0))
def test_tempered_losses_are_those_of_the_raw_probabilities_whatever_the_graphs_temperature(
    temperature: float, spread: float
) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 3)) * spread
    truth = rng.integers(-1, 3, 50)
    found = tempered_losses(_softmax(logits / temperature).astype(np.float32), truth, temperature)
    for wanted, loss in zip(TEMPERATURES, found, strict=True):
        given_ = np.where(truth < 0, 0.0, _softmax(logits / wanted)[np.arange(50), truth])
        assert loss == pytest.approx(-np.log(given_.clip(LEAST_PROBABILITY)).mean(), rel=1e-4)


def test_the_temperature_of_a_stream_is_found_between_the_points_of_the_grid() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(40_000, 3)) * 2
    truth = np.array([rng.choice(3, p=p) for p in _softmax(logits / 1.8)])
    found = fit_temperature([_tempered_cell(_softmax(logits), truth)], "gi")
    assert found == pytest.approx(1.8, rel=0.03)
    again = fit_temperature([_tempered_cell(_softmax(logits / found), truth, found)], "gi")
    assert again == pytest.approx(found, rel=1e-3)


def test_too_few_rows_keep_the_temperature_at_1() -> None:
    logits = np.random.default_rng(1).normal(size=(199, 2)) * 9
    same_rows_at_two_ages = [_tempered_cell(_softmax(logits), np.zeros(199, np.int64)) for _ in range(2)]
    assert fit_temperature(same_rows_at_two_ages, "gi") == 1.0


def _tempered_cell(probabilities: NDArray[np.float64], truth: NDArray[np.int64], temperature: float = 1.0) -> Cell:
    tempered = tempered_losses(probabilities.astype(np.float32), truth, temperature)
    return Cell(0, 0, "gi", len(truth), 0.5, 0.5, tempered=tempered)


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits)
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def test_a_drifting_stream_is_covered_in_the_long_run_where_plain_pooling_is_not() -> None:
    """Scores grow by 3 % a window: what earlier windows say together is always too little."""
    rng = np.random.default_rng(2)
    windows = [np.abs(rng.normal(size=150)) * 1.03**k for k in range(200)]
    cells = [cell_of(scores, k) for k, scores in enumerate(windows)]
    adapted, pooled = [], []
    for k in range(30, 200):
        found = quantile(cells[:k], 0.9)
        assert found is not None
        adapted.append(float(share_covered(cells[k], np.array([found]))[0]))
        pooled.append(float((windows[k] <= np.quantile(np.concatenate(windows[:k]), 0.9)).mean()))
    assert np.mean(adapted) == pytest.approx(0.90, abs=0.01)
    assert np.mean(pooled) < 0.85


def test_errors_that_arrive_forty_windows_late_do_not_make_the_quantile_swing() -> None:
    """Weeks are hard or easy by 15 %. With the whole step, coverage strays by 13 % instead of 5 %."""
    rng, age = np.random.default_rng(2), 40
    windows = [np.abs(rng.normal(size=150)) * math.exp(0.15 * rng.normal()) for _ in range(320)]
    cells = [cell_of(scores, k, age) for k, scores in enumerate(windows)]
    covered = []
    for k in range(160, 320, 2):
        found = calibrate(cells[: k - age], method="gi", clock=CLOCK, max_age=64)
        covered.append(float(share_covered(cells[k], np.array(find_quantile(found, age, 0.9)))))
    assert np.mean(covered) == pytest.approx(0.90, abs=0.01)
    assert np.std(covered) <= 0.06


def test_quantiles_that_hold_too_few_of_a_fits_own_rows_are_raised_to_those_that_hold_enough() -> None:
    own = np.linspace(0.0, 1.0, 201).tolist()
    low = Calibration(
        1.0, [AgeQuantiles(0, 900, [0.2] * 20), AgeQuantiles(1, 900, [0.995] * 52), AgeQuantiles(2, 0, [])]
    )
    raised = raise_quantiles(low, own)
    assert raised.ages[0].quantiles == pytest.approx(LEVELS[:20], abs=0.006)
    assert raised.ages[1].quantiles[:50] == [0.995] * 50
    assert raised.ages[2].quantiles == []
    assert [age.num_rows for age in raised.ages] == [900, 900, 0]


def test_quantiles_that_hold_about_their_share_of_a_fits_own_rows_stay() -> None:
    own = np.sort(np.random.default_rng(0).exponential(size=201)).tolist()
    enough = [float(np.quantile(own, level - 0.02, method="higher")) for level in LEVELS]
    known = Calibration(1.0, [AgeQuantiles(0, 900, enough)])
    assert raise_quantiles(known, own) == known
    assert raise_quantiles(known, []) is known
