"""The paper's pictures, drawn from arrays; training and scoring happen before.

    decision_boundaries   2-Moons: what each method predicts everywhere, domain by domain
    weights_over_time     the Boolean set: each weight as a curve of time
    error_by_snapshots    error against how many snapshots were known
    error_by_trelu        error against how many layers are time-dependent

Legend: D domains   E members   T moments   n points   r points along a side of the plane
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

_INK, _FAINT, _HORIZON = "#333333", "#8a8a8a", "#2e8b57"
_CLASSES = ("#1f5fa8", "#d1662c")
_PALETTE = ("#1f5fa8", "#d1662c", "#2e8b57", "#7d5ba6", "#b03030", "#8a8a8a", "#c79a00", "#3aa6a6")
_MARKERS = "osD^vPX*"
_CHANCE = LinearSegmentedColormap.from_list("chance", ["#b9d0ea", "#fafafa", "#f6d2bd"])


@dataclass(frozen=True)
class Plane:
    """What methods predict everywhere on a plane, and the points that are there.

    `x` and `y` `(r,)` are the axes. By method, `chances` is the chance of class 1 `(D, r, r)`, y before x, and `errors`
    is percent of the domain's points `(D,)`. `points` are `(D, n, 2)`, `classes` `(D, n)`. Methods know the domains
    before `origin`.
    """

    domains: tuple[int, ...]
    origin: int
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    chances: Mapping[str, NDArray[np.float64]]
    errors: Mapping[str, NDArray[np.float64]]
    points: NDArray[np.float64]
    classes: NDArray[np.int64]


def decision_boundaries(plane: Plane, title: str) -> Figure:
    """A row a method, a column a domain: its points, the chance of class 1, and the line at one half."""
    methods = list(plane.chances)
    figure = _figure(2.3 * len(plane.domains) + 0.5, 2.3 * len(methods) + 0.8)
    grid = figure.subplots(len(methods), len(plane.domains), squeeze=False, sharex=True, sharey=True)
    for method, row in zip(methods, grid, strict=True):
        for place, axes in enumerate(row):
            _plane(axes, plane, method, place)
        row[0].set_ylabel(method, fontsize=11, color=_INK)
    for place, domain in enumerate(plane.domains):
        is_known = domain < plane.origin
        name = f"domain {domain}" if is_known else f"domain {domain}, unseen"
        grid[0, place].set_title(name, fontsize=10, color=_INK if is_known else _HORIZON)
    figure.suptitle(title, fontsize=11, color=_INK)
    return figure


def _plane(axes: Axes, plane: Plane, method: str, place: int) -> None:
    chance, points, classes = plane.chances[method][place], plane.points[place], plane.classes[place]
    corners = (plane.x[0], plane.x[-1], plane.y[0], plane.y[-1])
    axes.imshow(chance, cmap=_CHANCE, vmin=0, vmax=1, extent=corners, origin="lower", interpolation="bilinear")
    axes.contour(plane.x, plane.y, chance, levels=[0.5], colors=_INK, linewidths=1.4)
    for number, color in enumerate(_CLASSES):
        own = points[classes == number]
        axes.scatter(own[:, 0], own[:, 1], s=9, color=color, edgecolors="white", linewidths=0.3)
    axes.set(xticks=[], yticks=[], xlim=corners[:2], ylim=corners[2:])
    is_known = plane.domains[place] < plane.origin
    for spine in axes.spines.values():
        spine.set(color=_FAINT if is_known else _HORIZON, linewidth=0.8 if is_known else 1.8)
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    error = f"{plane.errors[method][place]:.1f} %"
    axes.text(0.97, 0.04, error, transform=axes.transAxes, ha="right", fontsize=9, color=_INK, bbox=box)


def weights_over_time(
    times: NDArray[np.float64],
    weights: Mapping[str, NDArray[np.float64]],
    names: Sequence[str],
    *,
    known: Sequence[float],
    target: float,
) -> Figure:
    """A panel a method: its weights `(E, T, len(names))` as curves of time, each member faint and their mean bold."""
    figure = _figure(3.7 * len(weights) + 0.4, 4.2)
    panels = figure.subplots(1, len(weights), squeeze=False, sharey=True)[0]
    for (method, curves), axes in zip(weights.items(), panels, strict=True):
        _quiet(axes)
        axes.axhline(0, color=_FAINT, linewidth=0.8)
        for moment in known:
            axes.axvline(moment, color=_FAINT, linewidth=0.8, linestyle=":")
        axes.axvline(target, color=_INK, linewidth=1.2, linestyle="--")
        for number, name in enumerate(names):
            color = _PALETTE[number]
            axes.plot(times, curves[..., number].T, color=color, alpha=0.18, linewidth=0.8)
            axes.plot(times, curves[..., number].mean(0), color=color, linewidth=2, label=name)
        axes.set_title(method, fontsize=10, color=_INK)
        axes.set_xlabel("time")
        axes.set_xticks([*known, target])
        axes.set_xlim(times[0], times[-1])
    panels[0].set_ylabel("weight")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    return figure


def error_by_snapshots(counts: Sequence[int], errors: Mapping[str, NDArray[np.float64]], unit: str) -> Figure:
    """Errors `(len(counts), E)` by method against the number of newest snapshots that a fit knew."""
    return _curves(counts, errors, "training snapshots, the newest", unit)


def error_by_trelu(counts: Sequence[int], errors: Mapping[str, NDArray[np.float64]], unit: str) -> Figure:
    """Errors `(len(counts), E)` by set or method against the number of TReLU layers, counted from the last layer."""
    return _curves(counts, errors, "TReLU layers, from the last", unit)


def _curves(counts: Sequence[int], errors: Mapping[str, NDArray[np.float64]], label: str, unit: str) -> Figure:
    """Means over members with a band of one deviation."""
    figure = _figure(6.4, 4.2)
    axes = figure.add_subplot()
    _quiet(axes)
    for number, (name, values) in enumerate(errors.items()):
        mean, deviation = values.mean(1), values.std(1)
        color, marker = _PALETTE[number % len(_PALETTE)], _MARKERS[number % len(_MARKERS)]
        axes.fill_between(counts, mean - deviation, mean + deviation, color=color, alpha=0.13, linewidth=0)
        axes.plot(counts, mean, color=color, marker=marker, markersize=5, linewidth=1.8, label=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel(f"error on the first unseen domain, {unit}")
    axes.legend(frameon=False, fontsize=9, title="mean ± one deviation over seeds", title_fontsize=8, alignment="left")
    return figure


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.03))
    FigureCanvasAgg(figure)
    return figure


def _quiet(axes: Axes) -> None:
    """Only the axes that are read, and a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(color=_FAINT, labelcolor=_INK, labelsize=9)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
