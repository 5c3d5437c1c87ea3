"""The pictures show what they are given, and the boundaries are computed in the split's own units."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.paper.pictures import (
    Plane,
    decision_boundaries,
    error_by_snapshots,
    error_by_trelu,
    weights_over_time,
)
from benchmarks.paper.plane import Asked, domain_points, survey
from benchmarks.paper.sets import SETS
from benchmarks.paper.sets.cut import DAY
from benchmarks.paper.splits import Split
from contracts.task import Training

RECIPE = Training(calendar=(), number_form="plain")
Curves = Callable[[Sequence[int], Mapping[str, NDArray[np.float64]], str], Figure]


def drawn(figure: Figure) -> list[Axes]:
    """The figure's panels, once it could be written."""
    file = io.BytesIO()
    figure.savefig(file, dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")
    return figure.axes


def words(panels: Sequence[Axes]) -> set[str]:
    return {text.get_text() for panel in panels for text in panel.texts}


def halves(split: Split, _training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Class 1 if the first encoded number is positive, at every time."""
    margin = split.unseen.dense[:, 0]
    return np.tile(np.stack([0 * margin, margin], axis=-1), (len(seeds), 1, 1))


def clock_hand(split: Split, _training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Class 1 everywhere at the time of the unseen domain and later, class 0 before."""
    margin = np.where(split.unseen.u >= 0, 1, -1).astype(np.float32)
    return np.tile(np.stack([0 * margin, margin], axis=-1), (len(seeds), 1, 1))


def plane() -> Plane:
    moons = SETS["moons_fresh"](Path())
    asked = {"halves": Asked(halves, RECIPE), "hand": Asked(clock_hand, RECIPE)}
    return survey(moons, asked, [7, 8, 9, 10], seeds=[0, 1], side=11)


def test_a_method_is_asked_on_the_grid_in_the_encoding_of_its_split() -> None:
    asked = plane()
    middle = SETS["moons_fresh"](Path()).split(9).known.dense
    known, _ = domain_points(SETS["moons_fresh"](Path()), range(9))
    flat = known.reshape(-1, 2)
    zero = np.interp(0, np.sort(middle[:, 0]), np.sort(flat[:, 0]))
    expected = asked.x > zero
    assert 0 < expected.sum() < len(expected)
    for chance in asked.chances["halves"]:
        np.testing.assert_array_equal(chance > 0.5, np.broadcast_to(expected, chance.shape))


def test_a_method_is_asked_at_the_moment_of_each_domain() -> None:
    chances = plane().chances["hand"]
    assert [bool((chance > 0.5).all()) for chance in chances] == [False, False, True, True]
    assert [bool((chance < 0.5).all()) for chance in chances] == [True, True, False, False]


def test_errors_are_those_of_the_domains_points() -> None:
    asked = plane()
    assert asked.errors["hand"].tolist() == [50, 50, 50, 50]
    moons = SETS["moons_fresh"](Path())
    for domain, error in zip((7, 8, 9), asked.errors["halves"], strict=False):
        ours, own = moons.split(9), moons.split(domain)
        rows = own.unseen.dense[:, 0] if domain == 9 else ours.known.dense[ours.known.windows == domain * DAY, 0]
        assert error == pytest.approx(100 * np.mean((rows > 0) != own.answers))


def test_boundaries_have_a_panel_for_each_method_and_domain() -> None:
    shown = plane()
    panels = drawn(decision_boundaries(shown, "two moons"))
    assert len(panels) == 2 * 4
    assert words(panels) == {f"{error:.1f} %" for errors in shown.errors.values() for error in errors}
    titles = [panel.get_title() for panel in panels[:4]]
    assert titles == ["domain 7", "domain 8", "domain 9, unseen", "domain 10, unseen"]


def test_weights_have_a_panel_for_each_method_with_every_curve() -> None:
    times = np.linspace(0, 3, 7)
    weights = np.arange(3 * 7 * 2, dtype=np.float64).reshape(3, 7, 2)
    panels = drawn(weights_over_time(times, {"a": weights, "b": -weights}, ["one", "two"], known=(0, 1), target=3))
    assert [panel.get_title() for panel in panels] == ["a", "b"]
    means = {line.get_label(): line.get_ydata() for line in panels[1].lines}
    np.testing.assert_allclose(np.asarray(means["two"], np.float64), -weights[..., 1].mean(0))


@pytest.mark.parametrize("picture", [error_by_snapshots, error_by_trelu])
def test_curves_show_the_mean_of_each_name(picture: Curves) -> None:
    errors = {"GI": np.array([[3.0, 5.0], [1.0, 2.0]]), "CIDA": np.array([[9.0, 9.0], [8.0, 6.0]])}
    (axes,) = drawn(picture([1, 2], errors, "%"))
    means = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in axes.lines}
    assert means == {"GI": [4.0, 1.5], "CIDA": [9.0, 7.0]}
    assert axes.get_ylabel().endswith("%")
