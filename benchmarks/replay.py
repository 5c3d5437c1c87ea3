"""Replays real streams: whether bands, intervals and horizons keep their word, and how GI compares with its rivals.

Each stream is imported into a PostgreSQL of its own and walked as if its task had been retrained from the first event
on. Recipes were chosen on the first windows alone (`python -m benchmarks recipes`); only the origins after them are
printed. No constant of Morrow differs between the streams.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.datasets import CHOSEN_ON, DATASETS, default_folder, load, split_names
from benchmarks.output import add_output_options, record_run
from benchmarks.replay_figures import count_windows, mean_errors, pooled_figures, replay_figures
from benchmarks.streams import import_dataset, temporary_store
from cli.reports.replay import held_cutoffs, method_heading, save_pictures, summary, windows_table
from contracts.clock import format_moment
from trainer.data.snapshot import Reading
from trainer.monitoring.promises import Outcome
from trainer.network.device import choose_device
from trainer.replay.replay import RIVALS, Replay, replay
from trainer.replay.report import (
    as_document,
    errors_by_horizon,
    find_outcomes,
    inside_band,
    paired_difference,
    realised_coverage,
)
from trainer.settings import TrainerSettings, count_threads

# Networks side by side that a small machine's memory holds with the rows of the longest stream.
_MAX_MEMBERS = 32
_ERRORS = {"log_loss": "log-loss", "mean_absolute_error": "absolute"}


def main(arguments: list[str]) -> None:
    """Print each stream's replay, then all of them in two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks replay", description=__doc__)
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the data sets")
    parser.add_argument("--sets", default=",".join(DATASETS), help="names of data sets, separated by commas")
    parser.add_argument("--pictures", type=Path, help="folder to write pictures into, one folder a data set")
    parser.add_argument("--no-rivals", action="store_true", help="fit GI alone")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    console = Console(width=80)
    replays: dict[str, Replay] = {}
    seconds: dict[str, float] = {}
    for name in split_names(options.sets):
        began = time.monotonic()
        with temporary_store() as engine:
            reading = import_dataset(engine, load(name, options.data), datetime.now(UTC))
        replays[name] = walk(reading, CHOSEN_ON[name], () if options.no_rivals else RIVALS, console)
        console.print(windows_table(replays[name]))
        for sentence in [*held_cutoffs(replays[name]), *summary(replays[name])]:
            console.print(sentence, highlight=False, markup=False)
        seconds[name] = time.monotonic() - began
        console.print(f"{seconds[name]:.0f} s with import and rivals.\n", highlight=False)
        if options.pictures:
            save_pictures(replays[name], options.pictures / name)
    console.print(promises_table(replays))
    console.print(methods_table(replays))
    if options.json:
        documents = {name: as_document(walked) for name, walked in replays.items()}
        options.json.write_text(json.dumps(documents, indent=2, allow_nan=False) + "\n")
    if options.results:
        title = "Replays of five streams: promises kept, and the error of every method, window by window"
        figures = [figure for name, walked in replays.items() for figure in replay_figures(name, walked, seconds[name])]
        if set(replays) == set(DATASETS):
            figures += pooled_figures(list(replays.values()))
        num_seeds = max(walked.task.training.num_seeds for walked in replays.values())
        record_run(options.results, title, ["replay", *arguments], figures, seeds=num_seeds)


def walk(reading: Reading, num_windows: int, rivals: Sequence[str], console: Console) -> Replay:
    """Replay a stream from the origin after this many windows, and report progress now and then."""
    settings, clock = TrainerSettings(max_members=_MAX_MEMBERS), reading.schema.task.clock
    torch.set_num_threads(count_threads(settings))
    first = clock.window_start(int(reading.events.at[0])) + num_windows * clock.window
    console.print(
        f"{reading.schema.task.name}: {len(reading.events)} events, replayed from {format_moment(first)}",
        highlight=False,
    )

    def report(event: str, /, **facts: object) -> None:
        if event in ("replay.began", "rival.began", "rival.left_out"):
            console.print(f"  {event} {facts}", highlight=False, soft_wrap=True)

    return replay(reading, settings=settings, device=choose_device(settings), report=report, first=first, rivals=rivals)


def promises_table(replays: Mapping[str, Replay]) -> Table:
    """Bands, intervals and horizons by stream, and of all together."""
    table = Table(title="Promises and what came", title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("stream")
    for heading in ("cells", "windows", "in band", "coverage", "inside", "beyond", "paired"):
        table.add_column(heading, justify="right")
    pooled: list[Outcome] = []
    num_windows = 0
    for name, walked in replays.items():
        outcomes = find_outcomes(walked)
        pooled += outcomes
        num_windows += count_windows(outcomes)
        inside, beyond = errors_by_horizon(walked, outcomes)
        paired = paired_difference(walked, outcomes)
        kept = _kept(outcomes, count_windows(outcomes))
        table.add_row(name, *kept, _figure(inside), _figure(beyond), _figure(paired, "+.3f"))
    table.add_row("all", *_kept(pooled, num_windows), "", "", "")
    return table


def _kept(outcomes: Sequence[Outcome], num_windows: int) -> tuple[str, ...]:
    shares = (inside_band(outcomes), realised_coverage(outcomes))
    return str(len(outcomes)), str(num_windows), *(_figure(share, ".1%") for share in shares)


def methods_table(replays: Mapping[str, Replay]) -> Table:
    """Mean error over the windows that were answered and that every method was scored on."""
    table = Table(title="GI and its rivals", title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    for heading in ("stream", "error", "windows"):
        table.add_column(heading, justify="right" if heading == "windows" else "left", no_wrap=True)
    names: list[str] = []
    rows: list[tuple[str, ...]] = []
    for name, walked in replays.items():
        num_windows, means = mean_errors(walked)
        names = list(means)
        rows.append((name, _ERRORS[walked.task.error_name], str(num_windows), *map(_figure, means.values())))
    for method in names:
        table.add_column(method_heading(method), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _figure(value: float | None, form: str = "#.4g") -> str:
    return "–" if value is None else format(value, form).rstrip(".")
