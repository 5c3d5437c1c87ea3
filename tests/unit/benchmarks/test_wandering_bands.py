"""Bands on streams whose errors drift, follow each other, jump or are skewed, which no constant knows."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.clock import Clock
from trainer.evaluation.bands import adapted_coverage, predictive_band

CLOCK = Clock(window=1, offset=0, span=26)
NUM_WINDOWS, NUM_AGES, WARM_UP = 52, 4, 4
OWN_NOISE = 0.3  # of each fit, in addition to the week's that all ages share

Stream = Callable[[np.random.Generator], NDArray[np.float64]]


def noise(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.normal(size=NUM_WINDOWS)


def following(memory: float) -> Stream:
    """Each window remembers a share of the one before; the deviation stays 1."""

    def draw(rng: np.random.Generator) -> NDArray[np.float64]:
        found = noise(rng)
        for k in range(1, NUM_WINDOWS):
            found[k] = memory * found[k - 1] + math.sqrt(1 - memory**2) * found[k]
        return found

    return draw


STREAMS: dict[str, Stream] = {
    "independent": noise,
    "following": following(0.5),
    "sluggish": following(0.8),
    "wandering": lambda rng: np.cumsum(0.3 * noise(rng)) + noise(rng),
    "rising": lambda rng: 0.15 * np.arange(NUM_WINDOWS) + noise(rng),
    "seasonal": lambda rng: 1.5 * np.sin(2 * np.pi * np.arange(NUM_WINDOWS) / NUM_WINDOWS) + noise(rng),
    "shifted": lambda rng: 2.0 * (np.arange(NUM_WINDOWS) > NUM_WINDOWS / 2) + noise(rng),
    "skewed": lambda rng: 10 * np.exp(0.35 * noise(rng)),
}


def share_inside(draw: Stream, num_runs: int, discount: float | None = None) -> float:
    """Share of errors inside the band that their cutoff knew, over all ages and cutoffs after the warm-up."""
    inside = []
    for seed in range(num_runs):
        rng = np.random.default_rng(seed)
        weeks = 20 + draw(rng)
        errors = {age: dict(enumerate((weeks + OWN_NOISE * noise(rng)).tolist())) for age in range(NUM_AGES)}
        for cutoff in range(WARM_UP, NUM_WINDOWS - NUM_AGES):
            known = {
                age: {window: error for window, error in found.items() if age <= window < cutoff}
                for age, found in errors.items()
            }
            coverage = adapted_coverage(known, CLOCK) if discount is None else 0.90
            for age, found in known.items():
                if len(found) < 2:
                    continue
                how = {} if discount is None else {"discount": discount}
                low, high = predictive_band(list(found.values()), coverage, lead=age + 1, **how)
                inside.append(low <= errors[age][cutoff + age] <= high)
    return float(np.mean(inside))


@pytest.mark.parametrize("kind", STREAMS)
def test_bands_hold_nine_of_ten_errors_whatever_the_stream_does(kind: str) -> None:
    assert share_inside(STREAMS[kind], 10) == pytest.approx(0.90, abs=0.05)


def test_a_band_around_a_level_that_stands_still_loses_a_stream_that_rises() -> None:
    assert share_inside(STREAMS["rising"], 10, discount=1.0) < 0.75
