"""`python -m benchmarks reading`: reading events for training, compared with pandas.read_sql.

A million events of eight numbers are in our own PostgreSQL. Each way of reading them runs in a process of its own, by
turns: the trainer's read, and pandas.read_sql of the same columns. The client's CPU time counts, and how far its memory
rises above what it held when it began to read. `--epoch` reads and trains one epoch as a cycle does, and compares the
peak of the whole process, libraries included, with the size of the tensors that the fit reads. `--cycle` prints the
peak of the fits of a first cycle, with a small network and short training, at 1, 10 or 50 million `--rows`. `--large`
measures what a task of this many rows costs requests and its neighbour (`benchmarks.large_task`). `--sealed` compares
with the same rows in files (`benchmarks.sealed_reading`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from rich.console import Console
from sqlalchemy import Connection, create_engine, text

from benchmarks import large_task, sealed_reading
from benchmarks.hardware import hardware
from benchmarks.ingest.events import TASK
from benchmarks.output import add_output_options, record_run
from benchmarks.ratios import Ratio, larger_is_better, ratio_figures, smaller_is_better, write_ratios
from cli.local.database import migrated_store
from contracts.clock import to_micros
from contracts.runtime.python_process import python_command
from contracts.runtime.settings import SharedSettings
from contracts.task import Training
from store.engine import make_engine
from store.tasks.catalog import Schema, define_task, find_task
from trainer.data.encoder import encode
from trainer.data.snapshot import read
from trainer.evaluation.backtest import fill_and_judge, read_needed
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.origin_fits import fit_origins, keep_fit
from trainer.evaluation.stored_matrix import StoredCells
from trainer.evaluation.units import InThisProcess
from trainer.settings import TrainerSettings

FIRST = datetime(2020, 1, 1, tzinfo=UTC)
SPAN = timedelta(days=700)
CUTOFF = FIRST + SPAN + timedelta(days=7)
# One member of a task's default recipe, one epoch over all rows.
_TRAINING = Training(experts=("gi",), num_seeds=1, pretrain_epochs=1, rows_per_epoch=10**9, finetune_windows=0)
# Members as by default, but small ones and few epochs: the memory of rows does not depend on them.
_SMALL = Training(
    experts=("gi",), pretrain_epochs=2, finetune_epochs=1, width=8, num_layers=1, delta_steps=1, delta_rows=16
)
_MIB = 2**20

Measures = dict[str, float]


def main(arguments: list[str]) -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks reading", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="turns of ours and its yardstick, at least 5")
    parser.add_argument("--epoch", action="store_true", help="read and train an epoch instead, once")
    parser.add_argument("--cycle", action="store_true", help="print the peak memory of a first cycle's fits instead")
    parser.add_argument("--history", type=int, help="training.history of that cycle; all rows if unset")
    parser.add_argument("--large", action="store_true", help="what a task of this many rows costs others instead")
    parser.add_argument("--sealed", action="store_true", help="compare with the same rows sealed in files instead")
    add_output_options(parser)
    given = parser.parse_args(arguments)
    if given.rounds < 5:
        parser.error("--rounds is at least 5")
    console = Console(highlight=False, soft_wrap=True)
    console.print(hardware())
    if given.large:
        ratios, figures = large_task.measure(console, given.rows)
        if given.json:
            write_ratios(given.json, ratios)
        if given.results:
            record_run(given.results, "One task of many events, and its neighbour", ["reading", *arguments], figures)
        return
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        settings = SharedSettings(home=Path(folder), database_url=None, mlflow_url=None)
        with migrated_store(settings) as url:
            began = perf_counter()
            fill(url, given.rows, _SMALL.model_copy(update={"history": given.history}) if given.cycle else _TRAINING)
            console.print(f"{given.rows:,} events stored in {perf_counter() - began:.0f} s")
            if given.cycle:
                told = _in_child("cycle", url)
                console.print("  ".join(f"{what} {value:,.1f}" for what, value in told.items()))
                return
            if given.sealed:
                objects = Path(folder) / "objects"
                figures = sealed_reading.measure(
                    url, objects, CUTOFF, lambda: [_in_child("ours", url) for _ in range(given.rounds)], console
                )
                if given.results:
                    record_run(given.results, "Sealed events", ["reading", *arguments], figures)
                return
            ratios = (
                [measure_epoch(url, given.rows, console)]
                if given.epoch
                else compare(url, given.rows, given.rounds, console)
            )
    for one in ratios:
        console.print(
            f"{one['name']}: {one['ratio']:.2f} (commit {one['commit']:.3g}, goal {one['goal']:.3g}): "
            f"{one['ours']:.3g} for {one['yardstick']:.3g} {one['unit']}"
        )
    if given.json:
        write_ratios(given.json, ratios)
    if given.results:
        title = "Reading events for training, compared with pandas.read_sql, and the memory of an epoch"
        record_run(given.results, title, ["reading", *arguments], ratio_figures(ratios))


def fill(url: str, num_rows: int, training: Training = _TRAINING) -> None:
    """Events spread evenly over `SPAN`, made by the server: another benchmark measures ingest."""
    engine = make_engine(url)
    with engine.begin() as connection:
        schema, _ = define_task(connection, TASK.model_copy(update={"training": training}), FIRST)
        connection.execute(
            _FILL,
            {"task_id": schema.task_id, "schema_id": schema.schema_id, "first": FIRST, "span": SPAN, "n": num_rows},
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE events"))
    engine.dispose()


_FILL = text("""
    INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT :task_id, 'event-' || i, 1, moment, moment, moment, :schema_id,
           ARRAY[random(), random(), random(), random(), random(), random(), random(), random()], '{}',
           CASE WHEN random() < 0.5 THEN 'a' ELSE 'b' END
    FROM generate_series(0, :n - 1) AS i, LATERAL (
        SELECT CAST(:first AS timestamptz) + CAST(:span AS interval) * (CAST(i AS float8) / :n) AS moment
    ) AS one
""")


def compare(url: str, num_rows: int, num_rounds: int, console: Console) -> list[Ratio]:
    """Ours and pandas by turns; the medians count."""
    found: dict[str, list[Measures]] = {name: [] for name in ("ours", "pandas")}
    for _ in range(num_rounds):
        for name, rounds in found.items():
            rounds.append(_in_child(name, url))
            told = "  ".join(f"{what} {value:.2f}" for what, value in rounds[-1].items())
            console.print(f"{name:8} {told}")
    ours, pandas = (
        {what: median(one[what] for one in rounds) for what in ("cpu_seconds", "rise_mib")} for rounds in found.values()
    )
    return [
        larger_is_better(
            f"training read, {side} / pandas.read_sql",
            ours[what],
            pandas[what],
            ratio=pandas[what] / max(ours[what], 1e-9),
            commit=commit,
            goal=goal,
            unit=unit,
            of={"what": f"pandas.read_sql / training read, {side}", "rows": num_rows},
        )
        for side, what, commit, goal, unit in (
            ("client CPU", "cpu_seconds", 5, 6, "s"),
            ("memory", "rise_mib", 6, 10, "MiB"),
        )
    ]


def measure_epoch(url: str, num_rows: int, console: Console) -> Ratio:
    """The peak of reading and one epoch, in sizes of the tensors."""
    found = _in_child("epoch", url)
    console.print("  ".join(f"{what} {value:,.1f}" for what, value in found.items()))
    tensors = found["tensors_mib"]
    return smaller_is_better(
        "rows read and one epoch, peak memory / tensors",
        found["peak_mib"],
        tensors,
        commit=3 * tensors,
        goal=3 * tensors,
        unit="MiB",
        of={"what": "rows read and one epoch, peak memory / tensors", "rows": num_rows},
    )


def _in_child(name: str, url: str) -> Measures:
    command = python_command("-m", "benchmarks.reading", name, url)
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    measures: Measures = json.loads(ended.stdout)
    return measures


def _measured(connection: Connection, work: Callable[[Connection], object]) -> Measures:
    before = _forget_peak()
    cpu, wall = process_time(), perf_counter()
    work(connection)
    cpu, wall = process_time() - cpu, perf_counter() - wall
    return {"cpu_seconds": cpu, "wall_seconds": wall, "rise_mib": (_peak_bytes() - before) / _MIB}


def _find(connection: Connection) -> Schema:
    return find_task(connection, TASK.name)


def read_ours(url: str) -> Measures:
    """The trainer's read."""
    engine = make_engine(url)
    with engine.connect() as connection:
        schema = _find(connection)
        return _measured(connection, lambda _: read(engine, schema, to_micros(CUTOFF), CUTOFF))


def read_pandas(url: str) -> Measures:
    """The same columns as most would read them, in pandas' best case: every number a column of its own."""
    import pandas as pd  # a process that reads without it holds none of its memory

    numbers = ", ".join(f"numbers[{place}] AS {name}" for place, name in enumerate((f.name for f in TASK.numbers), 1))
    with create_engine(url).connect() as connection:
        task_id = _find(connection).task_id
        query = text(
            f"SELECT at, known_at, superseded_at, {numbers}, label FROM events "  # noqa: S608 names of our own
            "WHERE task_id = :task_id AND at < :cutoff AND known_at <= :cutoff ORDER BY at, event_id"
        )
        values: dict[str, Any] = {"task_id": task_id, "cutoff": CUTOFF}
        return _measured(connection, lambda open_: pd.read_sql(query, open_, params=values))


def run_epoch(url: str) -> Measures:
    """Read, encode and train one epoch over all rows as a cycle does."""
    torch.set_num_threads(1)
    engine = make_engine(url)
    with engine.connect() as connection:
        schema = _find(connection)
    before = _forget_peak()
    began = perf_counter()
    reading = read(engine, schema, to_micros(CUTOFF), CUTOFF)
    read_seconds = perf_counter() - began
    after_reading = _peak_bytes()
    (fit,) = fit_origins(reading, [reading.cutoff], torch.device("cpu"), 1, lambda _report: None)
    peak = _peak_bytes()
    row = encode(fit.encoder, reading.events.select(slice(0, 1)))
    num_rows = reading.num_fit_rows(reading.cutoff)
    tensors = num_rows * sum(column.nbytes for column in (row.dense, row.codes, row.u, row.targets, row.windows))
    return {
        "tensors_mib": tensors / _MIB,
        "peak_mib": peak / _MIB,
        "peak_of_reading_mib": after_reading / _MIB,
        "before_mib": before / _MIB,
        "read_seconds": read_seconds,
        "seconds": perf_counter() - began,
    }


def run_first_cycle(url: str) -> Measures:
    """Read, fill the matrix and fit the candidate as the first cycle of a task does, on one thread."""
    torch.set_num_threads(1)
    engine = make_engine(url)
    with engine.connect() as connection:
        schema = _find(connection)
    device, cutoff = torch.device("cpu"), schema.task.clock.window_start(to_micros(CUTOFF))
    before, began = _forget_peak(), perf_counter()
    with tempfile.TemporaryDirectory(prefix="morrow-") as home:
        settings = TrainerSettings(home=Path(home), database_url=None, mlflow_url=None)
        reading = read_needed(engine, schema, cutoff, CUTOFF)
        read_seconds, after_reading = perf_counter() - began, _peak_bytes()
        store = FitStore(settings.home, schema.task)
        fill_and_judge(
            StoredCells(engine), reading, store, settings, InThisProcess(settings), report=_ignore, on_epoch=_ignore
        )
        (fit,) = fit_origins(reading, [cutoff], device, settings.max_members, _ignore, encoded_mib=settings.encoded_mib)
        keep_fit(fit, reading, store, device=device, git_sha="", verdict=None)
    return {
        "rows_read": len(reading.events),
        "before_mib": before / _MIB,
        "peak_of_reading_mib": after_reading / _MIB,
        "peak_mib": _peak_bytes() / _MIB,
        "read_seconds": read_seconds,
        "seconds": perf_counter() - began,
    }


def _ignore(*_: object, **__: object) -> None:
    """Progress is not reported."""


def _forget_peak() -> int:
    """Reset the peak of this process to what it holds now, which is returned."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


WAYS: dict[str, Callable[[str], Measures]] = {
    "ours": read_ours,
    "pandas": read_pandas,
    "epoch": run_epoch,
    "cycle": run_first_cycle,
}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](sys.argv[2])))
