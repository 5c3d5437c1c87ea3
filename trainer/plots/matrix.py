"""Pictures of runs and replays: errors by age, the whole matrix, and expected compared with realised errors."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from contracts.clock import count_windows, format_moment
from contracts.task import Task
from store.error_cells import Cell, error_of
from trainer.evaluation.horizon import AgeVerdict, HorizonVerdict
from trainer.monitoring.promises import Outcome
from trainer.plots.canvas import CLOSED, HORIZON, OURS, YARDSTICK, new_figure, save_figure


def save_error_by_age(task: Task, cutoff: int, verdict: HorizonVerdict, file: Path) -> None:
    """Write the picture of `draw_error_by_age`."""
    save_figure(draw_error_by_age(task, cutoff, verdict), file)


def draw_error_by_age(task: Task, cutoff: int, verdict: HorizonVerdict) -> Figure:
    """A picture: mean error and band by age, the naive error, and the validated ages shaded."""
    ending = verdict.reason or next((age.reason for age in verdict.ages if age.reason), "")
    figure, axes = new_figure((8, 4.5), f"{task.name}, cutoff {format_moment(cutoff)}\n{ending}".rstrip())
    shown = [age for age in verdict.ages if math.isfinite(age.mean)]
    if shown:
        numbers = [age.age for age in shown]
        axes.fill_between(
            numbers,
            [age.low for age in shown],
            [age.high for age in shown],
            color=OURS,
            alpha=0.15,
            label="90 % band of one future window",
        )
        axes.plot(numbers, [age.mean for age in shown], "o-", color=OURS, label=task.training.method)
        axes.plot(numbers, [age.naive for age in shown], "s--", color=YARDSTICK, label="naive: newest known window")
        for age in shown:
            axes.annotate(_note(age), (age.age, age.mean), textcoords="offset points", xytext=(0, 8), ha="center")
    if verdict.horizon:
        label = f"horizon: {count_windows(verdict.horizon)}"
        axes.axvspan(-0.5, verdict.horizon - 0.5, color=HORIZON, alpha=0.10, label=label)
    axes.set_xlim(-0.5, max(task.guard.max_age, 1) - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("age in windows: how long after its origin a fit is asked")
    axes.set_ylabel(task.error_name.replace("_", " "))
    if axes.has_data():
        axes.legend(loc="best", fontsize=8)
    return figure


def save_matrix(task: Task, cells: Sequence[Cell], file: Path) -> None:
    """Write a picture: our method's complete cells as a heat map, origins against target windows."""
    errors = {
        (cell.origin, cell.window): error_of(cell, task.error_name)
        for cell in cells
        if cell.method == task.training.method and cell.is_complete
    }
    origins, windows = (sorted({key[side] for key in errors}) for side in (0, 1))
    table = np.full((len(origins), len(windows)), np.nan)
    for (origin, window), error in errors.items():
        table[origins.index(origin), windows.index(window)] = error
    title = f"{task.name}: the error matrix of {task.training.method}"
    figure, axes = new_figure((8, 7), title, left=1.6, bottom=1.45)
    if errors:
        picture = axes.imshow(table, cmap="viridis", aspect="auto", interpolation="nearest")
        figure.colorbar(picture, ax=axes, label=task.error_name.replace("_", " "))
        for axis, moments in ((axes.xaxis, windows), (axes.yaxis, origins)):
            step = math.ceil(len(moments) / 16)
            axis.set_ticks(range(0, len(moments), step), [format_moment(moment)[:16] for moment in moments[::step]])
        axes.tick_params(axis="x", rotation=90)
        axes.tick_params(labelsize=7)
    axes.set_xlabel("target window")
    axes.set_ylabel("origin of the fit")
    save_figure(figure, file)


def save_expected_and_realised(task: Task, shown: Sequence[Outcome], closed: Collection[int], file: Path) -> None:
    """Write a picture: each window's realised error and the band that the answering version gave for it.

    `closed` are the starts (microseconds) of windows whose error closed a horizon.
    """
    figure, axes = new_figure((10, 4.5), f"{task.name}: error on each window, of the version that answers")
    if shown:
        moments = np.array([outcome.window for outcome in shown], "datetime64[us]")
        realised = np.array([outcome.realised for outcome in shown])
        low, high = [outcome.low for outcome in shown], [outcome.high for outcome in shown]
        axes.fill_between(moments, low, high, color=OURS, alpha=0.15, label="90 % band")
        axes.plot(moments, [outcome.expected for outcome in shown], "-", color=OURS, label="expected")
        is_closing = np.isin([outcome.window for outcome in shown], list(closed))
        for chosen, color, label in (
            (~is_closing, OURS, "realised"),
            (is_closing, CLOSED, "realised: closed a horizon"),
        ):
            axes.plot(moments[chosen], realised[chosen], "o", color=color, markersize=4, label=label)
        formatter = ConciseDateFormatter(axes.xaxis.get_major_locator())  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(formatter)
    axes.set_ylabel(task.error_name.replace("_", " "))
    if axes.has_data():
        axes.legend(loc="best", fontsize=8)
    save_figure(figure, file)


def _note(age: AgeVerdict) -> str:
    return f"{age.mean:.3g} (n={age.num_windows})"
