"""`python -m benchmarks cycles`: what a whole cycle costs compared with one fit of the same network.

It runs on the flights task. The first cycle fills the matrix by a backtest. A steady one fits only its candidate,
scores the newest window, judges, exports, verifies and registers in a real MLflow. Before each cycle the same origin is
fitted alone, its rows read from the store included, so that fit and cycle meet the same machine. Only the start of the
training process is left out of both.

On a CPU, with one thread for each fit, this process's own CPU time counts, which other work on the machine disturbs
least; that of PostgreSQL and MLflow does not count. With CUDA the wall clock counts. Below each cycle the command
prints what each of its steps took.

With `--small` it measures cycles of small tasks instead (`benchmarks.small_cycles`): what one takes beyond its fit in a
new training process and in a warm one, and how many an hour one and two training processes carry out. With `--windows`
it compares a task that has many cells with one that has few (`benchmarks.large_matrices`).
"""

import argparse
import tempfile
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from uuid import uuid4

import torch
from rich.console import Console
from sqlalchemy import Engine

from benchmarks import large_matrices, small_cycles
from benchmarks.datasets import to_events
from benchmarks.hardware import hardware
from benchmarks.output import add_output_options, record_run
from benchmarks.ratios import Ratio, smaller_is_better, write_ratios
from benchmarks.result_files import Figure
from cli.demo.flights import load_flights, read_task_file, week_start
from cli.local.stack import EmbeddedStack, free_port
from contracts.clock import to_micros
from contracts.runtime.settings import SharedSettings
from contracts.task import Task, Training
from store.cycles.leases import claim_cycle
from store.cycles.requests import request_cycle
from store.engine import make_engine
from store.events.writes import append_events
from store.tasks.catalog import Schema, define_task
from trainer.data.snapshot import read
from trainer.evaluation.origin_fits import fit_origins
from trainer.network.device import choose_device
from trainer.retraining.cycle import run_cycle
from trainer.settings import TrainerSettings
from trainer.tracking.registry import Registry

NUM_KNOWN_WEEKS = 26


@dataclass(frozen=True)
class Spent:
    """Seconds of a fit alone, and of each step of the cycle at the same cutoff."""

    fit: float
    steps: Mapping[str, float]

    @property
    def cycle(self) -> float:
        return sum(self.steps.values())

    @property
    def ratio(self) -> float:
        return self.cycle / self.fit


@dataclass(frozen=True)
class Cycles:
    """What one run found: both ratios, and the seconds of the first cycle."""

    ratios: tuple[Ratio, Ratio]
    first: Spent
    recipe: str
    device: torch.device

    def figures(self) -> list[Figure]:
        """The run as data: ratios, one fit, and what scoring the origins of the first cycle took."""
        unit = "CPU s" if self.device.type == "cpu" else "s"
        seconds = {
            "one fit, rows read too": self.first.fit,
            "eight origins, fitted and scored": self.first.steps["score"],
        }
        return [
            *(
                Figure(of={"recipe": self.recipe, "what": one["name"]}, measure="ratio", unit="×", value=one["ours"])
                for one in self.ratios
            ),
            *(
                Figure(of={"recipe": self.recipe, "what": what}, measure="seconds", unit=unit, value=value)
                for what, value in seconds.items()
            ),
        ]


def main(arguments: list[str]) -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cycles", description=__doc__)
    parser.add_argument("--steady", type=int, default=5, help="steady cycles after the first")
    parser.add_argument(
        "--default-recipe", action="store_true", help="a task's default recipe, in place of the demo's quick one"
    )
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only every K-th flight: a task of few rows")
    parser.add_argument("--small", type=int, metavar="N", help="cycles of N small tasks instead")
    parser.add_argument(
        "--windows", type=int, metavar="N", help="cycles of a task with the cells of N windows at 16 ages instead"
    )
    parser.add_argument("--epochs", type=int, default=60, help="epochs of the longer fits of small tasks")
    add_output_options(parser)
    given = parser.parse_args(arguments)
    if given.small or given.windows:
        if given.small:
            ratios, figures = small_cycles.measure(Console(), given.small, given.epochs)
            title = "Cycles of small tasks in new and in warm training processes, and in two of them"
        else:
            ratios, figures = large_matrices.measure(Console(), given.windows)
            title = "Steady cycles of a task with the cells of many windows, and of one with few"
        if given.json:
            write_ratios(given.json, ratios)
        if given.results:
            record_run(given.results, title, ["cycles", *arguments], figures, ran_on=hardware())
        return
    found = measure(Console(), given.steady, default_recipe=given.default_recipe, every=given.every)
    if given.json:
        write_ratios(given.json, found.ratios)
    if given.results:
        title = "What a whole cycle costs compared with one fit of the same network"
        record_run(given.results, title, ["cycles", *arguments], found.figures(), ran_on=hardware(found.device))


def measure(console: Console, num_steady: int = 5, *, default_recipe: bool = False, every: int = 1) -> "Cycles":
    """Both ratios, printed as they are found: the first cycle, then the median of the steady ones."""
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        shared = SharedSettings(home=Path(folder), database_url=None, mlflow_url=None)
        with EmbeddedStack(shared, free_port(), console) as stack:
            engine = make_engine(stack.addresses.database)
            registry = Registry(stack.addresses.mlflow)
            # A home of its own, so that the stack's live job does not score beforehand what the cycle must pay for.
            settings = TrainerSettings(home=Path(folder) / "measured", lease_seconds=600, threads=1)
            device = choose_device(settings)
            num_weeks = NUM_KNOWN_WEEKS + num_steady
            schema = _import_flights(engine, num_weeks, default_recipe=default_recipe, every=every)
            _fit(engine, schema, settings, NUM_KNOWN_WEEKS)  # a cost of the first fit of a process
            weeks = range(NUM_KNOWN_WEEKS, NUM_KNOWN_WEEKS + num_steady + 1)
            spent = [
                _measure(engine, registry, schema, settings=settings, week=week, console=console) for week in weeks
            ]
            engine.dispose()
    first, *steady = spent
    steady_ratio = median(one.ratio for one in steady)
    found = Cycles(
        ratios=(
            smaller_is_better("first cycle / one fit", first.ratio, 4, commit=4, goal=1.5, unit="fits", device=device),
            smaller_is_better(
                "steady cycle / one fit", steady_ratio, 1.3, commit=1.3, goal=1.1, unit="fits", device=device
            ),
        ),
        first=first,
        recipe=("a task's default" if default_recipe else "the flights demo's")
        + (f", every {every}th flight" if every > 1 else ""),
        device=device,
    )
    for ratio in found.ratios:
        console.print(f"{ratio['name']}: {ratio['ours']:.2f} (commit {ratio['yardstick']:g})", highlight=False)
    return found


def _import_flights(engine: Engine, num_weeks: int, *, default_recipe: bool, every: int) -> Schema:
    task = Task.model_validate(tomllib.loads(read_task_file()))
    if default_recipe:
        task = task.model_copy(update={"training": Training()})
    flights = load_flights()
    now = datetime.now(UTC)
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, now)
        append_events(connection, schema, to_events(task, flights[flights["week"] < num_weeks][::every]), now)
    return schema


def _measure(
    engine: Engine, registry: Registry, schema: Schema, *, settings: TrainerSettings, week: int, console: Console
) -> Spent:
    """What a week's cutoff takes: its fit alone, then its whole cycle."""
    cutoff, device = to_micros(week_start(week)), choose_device(settings)
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    now = datetime.now(UTC)
    began = clock()
    _fit(engine, schema, settings, week)
    fit_seconds = clock() - began
    with engine.begin() as connection:  # in one transaction, so that the stack's trainer does not take it
        request_cycle(connection, schema.task_id, cutoff, now)
        cycle = claim_cycle(connection, uuid4().hex, now, timedelta(seconds=settings.lease_seconds))
    assert cycle is not None
    moments = [("start", clock())]

    def follow(event: str, /, **facts: object) -> None:
        if event == "cycle.step":
            moments.append((str(facts["step"]), clock()))

    state = run_cycle(engine, registry, cycle, settings=settings, now=lambda: datetime.now(UTC), report=follow)
    moments.append(("end", clock()))
    spent = Spent(fit_seconds, {name: later - at for (name, at), (_, later) in pairwise(moments)})
    steps = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent.steps.items())
    console.print(
        f"week {week}: fit {spent.fit:.2f} s, cycle {spent.cycle:.2f} s, {state}: {steps}",
        highlight=False,
        soft_wrap=True,
    )
    return spent


def _fit(engine: Engine, schema: Schema, settings: TrainerSettings, week: int) -> None:
    """Read what a week's cutoff allows, and fit it."""
    cutoff = to_micros(week_start(week))
    reading = read(engine, schema, cutoff, datetime.now(UTC))
    list(fit_origins(reading, [cutoff], choose_device(settings), settings.max_members, lambda _epoch: None))
