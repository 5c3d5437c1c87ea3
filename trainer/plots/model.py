"""Pictures of one version's answers on rows that no fit has used: reliability, confusion, residuals, paths over time.

`trainer.plots.matrix` draws the error matrix of a recipe; these pictures show the one version of a run.
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
from store.events.reading.columns import EventColumns
from trainer.data.encoder import class_positions
from trainer.plots.canvas import HORIZON, OURS, YARDSTICK, new_figure, save_figure

Outputs = Sequence[NDArray[np.float32]]

_NUM_BINS = 10
# Most classes that a picture names, and most whose names are written horizontally.
_MAX_CLASSES_SHOWN, _MAX_CLASSES_LEVEL = 30, 4
_NUM_PATHS = 6
_NUM_POINTS = 80
_BEFORE_WINDOWS = 2


def save_reliability(task: Task, classes: Sequence[str], outputs: Outputs, rows: EventColumns, file: Path) -> None:
    """Write a picture of each class against all others: observed frequency by predicted probability.

    Every row counts once for each class, in bins of equal width; a dot's area grows with its number of rows.
    """
    predicted = outputs[0].astype(np.float64)
    observed = class_positions(classes, rows)[:, None] == np.arange(len(classes))
    bins = np.minimum((predicted * _NUM_BINS).astype(np.int64), _NUM_BINS - 1)
    counts = np.bincount(bins.ravel(), minlength=_NUM_BINS)
    shown = counts > 0
    means, shares = (
        np.bincount(bins.ravel(), values.ravel().astype(np.float64), _NUM_BINS)[shown] / counts[shown]
        for values in (predicted, observed)
    )
    figure, axes = new_figure((5.5, 5.5), f"{task.name}: reliability on {len(rows)} withheld rows")
    axes.plot([0, 1], [0, 1], "--", color=YARDSTICK, label="perfectly calibrated")
    axes.plot(means, shares, "-", color=OURS, alpha=0.6)
    axes.scatter(means, shares, s=20 + 200 * counts[shown] / counts.max(), color=OURS, label="rows by class, binned")
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("observed frequency")
    axes.legend(loc="upper left", fontsize=8)
    save_figure(figure, file)


def save_confusion(task: Task, classes: Sequence[str], outputs: Outputs, rows: EventColumns, file: Path) -> None:
    """Write a picture: predicted against observed class, without classes that the fit never saw."""
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
    axes.set_xlabel("predicted class")
    axes.set_ylabel("observed class")
    save_figure(figure, file)


def save_residuals(task: Task, outputs: Outputs, rows: EventColumns, file: Path) -> None:
    """Write a picture: residuals (observed minus predicted) by prediction, with a band of ± the predicted scale."""
    mean, scale = (output.astype(np.float64) for output in outputs)
    order = np.argsort(mean)
    figure, axes = new_figure((7, 4.5), f"{task.name}: residuals on {len(rows)} withheld rows")
    axes.fill_between(mean[order], -scale[order], scale[order], color=OURS, alpha=0.15, label="± the predicted scale")
    axes.plot(mean, rows.labels - mean, "o", color=OURS, markersize=3, label="withheld rows")
    axes.axhline(0, color=YARDSTICK, linestyle="--")
    axes.set_xlabel(f"predicted {task.target.name}")
    axes.set_ylabel("observed minus predicted")
    axes.legend(loc="best", fontsize=8)
    save_figure(figure, file)


def save_paths(
    task: Task, manifest: Manifest, ask: Callable[[EventColumns], Outputs], rows: EventColumns, file: Path
) -> None:
    """Write a picture: answers to a few rows as time passes and features stay, into and past the horizon."""
    chosen = np.unique(np.linspace(0, len(rows) - 1, _NUM_PATHS).round().astype(np.intp))
    start = manifest.cutoff - _BEFORE_WINDOWS * manifest.window
    end = manifest.valid_until + manifest.window
    at = np.linspace(start, end, _NUM_POINTS).astype(np.int64)
    asked = replace(rows.select(np.repeat(chosen, _NUM_POINTS)), at=np.tile(at, len(chosen)))
    answers = ask(asked)[0].astype(np.float64)
    name = "mean"
    if manifest.classes:
        # Of two classes the second, as is usual for a probability; of more the most likely class at the start.
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
