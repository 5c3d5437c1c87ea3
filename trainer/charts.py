"""Pictures that a run keeps: how the error grows with age, and why the horizon ends where it does."""

import math
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from contracts.clock import format_moment
from contracts.matrix import AgeVerdict, Verdict
from contracts.task import Task

_OURS, _NAIVE, _HORIZON = "#1f5fa8", "#8a8a8a", "#2e8b57"


def save_error_by_age(task: Task, cutoff: int, verdict: Verdict, file: Path) -> None:
    """Write a PNG: mean error and band by age, naive beside it, the validated ages shaded."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = [age for age in verdict.ages if math.isfinite(age.mean)]
    if shown:
        numbers = [age.age for age in shown]
        axes.fill_between(
            numbers,
            [age.low for age in shown],
            [age.high for age in shown],
            color=_OURS,
            alpha=0.15,
            label="90 % band of one future window",
        )
        axes.plot(numbers, [age.mean for age in shown], "o-", color=_OURS, label=task.training.method)
        axes.plot(numbers, [age.naive for age in shown], "s--", color=_NAIVE, label="naive: newest known window")
        for age in shown:
            axes.annotate(_note(age), (age.age, age.mean), textcoords="offset points", xytext=(0, 8), ha="center")
    if verdict.horizon:
        axes.axvspan(
            -0.5, verdict.horizon - 0.5, color=_HORIZON, alpha=0.10, label=f"horizon: {verdict.horizon} windows"
        )
    axes.set_xlim(-0.5, max(task.guard.max_age, 1) - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("age in windows: how long after its origin a fit is asked")
    axes.set_ylabel(task.error_name.replace("_", " "))
    ending = verdict.reason or next((age.reason for age in verdict.ages if age.reason), "")
    axes.set_title(f"{task.name}, cutoff {format_moment(cutoff)}\n{ending}", fontsize=10)
    if axes.has_data():
        axes.legend(loc="best", fontsize=8)
    figure.savefig(file, dpi=110)


def _note(age: AgeVerdict) -> str:
    return f"{age.mean:.3g} (n={age.num_windows})"
