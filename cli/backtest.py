"""What `morrow backtest` prints: the error matrix by age, and what the horizon rule makes of it."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from contracts.catalog import find_task
from contracts.clock import format_moment, to_micros
from contracts.database import make_engine
from contracts.matrix import AgeVerdict, Verdict
from contracts.task import Task
from trainer.backtest import Report, backtest
from trainer.settings import TrainerSettings


def print_backtest(settings: TrainerSettings, database_url: str, task_name: str, now: Callable[[], datetime]) -> None:
    """Fit and score what the task's matrix lacks as of now, then print its ages with the verdict. Raises CycleError."""
    console = Console()
    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            schema = find_task(connection, task_name)
        cutoff = schema.task.clock.window_start(to_micros(now()))
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            cells, verdict = backtest(engine, schema, cutoff, settings=settings, now=now, report=_follow(progress))
    finally:
        engine.dispose()
    console.print(f"{len(cells)} cells as of {format_moment(cutoff)}")
    if verdict.ages:
        console.print(_table(schema.task, verdict))
    for age in verdict.ages:
        if age.reason:
            console.print(f"Age {age.age} is not valid: {age.reason}.", markup=False, highlight=False)
    console.print(_sentence(schema.task, verdict))


def _follow(progress: Progress) -> Report:
    line = progress.add_task("Reading events …", total=None)

    def report(event: str, /, **facts: Any) -> None:
        match event:
            case "matrix.missing":
                words = f"{facts['num_to_fit']} origins to fit, {facts['num_kept']} kept fits to score …"
            case "epoch.ended":
                words = f"{facts['phase']}: epoch {facts['epoch']} of {facts['num_epochs']}, loss {facts['loss']:.4f} …"
            case "origin.scored":
                words = f"Scored the fit of {format_moment(facts['origin'])} …"
            case _:
                return
        progress.update(line, description=words)

    return report


def _table(task: Task, verdict: Verdict) -> Table:
    """One line an age at 80 columns; what is wrong with an age is a sentence and follows below."""
    title = f"{task.name}: {task.error_name} by age"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    for heading in ("age", "windows", "mean", "band", "naive", "pairs", "increase", "allowed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for age in verdict.ages:
        table.add_row(*_cells(age))
    return table


def _cells(age: AgeVerdict) -> tuple[str, ...]:
    return (
        str(age.age),
        str(age.num_windows),
        _figure(age.mean),
        f"{_figure(age.low)} … {_figure(age.high)}",
        _figure(age.naive),
        str(age.num_pairs),
        _figure(age.increase),
        _figure(age.allowed),
    )


def _figure(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def _sentence(task: Task, verdict: Verdict) -> str:
    rule = f"Tolerance {task.guard.tolerance:.0%} of the fresh error, at least {task.guard.min_pairs} pairs."
    if verdict.horizon == 0:
        return f"No horizon: {verdict.reason}. {rule}"
    return f"Horizon: {verdict.horizon} of at most {task.guard.max_age} windows. {rule}"
