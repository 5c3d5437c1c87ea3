"""How the rules of the matrix act on streams whose truth is known: 200 runs of each, seeds fixed.

A fit's error on a target window is `FRESH · (1 + weekly + own + ageing · age)`: `weekly` is common to all fits on that
window, `own` is one fit's on one window. All are shares of the fresh error.
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import nct, norm, t

from contracts.clock import Clock
from contracts.task import Guard
from contracts.verdict import Comparison
from store.error_cells import NAIVE, Cell
from trainer.evaluation.horizon import HorizonRule, HorizonVerdict, better_method, compare_rivals, judge_horizon

CLOCK = Clock(window=1_000_000, offset=0, span=26_000_000)
NUM_RUNS = 200
FRESH, WEEKLY, OWN = 0.4, 0.10, 0.02
NOISE = FRESH * math.hypot(WEEKLY, OWN)
# Half of the 90 % band of one window.
WIDTH = float(norm.ppf(0.95)) * NOISE


def errors(rng: np.random.Generator, num_windows: int, num_ages: int, ageing: float = 0.0) -> NDArray[np.float64]:
    """`(num_windows, num_ages)`."""
    weekly = rng.normal(size=(num_windows, 1)) * WEEKLY
    own = rng.normal(size=(num_windows, num_ages)) * OWN
    return FRESH * (1 + weekly + own + ageing * np.arange(num_ages))


def cells(found: NDArray[np.float64], method: str = "gi") -> list[Cell]:
    return [
        Cell((window - age) * CLOCK.window, window * CLOCK.window, method, 100, error, error / 2)
        for (window, age), error in np.ndenumerate(found)
    ]


def judge(found: NDArray[np.float64], guard: Guard) -> HorizonVerdict:
    matrix = cells(found) + cells(np.full(found.shape, 2 * FRESH), NAIVE)
    return judge_horizon(matrix, HorizonRule(method="gi", error_name="log_loss", clock=CLOCK, guard=guard))


def horizons(seed: int, num_windows: int, ageing: float) -> NDArray[np.int64]:
    rng, guard = np.random.default_rng(seed), Guard()
    return np.array(
        [judge(errors(rng, num_windows, guard.max_age, ageing), guard).horizon for _ in range(NUM_RUNS)], np.int64
    )


@pytest.mark.parametrize("num_windows", [4, 26])
def test_weekly_noise_without_ageing_leaves_the_longest_horizon(num_windows: int) -> None:
    assert np.mean(horizons(1, num_windows, ageing=0.0) == Guard().max_age) >= 0.90


@pytest.mark.parametrize("num_windows", [4, 26])
@pytest.mark.parametrize(("ageing", "truth"), [(2.0, 1), (1.05, 1), (0.55, 2)])
def test_the_horizon_of_an_ageing_stream_is_never_longer_than_the_true_one(
    num_windows: int, ageing: float, truth: int
) -> None:
    """`ageing` in tolerances per window; twice the tolerance is the clear case, just above it the hard one."""
    assert np.mean(horizons(2, num_windows, ageing * Guard().tolerance) <= truth) >= 0.90


def walk(seed: int, warm_up: int, num_windows: int, jump: float = 0.0) -> Iterator[tuple[float, float]]:
    """(error, limit) of each window's champion, window by window. The limit is what its cutoff knew.

    Every window has a fresh champion. `jump` is added to the error of all windows after the warm-up.
    """
    rng, guard = np.random.default_rng(seed), Guard(max_age=1)
    for _ in range(NUM_RUNS):
        found = errors(rng, warm_up + num_windows, 1)
        for cutoff in range(warm_up, warm_up + num_windows):
            yield float(found[cutoff, 0]) + jump, judge(found[:cutoff], guard).ages[0].limit


def share_closed(seed: int, warm_up: int, num_windows: int, jump: float = 0.0) -> float:
    return float(np.mean([error > limit for error, limit in walk(seed, warm_up, num_windows, jump)]))


def test_a_stationary_stream_is_hardly_ever_closed() -> None:
    """It closes 1.1 % of windows, where 2 % are allowed and the bound promises 1 %."""
    assert share_closed(3, warm_up=26, num_windows=26) <= 0.02


def test_a_jump_of_three_widths_closes_at_the_next_complete_window() -> None:
    """A width is half of the 90 % band: 1.645 σ, so three are 4.9 σ; after 26 windows 98.8 % are found (exactly).

    At 3 σ no rule that sees one window can do both: with Gaussian noise, known to the last digit, the best test (Neyman
    and Pearson) that closes 2 % of healthy windows finds a jump of 3 σ in Φ(3 − 2.054) = 82.8 %. Ours closes 1 % of
    them and must estimate the noise: 67.6 % after 26 windows. After 4, 8 and 13 windows three widths are found in 57,
    92 and 97 %, and 3 σ in 24, 48 and 59 %.
    """
    assert share_closed(4, warm_up=26, num_windows=1, jump=3 * WIDTH) >= 0.95
    assert share_closed(5, warm_up=26, num_windows=1, jump=3 * NOISE) == pytest.approx(power(3.0, 26), abs=0.10)
    assert power(3.0, 26) == pytest.approx(0.676, abs=5e-4)
    assert float(norm.cdf(3 - norm.ppf(0.98))) == pytest.approx(0.828, abs=5e-4)


def power(jump: float, num_windows: int) -> float:
    """The chance to find a jump of `jump` σ beyond the one-sided 99 % bound from `num_windows` Gaussian windows."""
    return float(nct.sf(t.ppf(0.99, num_windows - 1), num_windows - 1, jump / math.sqrt(1 + 1 / num_windows)))


def share_inside(rng: np.random.Generator, warm_up: int, num_windows: int, growth: float) -> float:
    """The share of windows whose error lies in the band that its cutoff knew, if weeks' noise grows by a share."""
    inside = []
    for _ in range(NUM_RUNS // 4):
        found = errors(rng, warm_up + num_windows, 1)
        found = FRESH + (found - FRESH) * (1 + growth) ** np.arange(len(found))[:, None]
        for cutoff in range(warm_up, warm_up + num_windows):
            (age,) = judge(found[:cutoff], Guard(max_age=1)).ages
            inside.append(age.low <= found[cutoff, 0] <= age.high)
    return float(np.mean(inside))


def test_nine_of_ten_windows_lie_in_their_band_and_nearly_as_many_where_noise_grows() -> None:
    """Noise that grows by 1 % a window leaves 82 % of the windows in a plain interval, and 87 % in an adapted one."""
    rng = np.random.default_rng(8)
    assert share_inside(rng, 4, 26, growth=0.0) == pytest.approx(0.90, abs=0.02)
    assert share_inside(rng, 26, 52, growth=0.01) >= 0.85


def find_better(seed: int, num_windows: int, gain: float) -> list[Comparison | None]:
    """Our errors and those of three rivals as noisy as a week, one of which is better by this share."""
    rng, guard = np.random.default_rng(seed), Guard()
    found = []
    for _ in range(NUM_RUNS):
        ours = errors(rng, num_windows, guard.max_age)
        matrix = cells(ours)
        for number, rival in enumerate(("baseline", "last_window", "gbdt")):
            own = rng.normal(size=(num_windows, 1)) * WEEKLY * FRESH
            matrix += cells(ours + own - gain * FRESH * (number == 2), rival)
        found.append(
            better_method(
                compare_rivals(
                    matrix,
                    method="gi",
                    rivals=("baseline", "last_window", "gbdt"),
                    error_name="log_loss",
                    clock=CLOCK,
                    guard=guard,
                    horizon=guard.max_age,
                )
            )
        )
    return found


def test_a_rival_is_called_better_where_it_is_and_hardly_ever_where_it_is_not() -> None:
    two_errors = 2 * math.sqrt(0.05 * 0.95 / NUM_RUNS)
    for num_windows in (3, 26):
        assert np.mean([found is not None for found in find_better(6, num_windows, gain=0.0)]) <= 0.05 + two_errors
    better = find_better(7, 26, gain=0.10)
    assert np.mean([found is not None and found.method == "gbdt" for found in better]) >= 0.95
