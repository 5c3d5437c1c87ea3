"""What `morrow replay` prints: window by window what would have been served, and how right the promises were."""

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
from contracts.clock import format_moment, to_micros
from contracts.errors import Fault, InvalidInput
from service.web.html import four_figures
from store.catalog import find_task
from store.database import make_engine
from trainer.data.snapshot import read
from trainer.evaluation.backtest import Report
from trainer.evaluation.release_gates import first_failure
from trainer.monitoring.outcomes import Outcome
from trainer.network.device import choose_device
from trainer.plots.matrix import save_expected_and_realised, save_matrix
from trainer.replay.replay import RIVALS, Replay, ReplayedCutoff, replay
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

# Rules that come before a fit.
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
    """Replay a task between two moments (RFC 3339), as known at the last of them. Raises CycleError, InvalidInput."""
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
        reading = read(engine, schema, cutoff, began)
    finally:
        engine.dispose()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        walked = replay(
            reading,
            settings=settings,
            device=choose_device(settings),
            report=_follow(progress),
            first=origin,
            rivals=RIVALS if with_rivals else (),
        )
    console.print(windows_table(walked))
    for sentence in [*held_cutoffs(walked), *summary(walked)]:
        console.print(sentence, highlight=False, markup=False)
    if json_file is not None:
        json_file.write_text(json.dumps(as_document(walked), indent=2, allow_nan=False) + "\n")
    if pictures is not None:
        save_pictures(walked, pictures)


def save_pictures(walked: Replay, folder: Path) -> None:
    """The matrix as a heat map, and expected beside realised errors."""
    folder.mkdir(parents=True, exist_ok=True)
    save_matrix(walked.task, list(walked.cells.values()), folder / MATRIX_PICTURE)
    shut = [row.valid_until for row in closings(walked)]
    save_expected_and_realised(walked.task, served_outcomes(walked), shut, folder / BAND_PICTURE)


def _follow(progress: Progress) -> Report:
    line = progress.add_task("Fitting …", total=None)

    def report(event: str, /, **facts: Any) -> None:
        match event:
            case "replay.began":
                words = f"{facts['num_origins']} origins to fit …"
            case "epoch.ended":
                words = f"{facts['phase']}: epoch {facts['epoch']} of {facts['num_epochs']}, loss {facts['loss']:.4f} …"
            case "replay.walked":
                words = f"Walked past {format_moment(facts['origin'])} …"
            case "rival.began":
                words = f"Fitting {facts['method']} at {facts['num_origins']} origins …"
            case _:
                return
        progress.update(line, description=words)

    return report


def windows_table(walked: Replay) -> Table:
    """One line a window at 80 columns: who answers, how many ages its cutoff validates, errors, and what became of it.

    `closed` is a window whose error closed a horizon, most often of the version that had just been released. Methods
    that were scored nowhere have no column.
    """
    title = f"{walked.task.name}: {walked.task.error_name} on each window"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    errors = [errors_on_window(walked, cutoff) for cutoff in walked.cutoffs]
    methods = [method for method in errors[0] if any(error[method] is not None for error in errors)]
    for heading in ("window", "model", "ages", *map(method_heading, methods)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("cycle", no_wrap=True)
    shut = {row.valid_until for row in closings(walked)}
    for cutoff, error in zip(walked.cutoffs, errors, strict=True):
        table.add_row(*_row(walked, cutoff, [error[method] for method in methods], shut))
    return table


def method_heading(method: str) -> str:
    """The heading of a method's column, narrow enough for 80 columns."""
    return method.replace("_", "_\n")


def _row(walked: Replay, cutoff: ReplayedCutoff, errors: Sequence[float | None], shut: set[int]) -> tuple[str, ...]:
    moment = format_moment(cutoff.origin)
    failure = first_failure(cutoff.decisions)
    state = "released" if failure is None else "skipped" if failure.rule in SKIPPING_RULES else "held"
    if cutoff.origin in shut:
        state = "closed" if failure is None else f"{state}, closed"
    return (
        moment[:10] if walked.task.window >= timedelta(days=1) else moment[:16],
        cutoff.served[0] if cutoff.served else "–",
        str(cutoff.horizon),
        *map(four_figures, errors),
        state,
    )


def held_cutoffs(walked: Replay) -> list[str]:
    """A sentence for each cutoff that released nothing though it had windows enough."""
    return [
        f"{format_moment(cutoff.origin)[:16]}: {failure.reason}."
        for cutoff in walked.cutoffs
        if (failure := first_failure(cutoff.decisions)) and failure.rule not in (*SKIPPING_RULES, "min_pairs")
    ]


def summary(walked: Replay) -> list[str]:
    """The figures of the whole replay, a sentence each."""
    outcomes = find_outcomes(walked)
    rows = closings(walked)
    windows = {row.valid_until for row in rows}
    return [
        f"Inside the 90 % band: {_share(inside_band(outcomes))} of {len(outcomes)} errors by age and window.",
        f"Inside 90 % intervals or sets: {_share(realised_coverage(outcomes))} of the scored rows.",
        _before_and_after(walked, outcomes),
        f"Horizons closed: {len(rows)}, by the errors of {len(windows)} windows.",
        f"Seconds: {_seconds([cutoff.seconds for cutoff in walked.cutoffs])}.",
    ]


def _before_and_after(walked: Replay, outcomes: Sequence[Outcome]) -> str:
    """What a horizon that ended before `max_age` was worth: the error before its end beside that after it."""
    before, after = errors_by_horizon(walked, outcomes)
    if before is None or after is None:
        return "No model was scored both before and after the end of its horizon."
    difference = paired_difference(walked, outcomes)
    same = ""
    if difference is not None:
        compared = "more" if difference > 0 else "less"
        same = f"; on the same windows older models erred by {four_figures(abs(difference))} {compared}"
    return (
        f"Models erred {four_figures(before)} before the end of their horizon and {four_figures(after)} after it{same}."
    )


def _seconds(stages: Sequence[Mapping[str, float]]) -> str:
    names = dict.fromkeys(name for stage in stages for name in stage)
    return ", ".join(f"{name} {sum(stage.get(name, 0.0) for stage in stages):.1f}" for name in names)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
