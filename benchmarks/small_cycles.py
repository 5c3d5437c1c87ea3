"""`python -m benchmarks cycles --small`: cycles of small tasks, whose fits take less than a process takes to start.

It first prints what a cycle takes beyond one fit of the same network, in a new training process and in a warm one, from
the claim to the end in the ledger. A warm one carries out several rounds, because other work on the machine lengthens
every second: the quickest is nearest to what a machine of its own takes, and the slowest is kept as `high`. It also
prints the CPU time of every process that takes part, which other work disturbs least, and which holds what a run gets
after the release.

Then it prints how many cycles an hour one and two training processes carry out, of tasks whose fit takes seconds, each
on one thread. The two take turns, so that both meet the same machine. PostgreSQL and MLflow run on the same cores. So
the ratio of two processes to one shows what a machine gains; on one with two cores they leave less than two for the
fits.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from sqlalchemy import Engine, text

from benchmarks.ratios import Ratio, larger_is_better, smaller_is_better
from benchmarks.result_files import Figure
from benchmarks.serving.servers import cpu_seconds
from benchmarks.stores import running_stores
from contracts.clock import MICROSECOND, to_micros
from contracts.runtime.logs import configure_logs
from contracts.task import Task
from migrations import migrate
from store.cycles.ledger import Cycle, find_cycles
from store.cycles.requests import request_cycle
from store.engine import make_engine
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema, define_task
from trainer.data.snapshot import read
from trainer.evaluation.origin_fits import fit_origins
from trainer.network.device import choose_device
from trainer.scheduling.scheduler import Trainer
from trainer.settings import TrainerSettings
from trainer.tracking.rest import ask, open_client

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROWS_PER_WINDOW = 150
# Windows that the first cycle of a task knows; later ones are steady.
NUM_KNOWN = 10
NUM_ROUNDS = 5
NUM_WINDOWS = NUM_KNOWN + NUM_ROUNDS + 2
# Epochs of a fit that takes a fraction of a second.
NUM_EPOCHS = 4


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


@dataclass(frozen=True)
class Round:
    """A cycle of each task in a warm process: medians of seconds and CPU seconds, and the machine's load average."""

    overhead: float
    until_release: float
    fit: float
    fit_cpu: float
    load: float


@dataclass(frozen=True)
class Overhead:
    """Seconds beyond the fit in a new process, rounds in a warm one, the quickest first, and CPU seconds of a cycle."""

    cold: float
    rounds: Sequence[Round]
    cpu: Mapping[str, float]


def measure(console: Console, num_tasks: int, num_epochs: int) -> tuple[list[Ratio], list[Figure]]:
    """The ratios and figures, printed as they are found."""
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder, running_stores(Path(folder)) as stores:
        migrate(stores.database_url)
        engine = make_engine(stores.database_url)
        settings = TrainerSettings(
            home=Path(folder) / "trainer",
            database_url=stores.database_url,
            mlflow_url=stores.mlflow_url,
            device="cpu",
            threads=1,
            log_level="WARNING",
        )
        settings.home.mkdir()
        configure_logs(settings)
        with engine.connect() as connection:
            postmaster = connection.execute(text("SELECT pg_read_file('postmaster.pid')")).scalar_one()
        servers = {"MLflow": stores.mlflow.process.pid, "PostgreSQL": int(postmaster.split()[0])}
        overhead = _measure_overhead(engine, settings, num_tasks, servers)
        console.print(f"a cycle in a new process, beyond its fit: {overhead.cold:.2f} s", highlight=False)
        for one in overhead.rounds:
            console.print(
                f"a cycle in a warm process, beyond its fit of {one.fit:.2f} s: {one.overhead:.2f} s, "
                f"load average {one.load:.1f}",
                highlight=False,
                soft_wrap=True,
            )
        for name, seconds in overhead.cpu.items():
            console.print(f"a cycle in a warm process, {name}: {seconds:.2f} CPU s", highlight=False)
        rates = _measure_rates(engine, settings, num_tasks, num_epochs)
        for count, per_hour in rates.items():
            console.print(f"cycles per hour, {count} training process(es): {per_hour:.0f}", highlight=False)
        engine.dispose()
    best, worst = overhead.rounds[0], overhead.rounds[-1]
    ratios = [
        smaller_is_better("overhead of a warm cycle", best.overhead, 0.5, commit=0.5, goal=0.25, unit="s"),
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
        Figure(of={"what": "overhead in a new process"}, measure="seconds", unit="s", value=overhead.cold),
        Figure(
            of={"what": "overhead in a warm process"},
            measure="seconds",
            unit="s",
            value=best.overhead,
            high=worst.overhead,
        ),
        Figure(of={"what": "fit alone, in the quickest round"}, measure="seconds", unit="s", value=best.fit),
        Figure(of={"what": "load average, in the quickest round"}, measure="load", unit="", value=best.load),
        *(
            Figure(of={"what": f"warm cycle: {name}"}, measure="CPU seconds", unit="CPU s", value=seconds)
            for name, seconds in overhead.cpu.items()
        ),
        *(
            Figure(of={"what": f"training processes: {count}"}, measure="cycles per hour", unit="1/h", value=per_hour)
            for count, per_hour in rates.items()
        ),
    ]
    return ratios, figures


def _measure_overhead(
    engine: Engine, settings: TrainerSettings, num_tasks: int, servers: Mapping[str, int]
) -> Overhead:
    """The first cycle of a new process, and the median of the later ones; `servers` are process ids by name."""
    schemas = [_define(engine, f"small_{k}", num_epochs=NUM_EPOCHS) for k in range(num_tasks)]
    with _ticking(engine, settings) as ticker:
        ticker.carry_out(schemas, NUM_KNOWN)
    rounds: list[Round] = []
    with _ticking(engine, settings) as ticker:
        first = ticker.carry_out(schemas[:1], NUM_KNOWN + 1)
        (worker,) = ticker.trainer._workers._idle
        processes = {"training process": worker.process.pid, **servers}
        before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        for num_windows in range(NUM_KNOWN + 2, NUM_KNOWN + 2 + NUM_ROUNDS):
            batch = ticker.carry_out(schemas, num_windows)
            fits = [_measure_fit(engine, settings, schema, num_windows) for schema in schemas]
            until_release = median(_cpu_until_release(settings, cycle) for cycle in batch.cycles)
            fit, fit_cpu = (median(one[side] for one in fits) for side in (0, 1))
            rounds.append(Round(median(batch.durations) - fit, until_release, fit, fit_cpu, os.getloadavg()[0]))
        spent = {name: (cpu_seconds(pid) - before[name]) / (num_tasks * NUM_ROUNDS) for name, pid in processes.items()}
    cpu = {
        "training process until the release": median(one.until_release for one in rounds),
        **spent,
        "its fit alone": median(one.fit_cpu for one in rounds),
    }
    cold = first.durations[0] - median(one.fit for one in rounds)
    return Overhead(cold, sorted(rounds, key=lambda one: one.overhead), cpu)


def _cpu_until_release(settings: TrainerSettings, cycle: Cycle) -> float:
    """What the training process had used when it began to record the release: it notes so in the cycle's run."""
    with open_client(str(settings.mlflow_url)) as client:
        found = ask(client, "GET", "runs/get", {"run_id": cycle.run_id}) or {}
    return next(
        float(metric["value"]) for metric in found["run"]["data"]["metrics"] if metric["key"] == "system/cpu_seconds"
    )


def _measure_rates(engine: Engine, settings: TrainerSettings, num_tasks: int, num_epochs: int) -> dict[int, float]:
    """Number of training processes -> cycles per hour, while the processes are warm."""
    warming = [_define(engine, f"warming_{k}", num_epochs=NUM_EPOCHS) for k in range(2)]
    schemas = [_define(engine, f"slow_{k}", num_epochs=num_epochs) for k in range(num_tasks)]
    batches: dict[int, list[Batch]] = {1: [], 2: []}
    with _ticking(engine, settings) as ticker:
        for place, number in enumerate((2, 1, 2, 1, 2)):
            ticker.trainer.settings = settings.model_copy(update={"training_workers": number})
            ticker.carry_out(warming[:number], NUM_KNOWN + place)
            batches[number].append(ticker.carry_out(schemas, NUM_KNOWN + place))
    del batches[2][0]  # it has filled the matrices
    return {
        number: 3600 * sum(len(batch.cycles) for batch in found) / sum(batch.seconds for batch in found)
        for number, found in batches.items()
    }


@dataclass(frozen=True)
class Ticker:
    """A trainer that is ticked by hand, and what wakes it."""

    trainer: Trainer
    wake: threading.Event

    def carry_out(self, schemas: Sequence[Schema], num_windows: int) -> Batch:
        """Let the trainer carry out a cycle of each of these tasks."""
        engine, cutoff = self.trainer.engine, to_micros(START + num_windows * HOUR)
        with engine.begin() as connection:
            asked = [
                request_cycle(connection, schema.task_id, cutoff, datetime.now(UTC)).cycle_id for schema in schemas
            ]
        began = time.perf_counter()
        while True:
            self.wake.clear()
            self.trainer.tick(datetime.now(UTC))
            with engine.connect() as connection:
                cycles = list(find_cycles(connection, asked).values())
            if all(cycle.ended_at for cycle in cycles) and not self.trainer.running_jobs:
                return Batch(cycles, time.perf_counter() - began)
            self.wake.wait(self.trainer.settings.tick_seconds)


@contextmanager
def _ticking(engine: Engine, settings: TrainerSettings) -> Iterator[Ticker]:
    """A new trainer, which has no process yet; its processes end with the block."""
    wake = threading.Event()
    trainer = Trainer(engine, settings, wake=wake.set)
    trainer._must_sweep = False
    try:
        yield Ticker(trainer, wake)
    finally:
        for child in trainer.running_jobs:
            child.process.kill()
        trainer._workers.close()


def _measure_fit(engine: Engine, settings: TrainerSettings, schema: Schema, num_windows: int) -> tuple[float, float]:
    """Seconds and CPU seconds of a fit alone."""
    cutoff = to_micros(START + num_windows * HOUR)
    device = choose_device(settings)
    reading = read(engine, schema, cutoff, datetime.now(UTC))
    began, cpu = time.perf_counter(), time.process_time()
    list(fit_origins(reading, [cutoff], device, settings.max_members, lambda _epoch: None))
    return time.perf_counter() - began, time.process_time() - cpu


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
        append_events(connection, schema, list(_events(NUM_WINDOWS)), START)
    return schema


def _events(num_windows: int) -> Iterator[Event]:
    rng = np.random.default_rng(0)
    for window in range(num_windows):
        for k in range(ROWS_PER_WINDOW):
            x, kind = float(rng.normal()), "ab"[int(rng.integers(2))]
            at = to_micros(START + window * HOUR) + k * (HOUR // MICROSECOND // ROWS_PER_WINDOW)
            label = "yes" if x > 0.04 * window * (1 if kind == "a" else -1) else "no"
            yield Event(f"{window}-{k}", at, at, (x,), (kind,), label)
