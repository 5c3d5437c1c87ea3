"""What methods predict everywhere on 2-Moons, at each domain: the arrays of the picture of decision boundaries.

A method answers rows and does not know what they are for. So a grid of points takes the place of the unseen rows, once
at the time of each domain, known or later. The domains' own points are added for the errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.pictures import Plane
from benchmarks.paper.sets import PaperSet
from benchmarks.paper.sets.tabular import Tabular
from benchmarks.paper.splits import Method, Split
from contracts.task import Training
from trainer.data.encoder import Encoded

# Free plane around the points, in their own unit.
_MARGIN = 0.4


@dataclass(frozen=True)
class Asked:
    """A method and its recipe."""

    method: Method
    training: Training


def survey(
    paper_set: PaperSet,
    asked: Mapping[str, Asked],
    domains: Sequence[int],
    seeds: Sequence[int],
    *,
    side: int = 80,
) -> Plane:
    """Fit each method on the paper's split of a set with two numbers, and ask it at each domain.

    Chances and errors are means over the seeds.
    """
    split = paper_set.split(paper_set.test_origin)
    points, classes = domain_points(paper_set, domains)
    low, high = points.min((0, 1)) - _MARGIN, points.max((0, 1)) + _MARGIN
    x, y = (np.linspace(low[axis], high[axis], side) for axis in (0, 1))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    rows = np.concatenate([np.concatenate([grid, own]) for own in points])
    moments = np.repeat(np.array(domains, np.int64), len(grid) + points.shape[1])
    everywhere = replace(split, unseen=_encoded(paper_set, split, rows, moments), answers=np.zeros(len(rows)))
    chances, errors = {}, {}
    for name, one in asked.items():
        outputs = one.method(everywhere, one.training, seeds).reshape(len(seeds), len(domains), -1, 2)
        margins = outputs[..., 1].astype(np.float64) - outputs[..., 0]
        on_grid, on_points = np.split(margins, [len(grid)], axis=2)
        chances[name] = (1 / (1 + np.exp(-on_grid))).mean(0).reshape(len(domains), side, side)
        errors[name] = 100 * ((on_points > 0) != classes).mean((0, 2))
    return Plane(tuple(domains), split.origin, x, y, chances, errors, points, classes)


def domain_points(paper_set: PaperSet, domains: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points `(D, n, 2)` in their own unit and classes `(D, n)` of domains that all have n points."""
    contents = paper_set.contents
    assert isinstance(contents, Tabular)
    size = paper_set.domain_sizes[0]
    assert set(paper_set.domain_sizes) == {size}
    numbers, labels = contents.rows.numbers.reshape(-1, size, 2), contents.rows.labels.reshape(-1, size)
    return numbers[list(domains)], labels[list(domains)].astype(np.int64)


def _encoded(paper_set: PaperSet, split: Split, rows: NDArray[np.float64], moments: NDArray[np.int64]) -> Encoded:
    """Rows of these domains encoded as the split encodes numbers: by the straight line that its known rows show."""
    numbers, _ = domain_points(paper_set, range(split.origin))
    dense = np.empty(rows.shape, np.float32)
    for column, known in enumerate(numbers.reshape(-1, 2).T):
        slope, start = np.polyfit(known, split.known.dense[:, column].astype(np.float64), 1)
        dense[:, column] = slope * rows[:, column] + start
    windows = moments * split.clock.window
    return Encoded(
        dense=dense,
        codes=np.zeros((len(rows), 0), np.int64),
        u=split.clock.model_time(windows, split.origin * split.clock.window),
        targets=np.full(len(rows), -1, np.int64),
        windows=windows,
    )
