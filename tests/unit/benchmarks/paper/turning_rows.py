"""Splits whose points turn about the origin by the same angle from each domain to the next: made here, or 2-Moons."""

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.datasets import default_folder
from benchmarks.paper.methods.rows import join
from benchmarks.paper.runs import missing_file
from benchmarks.paper.sets import SETS
from benchmarks.paper.splits import Split, withheld_targets
from contracts.clock import Clock
from trainer.data.encoder import Encoded

CLOCK = Clock(window=10, offset=0, span=100)
TURN = np.deg2rad(30.0)


def moons(origin: int) -> Split:
    """2-Moons at an origin; a test that uses it is skipped if the file is missing."""
    if missing_file(default_folder(), "moons"):
        pytest.skip("the file of 2-Moons is not there")
    return SETS["moons"](default_folder()).split(origin)


def turn(points: NDArray[np.float32], number: int) -> NDArray[np.float32]:
    """Points `(n, 2)` turned counter-clockwise this many times."""
    angle = TURN * number
    matrix = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.asarray(points @ matrix, np.float32)


def turning_split(num_known: int, num_points: int = 40, seed: int = 0) -> Split:
    """The same points in `num_known` domains and the next; class 1 lies on the right in the first."""
    generator = np.random.default_rng(seed)
    classes = np.arange(num_points) % 2
    points = generator.normal(size=(num_points, 2), scale=0.3) + np.stack([2.0 * classes - 1, 0 * classes], axis=1)

    def domain(number: int) -> Encoded:
        at = np.full(num_points, number * CLOCK.window)
        return Encoded(
            dense=turn(points.astype(np.float32), number),
            codes=np.zeros((num_points, 0), np.int64),
            u=CLOCK.model_time(at, num_known * CLOCK.window),
            targets=classes.astype(np.int64),
            windows=at,
        )

    return Split(
        origin=num_known,
        clock=CLOCK,
        known=join([domain(number) for number in range(num_known)]),
        unseen=withheld_targets(domain(num_known)),
        answers=classes.astype(np.float64),
        vocabulary_sizes=(),
        num_outputs=2,
        metric="error_percent",
    )
