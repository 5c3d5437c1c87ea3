"""Moving coefficients are extrapolated, constant ones stay, and the trend is chosen by past windows alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, softmax

from contracts.clock import Clock
from contracts.errors import ArtefactRefused
from store.events.reading.columns import EventColumns
from tests.unit.tiny_events import HOUR, rows, task
from trainer.data.encoder import Encoded
from trainer.methods.extrapolated_linear import (
    TREND_FILE,
    Trend,
    answer_linear,
    extrapolate,
    fit_linear,
    fit_trend,
    keep_linear,
    read_linear,
)

CLOCK = Clock(window=10, offset=0, span=260)
NUM_WINDOWS, ROWS_PER_WINDOW = 12, 400


def stream(first: int, end: int, slope: float, is_classified: bool, seed: int = 0) -> Encoded:
    """Windows first … end − 1, the cutoff at the start of the window NUM_WINDOWS.

    The first feature weighs 1 + slope·t, t in windows from the cutoff, and the second −1.
    """
    generator = np.random.default_rng((seed, first))
    num_rows = (end - first) * ROWS_PER_WINDOW
    at = np.sort(generator.integers(first * 10, end * 10, num_rows))
    dense = generator.normal(size=(num_rows, 2)).astype(np.float32)
    outputs = weight(at, slope) * dense[:, 0] - dense[:, 1]
    drawn = generator.random(num_rows) < expit(outputs)
    noisy = outputs + 0.1 * generator.normal(size=num_rows)
    return Encoded(
        dense=dense,
        codes=np.zeros((num_rows, 0), np.int64),
        u=CLOCK.model_time(at, NUM_WINDOWS * 10),
        targets=drawn.astype(np.int64) if is_classified else noisy.astype(np.float32),
        windows=CLOCK.window_starts(at),
    )


def weight(at: NDArray[np.int64], slope: float) -> NDArray[np.float64]:
    return 1 + slope * (at / 10 - NUM_WINDOWS)


def fitted(slope: float, is_classified: bool, num_windows: int = NUM_WINDOWS) -> Trend:
    return fit_trend(stream(NUM_WINDOWS - num_windows, NUM_WINDOWS, slope, is_classified), (), 2, CLOCK)


def test_a_weight_that_moves_linearly_is_carried_into_the_future() -> None:
    trend = fitted(0.4, is_classified=False)
    assert trend.degree == 1
    assert trend.reach > 2
    (before, after) = (np.array(trend.coefficients)[power, 1, 0] for power in (0, 1))
    assert before == pytest.approx(1.0, abs=0.05)
    assert after == pytest.approx(0.4, abs=0.01)
    later = stream(NUM_WINDOWS + 2, NUM_WINDOWS + 3, 0.4, is_classified=False)
    errors = extrapolate(trend, later)[:, 0] - later.targets
    assert np.sqrt((errors**2).mean()) < 0.2
    assert trend.scale == pytest.approx(0.1, abs=0.05)


def test_a_weight_that_rests_is_averaged() -> None:
    trend = fitted(0.0, is_classified=False)
    assert trend.degree == 0
    assert trend.reach > 3
    np.testing.assert_allclose(np.array(trend.coefficients)[0, :, 0], [0, 1, -1], atol=0.01)


def test_a_bend_is_learned_from_products_where_columns_are_few() -> None:
    known = stream(0, NUM_WINDOWS, 0.0, is_classified=False)
    later = stream(NUM_WINDOWS, NUM_WINDOWS + 1, 0.0, is_classified=False)
    bent, unseen = (
        replace(part, targets=(part.targets + part.dense[:, 0] ** 2 * part.dense[:, 1]).astype(np.float32))
        for part in (known, later)
    )
    trend = fit_trend(bent, (), 2, CLOCK)
    assert trend.order == 3
    assert np.abs(extrapolate(trend, unseen)[:, 0] - unseen.targets).mean() < 0.1
    many, unseen = (replace(part, dense=np.tile(part.dense, 60)) for part in (bent, unseen))
    assert fit_trend(many, (), 2, CLOCK).order == 1


def test_log_odds_that_move_are_carried_into_the_future() -> None:
    trend = fitted(0.4, is_classified=True)
    assert trend.degree >= 1
    later = stream(NUM_WINDOWS, NUM_WINDOWS + 1, 0.4, is_classified=True)
    logits = extrapolate(trend, later)
    true = weight(np.full(ROWS_PER_WINDOW, NUM_WINDOWS * 10 + 5), 0.4) * later.dense[:, 0] - later.dense[:, 1]
    assert np.abs(softmax(logits, axis=1)[:, 1] - expit(true)).mean() < 0.05


def test_the_model_of_a_window_is_its_ridge_solution() -> None:
    """Least squares with a ridge of 1: (XᵀX + I)⁻¹Xᵀy, with a constant first."""
    known = stream(NUM_WINDOWS - 1, NUM_WINDOWS, 0.3, is_classified=False)
    trend = fit_trend(known, (), 2, CLOCK)
    x = np.column_stack([np.ones(len(known.dense)), known.dense.astype(np.float64)])
    expected = np.linalg.solve(x.T @ x + np.eye(3), x.T @ known.targets.astype(np.float64))
    assert (trend.order, trend.degree, trend.reach) == (1, 0, 1)
    np.testing.assert_allclose(np.array(trend.coefficients)[0, :, 0], expected, rtol=1e-5)


def test_logistic_coefficients_are_where_the_slope_vanishes() -> None:
    known = stream(NUM_WINDOWS - 1, NUM_WINDOWS, 0.3, is_classified=True)
    coefficients = np.array(fit_trend(known, (), 2, CLOCK).coefficients)[0]
    x = np.column_stack([np.ones(len(known.dense)), known.dense.astype(np.float64)])
    shares = softmax(x @ coefficients, axis=1)
    slope = x.T @ (shares - np.eye(2)[known.targets.astype(np.int64)]) + coefficients
    assert np.abs(slope).max() < 0.05


def test_each_code_has_a_coefficient_of_its_own() -> None:
    known = stream(0, NUM_WINDOWS, 0.0, is_classified=False)
    codes = np.random.default_rng(1).integers(0, [3, 2], (len(known.u), 2))
    effects = np.array([0.5, -1.0, 2.0])[codes[:, 0]] + np.array([0.0, 1.0])[codes[:, 1]]
    known = replace(known, codes=codes, targets=(known.targets + effects).astype(np.float32))
    trend = fit_trend(known, (3, 2), 2, CLOCK)
    np.testing.assert_allclose(extrapolate(trend, known)[:, 0], known.targets, atol=0.6)
    first, second = replace(known, codes=np.zeros_like(codes)), replace(known, codes=np.tile([2, 1], (len(codes), 1)))
    np.testing.assert_allclose(extrapolate(trend, second) - extrapolate(trend, first), 2.5, atol=0.05)


@pytest.mark.parametrize("num_windows", [1, 2, 3])
@pytest.mark.parametrize("is_classified", [False, True])
def test_few_windows_are_enough(num_windows: int, is_classified: bool) -> None:
    trend = fitted(0.4, is_classified, num_windows)
    assert trend.degree < num_windows
    assert np.isfinite(extrapolate(trend, stream(NUM_WINDOWS, NUM_WINDOWS + 5, 0.4, is_classified))).all()


def drifting(kind: str, num_rows: int = 3000) -> EventColumns:
    """Twenty hours in which the sign of x matters more and more."""
    generator = np.random.default_rng(4)
    at = np.sort(generator.integers(0, 20 * HOUR, num_rows))
    x = generator.normal(size=num_rows)
    outputs = x * at / (10 * HOUR)
    if kind == "classification":
        made = rows(at.tolist(), (generator.random(num_rows) < expit(outputs)).astype(float).tolist(), ("no", "yes"))
    else:
        made = rows(at.tolist(), (100 + 7 * outputs).tolist())
    return replace(made, numbers=x[:, None])


def asked(known: EventColumns, *values: float) -> EventColumns:
    found = known.select(np.arange(len(values)))
    return replace(found, at=np.full(len(values), 20 * HOUR + HOUR // 2), numbers=np.array(values)[:, None])


def test_answers_are_in_the_labels_unit() -> None:
    known = drifting("regression")
    mean, scale = answer_linear(fit_linear(task("regression"), known, 20 * HOUR), asked(known, -1.0, 0.0, 2.0))
    np.testing.assert_allclose(mean, 100 + 7 * 2.05 * np.array([-1.0, 0.0, 2.0]), atol=0.5)
    assert (scale > 0).all()
    assert mean.dtype == scale.dtype == np.float32


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_what_is_kept_answers_as_before(tmp_path: Path, kind: str) -> None:
    known = drifting(kind)
    fit = fit_linear(task(kind), known, 20 * HOUR)
    keep_linear(tmp_path / "0", fit, "recipe")
    kept = read_linear(tmp_path / "0", "recipe")
    assert kept == fit
    for former, found in zip(
        answer_linear(fit, asked(known, -1.0, 1.0)), answer_linear(kept, asked(known, -1.0, 1.0)), strict=True
    ):
        np.testing.assert_array_equal(former, found)


def test_a_kept_fit_of_another_recipe_or_with_changed_bytes_is_refused(tmp_path: Path) -> None:
    keep_linear(tmp_path / "0", fit_linear(task(), drifting("classification"), 20 * HOUR), "recipe")
    with pytest.raises(ArtefactRefused):
        read_linear(tmp_path / "0", "another")
    file = tmp_path / "0" / TREND_FILE
    file.write_bytes(file.read_bytes() + b"0")
    with pytest.raises(ArtefactRefused):
        read_linear(tmp_path / "0", "recipe")
