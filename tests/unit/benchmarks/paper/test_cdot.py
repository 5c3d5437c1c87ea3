"""CDOT couples what belongs together: by hand in the smallest case, never across classes, and in a row's direction."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.datasets import default_folder
from benchmarks.paper.methods.cdot import Domain, cdot_method, couple, couple_classes, move, transported
from benchmarks.paper.methods.house import network_method
from benchmarks.paper.recipes import find_recipe
from benchmarks.paper.runs import missing_file
from benchmarks.paper.sets import SETS
from benchmarks.paper.splits import Split, errors
from contracts.errors import CycleError
from contracts.task import Training

SEEDS = range(3)


def moons(origin: int) -> Split:
    if missing_file(default_folder(), "moons"):
        pytest.skip("the file of 2-Moons is not there")
    return SETS["moons"](default_folder()).split(origin)


def test_two_rows_are_coupled_as_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs (0, 1; 1, 0) and next to no smoothness: γ is (a, ½ − a; ½ − a, a) with a / (½ − a) = exp(1 / ε)."""
    monkeypatch.setattr("benchmarks.paper.methods.cdot._SMOOTHNESS", 1e-6)
    monkeypatch.setattr("benchmarks.paper.methods.cdot._ENTROPY", 0.5)
    points = np.array([[0.0], [1.0]])
    share = np.e**2 / (1 + np.e**2)
    expected = np.array([[share, 1 - share], [1 - share, share]]) / 2
    np.testing.assert_allclose(couple(points, points, np.ones((2, 1))), expected, atol=1e-5)


def test_rows_go_on_as_they_came() -> None:
    """Two rows halfway between two places: each goes on in the direction it came from."""
    before, after = np.array([[0.0], [0.1]]), np.array([[-1.0], [1.1]])
    came = np.array([[1.0], [-1.0]])
    still, onwards = (couple(before, after, steps) for steps in (np.full((2, 1), np.nan), came))
    assert still[0, 0] > 0.45
    assert onwards[0, 1] > 0.45


def test_classes_never_mix() -> None:
    """They do not even if the nearest rows are of another class; weights are uniform in each class."""
    generator = np.random.default_rng(0)
    classes, later = np.repeat([0, 1], (10, 30)), np.repeat([0, 1], (25, 5))
    before = Domain(generator.normal(size=(40, 2)) + 3 * classes[:, None], classes)
    after = Domain(generator.normal(size=(30, 2)) + 3 * (1 - later)[:, None], later)
    coupling = couple_classes(before, after, np.full((40, 2), np.nan))
    assert (coupling[classes[:, None] != later] == 0).all()
    np.testing.assert_allclose(coupling.sum(1), 1 / 40, rtol=1e-2)
    np.testing.assert_allclose(coupling[:10].sum(0)[:25], 10 / 40 / 25, rtol=1e-6)


def test_rows_move_with_their_class_however_far_it_goes() -> None:
    """Two classes walk to the right by 1 a step; all earlier rows end up where their class is in the future."""
    generator = np.random.default_rng(0)
    classes = np.repeat([0, 1], 20)
    places = generator.normal(size=(40, 2), scale=0.1) + np.stack([0 * classes, 4 * classes], axis=1)
    step = np.array([1.0, 0.0])
    domains = [Domain(places + number * step, classes) for number in range(4)]
    future = places + 4 * step
    for image in move(domains, future):
        for label in (0, 1):
            np.testing.assert_allclose(image[classes == label].mean(0), future[classes == label].mean(0), atol=1e-3)


def test_rows_of_a_class_that_a_domain_lacks_wait_for_a_later_one() -> None:
    both, one = np.array([0, 1]), np.array([0])
    far = np.array([[0.0], [5.0]])
    images = move([Domain(far, both), Domain(far[:1], one), Domain(far + 1, both)], far + 2)
    assert [len(image) for image in images] == [2, 1, 2]
    np.testing.assert_allclose(images[0], far + 2, atol=1e-3)


def test_no_more_rows_of_a_domain_are_moved_than_its_cost_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.paper.methods.cdot._MOST_ROWS", 30)
    monkeypatch.setattr("benchmarks.paper.methods.cdot._MOST_DOMAINS", 2)
    split = moons(4)
    moved = transported(split.known, split.unseen, 2)
    assert [(moved.windows == window).sum() for window in np.unique(moved.windows)] == [30, 30]
    assert moved.windows.min() == 2 * split.clock.window


def test_it_beats_the_time_oblivious_network_on_a_slice_of_moons() -> None:
    """Every seed of it, by more than 5 % of the rows."""
    split, training = moons(5), find_recipe("moons", "cdot", "paper").training
    ours = errors(split, cdot_method(split, training, SEEDS))
    assert ours.max() < errors(split, network_method("baseline")(split, training, SEEDS)).min() - 5


def test_what_has_no_classes_or_no_numbers_is_refused() -> None:
    split = moons(2)
    with pytest.raises(CycleError, match="regression"):
        cdot_method(replace(split, metric="mae"), Training(), SEEDS)
    texts = replace(split.known, codes=np.ones((len(split.known.u), 1), np.int64))
    with pytest.raises(CycleError, match="categories"):
        cdot_method(replace(split, known=texts), Training(calendar=()), SEEDS)
