"""The output of `morrow backtest`: the error matrix by age, and the verdict of the horizon rule."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from sqlalchemy import Connection

from cli.client.options import parse_moment_option
from cli.client.output import print_json
from contracts.clock import count_windows, format_moment, to_micros
from contracts.errors import Fault, InvalidInput
from contracts.quality.remedies import suggest
from contracts.task import Task
from contracts.verdict import COUNTED_WINDOWS
from service.web.html import four_figures
from store.engine import make_engine
from store.error_cells import Cell, error_of
from store.events.reading.counts import find_newest
from store.tasks.catalog import Schema, find_task
from trainer.evaluation.backtest import backtest
from trainer.evaluation.horizon import AgeVerdict, HorizonVerdict, horizon_rule, judge_ages
from trainer.evaluation.suspect_windows import counted
from trainer.plots.matrix import save_matrix
from trainer.progress import Report
from trainer.settings import TrainerSettings

# Most ages that fit next to the target windows in 80 columns.
_MAX_AGES = 8


def print_backtest(
    settings: TrainerSettings,
    database_url: str,
    task_name: str,
    now: Callable[[], datetime],
    *,
    as_of: str | None,
    origins: int | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Fit and score the cells that the task's matrix lacks, then print the matrix, its ages and the verdict.

    `as_of` (RFC 3339) is rounded down to a window boundary. If it is not given, the boundary after the newest window
    with events is used, so streams that ended in the past work too. `origins` is the number of windows to score.
    `picture` is a file for the matrix as a heat map. Raises CycleError, InvalidInput.
    """
    console = Console()
    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            schema = find_task(connection, task_name)
            cutoff = find_cutoff(connection, schema, to_micros(now()), as_of)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            cost = _Cost(_follow(progress))
            cells, verdict = backtest(
                engine, schema, cutoff, settings=settings, now=now, report=cost.follow, num_windows=origins
            )
    finally:
        engine.dispose()
    if picture is not None:
        save_matrix(schema.task, cells, picture)
    if as_json:
        print_json(_document(schema.task, cutoff, cells, verdict, cost.seconds_per_origin()))
        return
    console.print(
        f"{len(cells):,} errors of all methods are known as of {format_moment(cutoff)}"
        f"{'' if as_of else ', the end of the newest complete window with events'}. "
        f"The table shows those of {schema.task.training.method} at the first {_MAX_AGES} ages.",
        highlight=False,
    )
    if cells:
        console.print(_matrix(schema.task, cells))
    ages = verdict.ages or _judge_ages(schema.task, cells)
    console.print(ages_table(schema.task, ages))
    for age in ages:
        if age.reason:
            console.print(f"Age {age.age} is not valid: {age.reason}.", markup=False, highlight=False)
    guard = schema.task.guard
    broken = next((age for age in ages if age.reason), None)
    if (
        broken is not None
        and (remedy := suggest(broken, guard.tolerance, guard.max_error, is_tuned=_is_tuned(schema))) is not None
    ):
        console.print(f"{remedy}.", markup=False, highlight=False)
    console.print(_sentence(schema.task, verdict))
    more = _describe_more(schema.task, _count_scored(schema.task, cells), verdict, origins, cost.seconds_per_origin())
    console.print(more, markup=False, highlight=False)


def _is_tuned(schema: Schema) -> bool:
    """Whether the task asks the trainer to search for a recipe."""
    return schema.written.training.tune is True


def find_cutoff(connection: Connection, schema: Schema, now: int, as_of: str | None) -> int:
    """The boundary to backtest from, microseconds. Raises InvalidInput."""
    clock = schema.task.clock
    moment = now if as_of is None else parse_moment_option("--as-of", as_of)
    if moment > now:
        raise InvalidInput([Fault("--as-of", "lies in the future")])
    cutoff = clock.window_start(moment)
    newest = None if as_of else find_newest(connection, schema.task_id, before=cutoff)
    return cutoff if newest is None else clock.window_start(newest) + clock.window


def _judge_ages(task: Task, cells: Sequence[Cell]) -> tuple[AgeVerdict, ...]:
    """The figures of each age that exist already, if too few windows allow no verdict."""
    return judge_ages(counted(task, cells), horizon_rule(task))


class _Cost:
    """Counts the fits of a backtest and their time, and passes each report on."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._num_fits = 0
        self._began = self._ended = time.monotonic()

    def follow(self, event: str, /, **facts: Any) -> None:
        """Count what is reported."""
        if event == "matrix.missing":
            if not self._num_fits:
                self._began = time.monotonic()
            self._num_fits += int(facts["num_to_fit"])
        self._ended = time.monotonic()
        self._report(event, **facts)

    def seconds_per_origin(self) -> float | None:
        """The mean time of a fit; None if every origin was fitted before."""
        return (self._ended - self._began) / self._num_fits if self._num_fits else None


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


def _document(
    task: Task, cutoff: int, cells: Sequence[Cell], verdict: HorizonVerdict, seconds_per_origin: float | None
) -> dict[str, Any]:
    """The matrix, the verdict on each age and the horizon; missing figures are null."""
    return {
        "task": task.name,
        "as_of": format_moment(cutoff),
        "error_name": task.error_name,
        "horizon": verdict.horizon,
        "reason": verdict.reason,
        "missing_windows": verdict.missing_windows,
        "num_scored_windows": _count_scored(task, cells),
        "num_known_windows": verdict.num_known,
        "seconds_per_origin": seconds_per_origin,
        "cells": [
            {
                "method": cell.method,
                "origin": format_moment(cell.origin),
                "window": format_moment(cell.window),
                "age": task.clock.age(cell.origin, cell.window),
                "num_rows": cell.num_rows,
                "error": error_of(cell, task.error_name),
            }
            for cell in cells
        ],
        "ages": [
            {name: _json_value(value) for name, value in asdict(age).items()}
            for age in verdict.ages or _judge_ages(task, cells)
        ],
    }


def _json_value(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _matrix(task: Task, cells: Sequence[Cell]) -> Table:
    """A row per target window and a column per age of the fit, so a row holds one window's errors."""
    found = {
        (cell.window, task.clock.age(cell.origin, cell.window)): cell
        for cell in cells
        if cell.method == task.training.method
    }
    ages = sorted({age for _, age in found})[:_MAX_AGES]
    title = f"{task.name}: {task.error_name} by target window and age of the fit"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("window", no_wrap=True)
    for heading in ("rows", *(f"age {age}" for age in ages)):
        table.add_column(heading, justify="right", no_wrap=True)
    for window in sorted({window for window, _ in found}):
        row = [found.get((window, age)) for age in ages]
        known = [cell for cell in row if cell is not None]
        mark = "" if all(cell.is_complete for cell in known) else "…"
        count = str(known[0].num_rows) + mark if known else "–"
        figures = ("–" if cell is None else _figure(error_of(cell, task.error_name)) for cell in row)
        table.add_row(format_moment(window)[:16], count, *figures)
    return table


def ages_table(task: Task, ages: Sequence[AgeVerdict]) -> Table:
    """One line per age, at most 80 columns; the reason why an age is not valid follows below as a sentence.

    `growth` is the mean increase over age 0 on the same windows. Its upper 95 % bound `bound` must be within `allowed`.
    """
    title = f"{task.name}: {task.error_name} by age"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    for heading in ("age", "mean", "band", "naive", "pairs", "growth", "bound", "allowed", "valid"):
        table.add_column(heading, justify="right", no_wrap=True)
    for age in ages:
        table.add_row(*_cells(age))
    return table


def _cells(age: AgeVerdict) -> tuple[str, ...]:
    return (
        str(age.age),
        _figure(age.mean),
        f"{_figure(age.low)} … {_figure(age.high)}",
        _figure(age.naive),
        str(age.num_pairs),
        _figure(age.growth),
        _figure(age.increase),
        _figure(age.allowed),
        "yes" if age.is_valid else "no",
    )


def _figure(value: float | None) -> str:
    """A figure of six characters for all usual values, whatever the unit, so that a table fits its line."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.4f}" if abs(value) < 1 else four_figures(value)


def _count_scored(task: Task, cells: Sequence[Cell]) -> int:
    """The complete windows with an error of the task's method."""
    return len({cell.window for cell in cells if cell.method == task.training.method and cell.is_complete})


def _describe_more(
    task: Task, num_scored: int, verdict: HorizonVerdict, origins: int | None, seconds_per_origin: float | None
) -> str:
    """How many windows stand behind the verdict, and what more of them would cost unless all were asked for."""
    behind = f"{count_windows(num_scored)} of the {verdict.num_known} with complete labels are scored."
    most = min(verdict.num_known, COUNTED_WINDOWS)
    if most <= max(num_scored, origins or 0):
        return behind
    cost = ""
    if seconds_per_origin is not None:
        cost = f" (about {_say_seconds((most - num_scored) * seconds_per_origin)}, if each fit takes as long as now)"
    more = f"{most} of them" if most < verdict.num_known else f"all {most}"
    return f"{behind} To score {more}: morrow backtest {task.name} --origins {most}{cost}."


def _say_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _sentence(task: Task, verdict: HorizonVerdict) -> str:
    rule = f"Tolerance {task.guard.tolerance:.0%} of the fresh error, at least {task.guard.min_pairs} pairs."
    if verdict.horizon == 0:
        return f"No horizon: {verdict.reason}. {rule}"
    return f"Horizon: {verdict.horizon} of at most {task.guard.max_age} windows. {rule}"
