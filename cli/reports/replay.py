"""The output of `morrow replay`: which version each window would have had, and how right the promises were."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.client.options import parse_moment_option
from contracts.clock import count_windows, format_moment, to_micros
from contracts.errors import Fault, InvalidInput
from contracts.verdict import first_failure
from service.web.html import four_figures
from store.engine import make_engine
from store.tasks.catalog import find_task
from trainer.data.replica import find_replica
from trainer.data.snapshot import read
from trainer.monitoring.promises import Outcome
from trainer.network.device import choose_device
from trainer.plots.matrix import save_expected_and_realised, save_matrix
from trainer.progress import Report
from trainer.replay.replay import RIVALS, Replay, ReplayedCutoff, first_needed, replay
from trainer.replay.report import (
    as_document,
    closings,
    errors_by_horizon,
    errors_on_window,
    find_outcomes,
    inside_band,
    paired_difference,
    realised_coverage,
    served_outcomes,
)
from trainer.settings import TrainerSettings

# Rules that are checked before a fit.
SKIPPING_RULES = ("min_rows", "classes")
MATRIX_PICTURE, BAND_PICTURE = "matrix.png", "expected_and_realised.png"


def print_replay(
    settings: TrainerSettings,
    database_url: str,
    task_name: str,
    *,
    first: str | None,
    last: str | None,
    json_file: Path | None,
    pictures: Path | None,
    with_rivals: bool,
    now: Callable[[], datetime],
) -> None:
    """Replay a task between two moments (RFC 3339), as known at the later one. Raises CycleError, InvalidInput."""
    console = Console()
    began = now()
    origin = None if first is None else parse_moment_option("--from", first)
    cutoff = to_micros(began) if last is None else min(parse_moment_option("--to", last), to_micros(began))
    if origin is not None and origin >= cutoff:
        raise InvalidInput([Fault("--from", f"is not before {'now' if last is None else '--to'}")])
    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            schema = find_task(connection, task_name)
        since, replica = first_needed(schema.task, origin), find_replica(settings)
        reading = read(engine, schema, cutoff, began, since=since, replica=replica)
    finally:
        engine.dispose()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        replayed = replay(
            reading,
            settings=settings,
            device=choose_device(settings),
            report=_follow(progress),
            first=origin,
            rivals=RIVALS if with_rivals else (),
        )
    console.print(windows_table(replayed))
    for sentence in [*held_cutoffs(replayed), *summary(replayed)]:
        console.print(sentence, highlight=False, markup=False)
    if json_file is not None:
        json_file.write_text(json.dumps(as_document(replayed), indent=2, allow_nan=False) + "\n")
    if pictures is not None:
        save_pictures(replayed, pictures)


def save_pictures(replayed: Replay, folder: Path) -> None:
    """Save the matrix as a heat map, and a picture of expected and realised errors."""
    folder.mkdir(parents=True, exist_ok=True)
    save_matrix(replayed.task, list(replayed.cells.values()), folder / MATRIX_PICTURE)
    closed = [row.valid_until for row in closings(replayed)]
    save_expected_and_realised(replayed.task, served_outcomes(replayed), closed, folder / BAND_PICTURE)


def _follow(progress: Progress) -> Report:
    line = progress.add_task("Fitting …", total=None)

    def report(event: str, /, **facts: Any) -> None:
        match event:
            case "replay.began":
                words = f"{facts['num_origins']} origins to fit …"
            case "epoch.ended":
                words = f"{facts['phase']}: epoch {facts['epoch']} of {facts['num_epochs']}, loss {facts['loss']:.4f} …"
            case "replay.walked":
                words = f"Replayed {format_moment(facts['origin'])} …"
            case "rival.began":
                words = f"Fitting {facts['method']} at {facts['num_origins']} origins …"
            case _:
                return
        progress.update(line, description=words)

    return report


def windows_table(replayed: Replay) -> Table:
    """One line per window in 80 columns: the version that answers, the ages that its cutoff validates, errors, state.

    `closed` marks a window whose error closed a horizon, usually that of the version just released. A method without
    any score has no column.
    """
    title = f"{replayed.task.name}: {replayed.task.error_name} on each window"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    errors = [errors_on_window(replayed, cutoff) for cutoff in replayed.cutoffs]
    methods = [method for method in errors[0] if any(error[method] is not None for error in errors)]
    for heading in ("window", "model", "ages", *map(method_heading, methods)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("cycle", no_wrap=True)
    closed = {row.valid_until for row in closings(replayed)}
    for cutoff, error in zip(replayed.cutoffs, errors, strict=True):
        table.add_row(*_row(replayed, cutoff, [error[method] for method in methods], closed))
    return table


def method_heading(method: str) -> str:
    """The heading of a method's column, narrow enough for 80 columns."""
    return method.replace("_", "_\n")


def _row(replayed: Replay, cutoff: ReplayedCutoff, errors: Sequence[float | None], closed: set[int]) -> tuple[str, ...]:
    moment = format_moment(cutoff.origin)
    failure = first_failure(cutoff.decisions)
    state = "released" if failure is None else "skipped" if failure.rule in SKIPPING_RULES else "held"
    if cutoff.origin in closed:
        state = "closed" if failure is None else f"{state}, closed"
    return (
        moment[:10] if replayed.task.window >= timedelta(days=1) else moment[:16],
        cutoff.served[0] if cutoff.served else "–",
        str(cutoff.horizon),
        *map(four_figures, errors),
        state,
    )


def held_cutoffs(replayed: Replay) -> list[str]:
    """A sentence for each cutoff that released nothing although it had enough windows."""
    return [
        f"{format_moment(cutoff.origin)[:16]}: {failure.reason}."
        for cutoff in replayed.cutoffs
        if (failure := first_failure(cutoff.decisions)) and failure.rule not in (*SKIPPING_RULES, "min_pairs")
    ]


def summary(replayed: Replay) -> list[str]:
    """The figures of the whole replay, one sentence each."""
    outcomes = find_outcomes(replayed)
    rows = closings(replayed)
    windows = {row.valid_until for row in rows}
    return [
        f"Inside the 90 % band: {_share(inside_band(outcomes))} of {len(outcomes)} errors by age and window.",
        f"Inside 90 % intervals or sets: {_share(realised_coverage(outcomes))} of the scored rows.",
        _before_and_after(replayed, outcomes),
        f"Horizons closed: {len(rows)}, by the errors of {count_windows(len(windows))}.",
        f"Seconds: {_seconds([cutoff.seconds for cutoff in replayed.cutoffs])}.",
    ]


def _before_and_after(replayed: Replay, outcomes: Sequence[Outcome]) -> str:
    """The error before the end of a horizon shorter than `max_age`, compared with the error after it."""
    before, after = errors_by_horizon(replayed, outcomes)
    if before is None or after is None:
        return "No model was scored both before and after the end of its horizon."
    difference = paired_difference(replayed, outcomes)
    same = ""
    if difference is not None:
        compared = "larger" if difference > 0 else "smaller"
        same = f"; on the same windows the errors of older models are {compared} by {four_figures(abs(difference))}"
    return (
        f"Models had a mean error of {four_figures(before)} before the end of their horizon "
        f"and of {four_figures(after)} after it{same}."
    )


def _seconds(stages: Sequence[Mapping[str, float]]) -> str:
    names = dict.fromkeys(name for stage in stages for name in stage)
    return ", ".join(f"{name} {sum(stage.get(name, 0.0) for stage in stages):.1f}" for name in names)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
