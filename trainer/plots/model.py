"""Pictures of what a version answers on rows that no fit has used: how sure it is, where it errs, how answers move.

`trainer.plots.matrix` draws what the error matrix says of a recipe; here it is the one version that a run is about.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.clock import count_windows, format_moment
from contracts.manifest import Manifest
from contracts.task import Task
from store.columns import EventColumns
from trainer.data.encoder import class_positions
from trainer.plots.canvas import HORIZON, OURS, YARDSTICK, new_figure, save_figure

Outputs = Sequence[NDArray[np.float32]]

_NUM_BINS = 10
# Most classes that are named in a picture, and most whose names stand side by side, not upright.
_MAX_CLASSES_SHOWN, _MAX_CLASSES_LEVEL = 30, 4
_NUM_PATHS = 6
_NUM_POINTS = 80
_BEFORE_WINDOWS = 2


def save_reliability(task: Task, classes: Sequence[str], outputs: Outputs, rows: EventColumns, file: Path) -> None:
    """Write a picture of one class against all: how often it came, by how likely it was said to be.

    Every row counts once for each of its classes, in bins of equal width; a dot's area grows with its rows.
    """
    said = outputs[0].astype(np.float64)
    came = class_positions(classes, rows)[:, None] == np.arange(len(classes))
    place = np.minimum((said * _NUM_BINS).astype(np.int64), _NUM_BINS - 1)
    counts = np.bincount(place.ravel(), minlength=_NUM_BINS)
    shown = counts > 0
    means, shares = (
        np.bincount(place.ravel(), values.ravel().astype(np.float64), _NUM_BINS)[shown] / counts[shown]
        for values in (said, came)
    )
    figure, axes = new_figure((5.5, 5.5), f"{task.name}: reliability on {len(rows)} withheld rows")
    axes.plot([0, 1], [0, 1], "--", color=YARDSTICK, label="what is said is what comes")
    axes.plot(means, shares, "-", color=OURS, alpha=0.6)
    axes.scatter(means, shares, s=20 + 200 * counts[shown] / counts.max(), color=OURS, label="classes of rows, binned")
    axes.set_xlabel("probability that was said")
    axes.set_ylabel("share that came")
    axes.legend(loc="upper left", fontsize=8)
    save_figure(figure, file)


def save_confusion(task: Task, classes: Sequence[str], outputs: Outputs, rows: EventColumns, file: Path) -> None:
    """Write a picture: which class was likeliest, by which came; classes that the fit never saw are left out."""
    truth, likeliest = class_positions(classes, rows), outputs[0].argmax(axis=1)
    is_known = truth >= 0
    table = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(table, (truth[is_known], likeliest[is_known]), 1)
    names = [name if len(name) <= 20 else f"{name[:19]}…" for name in classes]
    are_named, are_level = len(classes) <= _MAX_CLASSES_SHOWN, len(classes) <= _MAX_CLASSES_LEVEL
    room = 0.5 + (0.1 * max(map(len, names)) if are_named else 0.35)
    title = f"{task.name}: confusion on {int(is_known.sum())} withheld rows"
    figure, axes = new_figure((6.5, 6), title, left=room, bottom=0.6 if are_level else room)
    picture = axes.imshow(table, cmap="Blues", vmin=0, aspect="auto")
    figure.colorbar(picture, ax=axes, label="rows")
    if are_named:
        axes.set_xticks(range(len(classes)), names, rotation=0 if are_level else 90)
        axes.set_yticks(range(len(classes)), names)
        for (row, column), count in np.ndenumerate(table):
            color = "white" if count > table.max() / 2 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=8)
    axes.set_xlabel("likeliest by the answer")
    axes.set_ylabel("what came")
    save_figure(figure, file)


def save_residuals(task: Task, outputs: Outputs, rows: EventColumns, file: Path) -> None:
    """Write a picture: what came less what was said, over what was said, with one promised scale to either side."""
    mean, scale = (output.astype(np.float64) for output in outputs)
    order = np.argsort(mean)
    figure, axes = new_figure((7, 4.5), f"{task.name}: residuals on {len(rows)} withheld rows")
    axes.fill_between(mean[order], -scale[order], scale[order], color=OURS, alpha=0.15, label="± the promised scale")
    axes.plot(mean, rows.labels - mean, "o", color=OURS, markersize=3, label="withheld rows")
    axes.axhline(0, color=YARDSTICK, linestyle="--")
    axes.set_xlabel(f"{task.target.name} as it was said")
    axes.set_ylabel("what came less what was said")
    axes.legend(loc="best", fontsize=8)
    save_figure(figure, file)


def save_paths(
    task: Task, manifest: Manifest, ask: Callable[[EventColumns], Outputs], rows: EventColumns, file: Path
) -> None:
    """Write a picture: answers to a few rows as time moves on and their features stay, into and past the horizon."""
    chosen = np.unique(np.linspace(0, len(rows) - 1, _NUM_PATHS).round().astype(np.intp))
    start = manifest.cutoff - _BEFORE_WINDOWS * manifest.window
    end = manifest.valid_until + manifest.window
    at = np.linspace(start, end, _NUM_POINTS).astype(np.int64)
    asked = replace(rows.select(np.repeat(chosen, _NUM_POINTS)), at=np.tile(at, len(chosen)))
    answers = ask(asked)[0].astype(np.float64)
    name = "mean"
    if manifest.classes:
        # Of two classes the second, as a probability is usually read; of more the one that is likeliest at the start.
        first = answers[::_NUM_POINTS].argmax(axis=1) if len(manifest.classes) > 2 else np.ones(len(chosen), np.intp)
        answers = answers[np.arange(len(answers)), np.repeat(first, _NUM_POINTS)]
        name = f"probability of {manifest.classes[1]}" if len(manifest.classes) == 2 else "probability of a class"
    title = f"{task.name}, cutoff {format_moment(manifest.cutoff)}: answers to {len(chosen)} rows over time"
    figure, axes = new_figure((9, 4.5), title)
    moments = at.view("datetime64[us]")
    for path in answers.reshape(len(chosen), _NUM_POINTS):
        axes.plot(moments, path, "-", linewidth=1.2)
    bounds: Any = np.array([manifest.cutoff, manifest.valid_until], "datetime64[us]")
    axes.axvline(bounds[0], color=YARDSTICK, linestyle="--", label="cutoff")
    axes.axvspan(*bounds, color=HORIZON, alpha=0.10, label=f"horizon: {count_windows(manifest.horizon)}")
    axes.set_ylabel(name)
    axes.tick_params(axis="x", labelsize=7)
    axes.legend(loc="best", fontsize=8)
    save_figure(figure, file)
