"""`python -m benchmarks cycles --small`: cycles of small tasks, whose fits take less than a process takes to start.

It first prints what a cycle takes beyond one fit of the same network, in a new training process and in warm ones, from
the claim to the end in the ledger. Then it prints how many cycles an hour one and two training processes carry out, of
tasks whose fit takes seconds, each on one thread. PostgreSQL and MLflow run on the same cores. So the ratio of two
processes to one shows what a machine gains; on one with two cores they leave less than two for the fits.
"""

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from sqlalchemy import Engine, make_url, text

from benchmarks.ratios import Ratio, larger_is_better, smaller_is_better
from benchmarks.result_files import Figure
from cli.local.stack import EmbeddedStack, free_port
from contracts.clock import MICROSECOND, to_micros
from contracts.runtime.settings import SharedSettings
from contracts.task import Task
from migrations import migrate
from store.cycles.ledger import Cycle, find_cycles
from store.cycles.requests import request_cycle
from store.database import make_engine
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema, define_task
from trainer.data.snapshot import read
from trainer.evaluation.origin_fits import fit_origins
from trainer.network.device import choose_device
from trainer.scheduling.scheduler import Trainer
from trainer.settings import TrainerSettings

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROWS_PER_WINDOW = 150
# Windows that the first cycle of a task knows; later ones are steady.
NUM_KNOWN = 10


@dataclass(frozen=True)
class Batch:
    """Cycles that were requested at once: each as it ended, and the seconds until the last one had."""

    cycles: Sequence[Cycle]
    seconds: float

    @property
    def durations(self) -> list[float]:
        return [
            (one.ended_at - one.started_at).total_seconds() for one in self.cycles if one.ended_at and one.started_at
        ]

    @property
    def per_hour(self) -> float:
        return 3600 * len(self.cycles) / self.seconds


def measure(console: Console, num_tasks: int, num_epochs: int) -> tuple[list[Ratio], list[Figure]]:
    """The ratios and figures, printed as they are found."""
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        shared = SharedSettings(home=Path(folder), database_url=None, mlflow_url=None)
        with EmbeddedStack(shared, free_port(), console) as stack:
            # The stack's own trainer must not take the cycles.
            url = _make_database(stack.addresses.database)
            engine = make_engine(url)
            settings = TrainerSettings(
                home=Path(folder) / "measured",
                database_url=url,
                mlflow_url=stack.addresses.mlflow,
                device="cpu",
                threads=1,
            )
            settings.home.mkdir()
            overheads = _measure_overhead(engine, settings, num_tasks)
            rates = _measure_rates(engine, settings, num_tasks, num_epochs)
            engine.dispose()
    cold, warm = overheads
    for name, seconds in (("a new process", cold), ("a warm process", warm)):
        console.print(f"a cycle in {name}, beyond its fit: {seconds:.2f} s", highlight=False)
    for count, per_hour in rates.items():
        console.print(f"cycles per hour, {count} training process(es): {per_hour:.0f}", highlight=False)
    ratios = [
        smaller_is_better("overhead of a warm cycle", warm, 0.5, commit=0.5, goal=0.25, unit="s"),
        larger_is_better(
            "two training processes / one",
            rates[2],
            rates[1],
            ratio=rates[2] / rates[1],
            commit=1.8,
            goal=1.95,
            unit="cycles per hour",
        ),
    ]
    figures = [
        Figure(of={"what": "overhead in a new process"}, measure="seconds", unit="s", value=cold),
        Figure(of={"what": "overhead in a warm process"}, measure="seconds", unit="s", value=warm),
        *(
            Figure(of={"what": f"training processes: {count}"}, measure="cycles per hour", unit="1/h", value=per_hour)
            for count, per_hour in rates.items()
        ),
    ]
    return ratios, figures


def _make_database(url: str) -> str:
    other = make_url(url).set(database="small_cycles")
    engine = make_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE DATABASE small_cycles"))
    engine.dispose()
    found = other.render_as_string(hide_password=False)
    migrate(found)
    return found


def _measure_overhead(engine: Engine, settings: TrainerSettings, num_tasks: int) -> tuple[float, float]:
    """Seconds beyond a fit of the first cycle of a new process, and the median of the later ones."""
    schemas = [_define(engine, f"small_{k}", num_epochs=4) for k in range(num_tasks)]
    _carry_out(engine, settings, schemas, NUM_KNOWN)
    steady = _carry_out(engine, settings, schemas, NUM_KNOWN + 1)
    fit = median(_fit_seconds(engine, settings, schema, NUM_KNOWN + 1) for schema in schemas)
    by_start = sorted(zip(steady.cycles, steady.durations, strict=True), key=lambda one: str(one[0].started_at))
    cold, *warm = (duration - fit for _, duration in by_start)
    return cold, median(warm)


def _measure_rates(engine: Engine, settings: TrainerSettings, num_tasks: int, num_epochs: int) -> dict[int, float]:
    """Number of training processes -> cycles per hour, once the processes are warm."""
    schemas = [_define(engine, f"slow_{k}", num_epochs=num_epochs) for k in range(num_tasks)]
    _carry_out(engine, settings.model_copy(update={"training_workers": 2}), schemas, NUM_KNOWN)
    rates = {}
    for number in (1, 2):
        chosen = settings.model_copy(update={"training_workers": number})
        rates[number] = _carry_out(engine, chosen, schemas, NUM_KNOWN + number, num_first=number).per_hour
    return rates


def _carry_out(
    engine: Engine, settings: TrainerSettings, schemas: Sequence[Schema], num_windows: int, num_first: int = 0
) -> Batch:
    """Let a new trainer carry out the cycles of these tasks; the first ones only warm it up."""
    wake = threading.Event()
    trainer = Trainer(engine, settings, wake=wake.set)
    trainer._must_sweep = False
    try:
        if num_first:
            _await(engine, trainer, wake, schemas[:num_first], num_windows)
        return _await(engine, trainer, wake, schemas[num_first:], num_windows)
    finally:
        for child in trainer.children:
            child.process.kill()
        trainer._workers.close()


def _await(
    engine: Engine, trainer: Trainer, wake: threading.Event, schemas: Sequence[Schema], num_windows: int
) -> Batch:
    cutoff = to_micros(START + num_windows * HOUR)
    with engine.begin() as connection:
        asked = [request_cycle(connection, schema.task_id, cutoff, datetime.now(UTC)).cycle_id for schema in schemas]
    began = time.perf_counter()
    while True:
        wake.clear()
        trainer.tick(datetime.now(UTC))
        with engine.connect() as connection:
            cycles = list(find_cycles(connection, asked).values())
        if all(cycle.ended_at for cycle in cycles) and not trainer.children:
            return Batch(cycles, time.perf_counter() - began)
        wake.wait(trainer.settings.tick_seconds)


def _fit_seconds(engine: Engine, settings: TrainerSettings, schema: Schema, num_windows: int) -> float:
    cutoff = to_micros(START + num_windows * HOUR)
    device = choose_device(settings)
    reading = read(engine, schema, cutoff, datetime.now(UTC))
    began = time.perf_counter()
    list(fit_origins(reading, [cutoff], device, settings.max_members, lambda _epoch: None))
    return time.perf_counter() - began


def _define(engine: Engine, name: str, *, num_epochs: int) -> Schema:
    """A task with a boundary that turns slowly, and a network of one small layer."""
    task = Task.model_validate(
        {
            "name": name,
            "features": [{"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}],
            "target": {"name": "y", "kind": "classification"},
            "window": "PT1H",
            "schedule": "manual",
            "guard": {"max_age": 2, "tolerance": 5.0, "min_rows": 100, "rivals": []},
            "training": {
                "num_seeds": 2,
                "calendar": [],
                "width": 8,
                "num_layers": 1,
                "batch_size": 64,
                "pretrain_epochs": num_epochs,
                "finetune_windows": 1,
                "finetune_epochs": 1,
            },
        }
    )
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START)
        append_events(connection, schema, list(_events(NUM_KNOWN + 3)), START)
    return schema


def _events(num_windows: int) -> Iterator[Event]:
    rng = np.random.default_rng(0)
    for window in range(num_windows):
        for k in range(ROWS_PER_WINDOW):
            x, kind = float(rng.normal()), "ab"[int(rng.integers(2))]
            at = to_micros(START + window * HOUR) + k * (HOUR // MICROSECOND // ROWS_PER_WINDOW)
            label = "yes" if x > 0.04 * window * (1 if kind == "a" else -1) else "no"
            yield Event(f"{window}-{k}", at, at, (x,), (kind,), label)
