"""Runs a list of cells: each fit once, the cheapest first, every cell kept as soon as it is there."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.paper.budget import budget, expected_seconds
from benchmarks.paper.cells import Cell, Kept, failed, filled, missing, moved
from benchmarks.paper.report import line
from benchmarks.paper.runs import cut, missing_file, origins_of, score
from benchmarks.paper.sets import PaperSet
from benchmarks.paper.tables import TABLES, Entry
from contracts.errors import MorrowError

if TYPE_CHECKING:
    from trainer.tracking.registry import Registry


@dataclass(frozen=True)
class Bench:
    """What a run needs: the folder of the files, the loader of a set, the models of a cell, and where lines go."""

    folder: Path
    load: Callable[[str], PaperSet]
    num_models: int
    console: Console


@dataclass(frozen=True)
class Job:
    """One fit, the cells that show it, what each of its models spends, and roughly how many seconds it takes."""

    entries: tuple[Entry, ...]
    budget: str
    seconds: float


def list_costs(bench: Bench, entries: Sequence[Entry]) -> None:
    """Print each table's cells and roughly how long they take; a fit that several tables share counts in each."""
    for name in dict.fromkeys(entry.table for entry in entries):
        jobs = plan_jobs(bench, [entry for entry in entries if entry.table == name and _has_data(bench, entry)])
        minutes = sum(job.seconds for job in jobs) / 60
        bench.console.print(f"{name:10} {len(jobs):3} fits, about {minutes:.0f} minutes: {TABLES[name].title}")
        for job in jobs:
            entry = job.entries[0]
            text = f"{entry.set:14} {entry.label:28} {entry.config:9} {job.seconds:7.0f} s  {job.budget}"
            bench.console.print(f"    {text}")


def plan_jobs(bench: Bench, entries: Sequence[Entry]) -> list[Job]:
    """Group entries by the fit that they share, the cheapest fit first. Their sets' files are there."""
    works: dict[tuple[str | bool, ...], list[Entry]] = {}
    for entry in entries:
        works.setdefault(entry.work, []).append(entry)
    return sorted((_job(bench, tuple(group)) for group in works.values()), key=lambda job: job.seconds)


def run_jobs(
    bench: Bench, entries: Sequence[Entry], kept: Kept, registry: "Registry | None", seconds: float = math.inf
) -> bool:
    """Run what is not kept yet, but begin no fit after this many seconds; returns whether no method broke.

    A method that refuses, or whose loss is not finite, leaves a cell that says so. One that breaks leaves its traceback
    in print and no cell, and the run continues: it is hours long.
    """
    _keep_without_fits(bench, entries, kept)
    waiting = [entry for entry in entries if _has_data(bench, entry) and not kept.answers(entry, bench.num_models)]
    jobs, is_sound, began = plan_jobs(bench, waiting), True, time.monotonic()
    columns = (BarColumn(), TextColumn("{task.percentage:3.0f} % {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=bench.console, transient=True) as progress:
        bar = progress.add_task("", total=sum(job.seconds for job in jobs))
        for number, job in enumerate(jobs):
            if time.monotonic() - began >= seconds:
                bench.console.print(f"The time is over: {len(jobs) - number} fits were not begun.")
                break
            entry = job.entries[0]
            progress.update(bar, description=f"{entry.set} {entry.label} ({entry.config}), about {job.seconds:.0f} s")
            try:
                found = _run(bench, job)
            except Exception:  # noqa: BLE001 a bug in one method must not cost the hours of all others
                bench.console.print_exception()
                is_sound = False
            else:
                kept.keep(found)
                _tell(bench, job, found, registry)
            progress.advance(bar, job.seconds)
    return is_sound


def _keep_without_fits(bench: Bench, entries: Sequence[Entry], kept: Kept) -> None:
    """Keep the cells whose data are missing, and those whose fit is in another table."""
    found = {}
    for entry in entries:
        if kept.answers(entry, bench.num_models):
            continue
        if file := missing_file(bench.folder, entry.set):
            found[entry] = missing(entry, bench.num_models, file)
            bench.console.print(line(found[entry]))
        elif twin := _find_twin(bench, entry, kept):
            found[entry] = moved(twin, entry)
    kept.keep(found)


def _find_twin(bench: Bench, entry: Entry, kept: Kept) -> Cell | None:
    """A kept cell of errors from the very fit that an entry asks for."""
    for table in TABLES.values():
        for other in table.entries:
            is_twin = other.set == entry.set and other.measure != "seconds" and other.work == entry.work
            if is_twin and kept.answers(other, bench.num_models):
                return kept.find(other)
    return None


def _has_data(bench: Bench, entry: Entry) -> bool:
    return missing_file(bench.folder, entry.set) is None


def _job(bench: Bench, entries: tuple[Entry, ...]) -> Job:
    entry = entries[0]
    paper_set = bench.load(entry.set)
    splits = [cut(paper_set, origin, entry.recipe.training) for origin in origins_of(entry, paper_set)]
    seconds = sum(expected_seconds(split, training, entry, bench.num_models) for split, training in splits)
    return Job(entries, budget(*splits[0], entry), seconds)


def _run(bench: Bench, job: Job) -> dict[Entry, Cell]:
    try:
        result = score(job.entries[0], bench.load(job.entries[0].set), bench.num_models)
    except MorrowError as error:
        return {entry: failed(entry, bench.num_models, str(error)) for entry in job.entries}
    return {entry: filled(entry, result.errors, result.seconds) for entry in job.entries}


def _tell(bench: Bench, job: Job, found: dict[Entry, Cell], registry: "Registry | None") -> None:
    for entry, cell in found.items():
        bench.console.print(f"{line(cell)}; {job.budget}")
        if registry is not None:
            from benchmarks.paper.mlflow_log import log_cell

            log_cell(registry, cell, entry.recipe.training, job.budget)
