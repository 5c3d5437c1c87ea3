"""2-Moons: two half moons that turn counter-clockwise by 18° from each domain to the next.

The paper's arrays hold the same 200 points in every domain, turned. Fresh ones follow the same law, and are a harder
draw: no point is ever seen twice.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.sets.cut import DAY, PaperSet, even_edges
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.sets.tabular import Tabular, event_rows, numbers_task

NUM_DOMAINS, TEST_ORIGIN, POINTS, TURN = 11, 9, 200, 18
_NOISE = 0.1


def load_moons(folder: Path) -> PaperSet:
    """The paper's 2,200 points. Raises NotFound."""
    (path,) = find_files(folder, "moons")
    with np.load(path) as arrays:
        return _paper_set("moons", "2-Moons", arrays["X"], arrays["Y"])


def draw_moons(_folder: Path, seed: int = 0) -> PaperSet:
    """Fresh points in every domain, of the same law; nothing is read."""
    points, classes = zip(*(fresh_domain(number, seed) for number in range(NUM_DOMAINS)), strict=True)
    title = "2-Moons, fresh points in every domain"
    return _paper_set("moons_fresh", title, np.concatenate(points), np.concatenate(classes))


def fresh_domain(number: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points `(200, 2)` and classes `(200,)`: half circles of radius 1, noise of deviation 0.1, as `turned`."""
    generator = np.random.default_rng((seed, number))
    angle = np.linspace(0, np.pi, POINTS // 2)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    points = np.concatenate([upper, lower]) + generator.normal(scale=_NOISE, size=(POINTS, 2))
    return turned(points, number), np.repeat([0, 1], POINTS // 2)


def turned(points: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """Points `(n, 2)` turned about the origin by 18°·number, counter-clockwise."""
    angle = np.deg2rad(TURN * number)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    result: NDArray[np.float64] = points @ turn
    return result


def _paper_set(name: str, title: str, points: NDArray[np.float64], classes: NDArray[np.int64]) -> PaperSet:
    task = numbers_task(name, ["x1", "x2"], ["0", "1"], DAY, NUM_DOMAINS)
    at = np.repeat(np.arange(NUM_DOMAINS) * DAY, POINTS)
    return PaperSet(
        name=name,
        title=title,
        contents=Tabular(task, event_rows(task, at, points, classes)),
        edges=even_edges(0, DAY, NUM_DOMAINS),
        clock=task.clock,
        test_origin=TEST_ORIGIN,
        files=FILES[name],
    )
