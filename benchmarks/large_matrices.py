"""`python -m benchmarks cycles --windows N`: steady cycles of a task that has the cells of N windows, at 16 ages each.

Cells of four methods, each with the sketch of a large window, are written by SQL, and so are the rows of all windows.
`training.history` is the same for the large task and for a small one of 20 windows, so their fits are equal, and what a
cycle takes beyond them is the cost of the matrix. Each task has a process of its own, which carries out whole cycles
with a real MLflow. The first one meets all cells, and deletes those of no use. The peak of memory counts, and
the CPU time of the steady ones, of which the quickest is nearest to what a machine of its own takes.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time
from uuid import uuid4

import numpy as np
from rich.console import Console
from sqlalchemy import Engine, text

from benchmarks.ratios import Ratio, smaller_is_better
from benchmarks.result_files import Figure
from benchmarks.stores import running_stores
from contracts.clock import to_micros
from contracts.runtime.logs import configure_logs
from contracts.runtime.python_process import python_command
from contracts.task import Task
from migrations import migrate
from store.cycles.leases import claim_cycle
from store.cycles.requests import request_cycle
from store.engine import make_engine
from store.tasks.catalog import Schema, define_task, find_task
from trainer.evaluation.calibration import TEMPERATURES
from trainer.retraining.cycle import run_cycle
from trainer.settings import TrainerSettings
from trainer.tracking.registry import Registry

START = datetime(2025, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NUM_AGES = 16
FEW_WINDOWS = 20
METHODS = ("gi", "naive", "erm", "gbdt")
ROWS_PER_WINDOW = 150
NUM_STEADY = 5
_MIB = 2**20


@dataclass(frozen=True)
class Taken:
    """CPU seconds and seconds of the first cycle and of each steady one, and the peak of their process (MiB)."""

    states: list[str]
    cpu: list[float]
    seconds: list[float]
    before_mib: float
    peak_mib: float
    num_cells: int

    @property
    def steady_cpu(self) -> float:
        return min(self.cpu[1:])


def measure(console: Console, num_windows: int) -> tuple[list[Ratio], list[Figure]]:
    """The ratios and figures, printed as they are found."""
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder, running_stores(Path(folder)) as stores:
        migrate(stores.database_url)
        engine = make_engine(stores.database_url)
        found: dict[int, Taken] = {}
        for count in (FEW_WINDOWS, num_windows):
            began = perf_counter()
            _fill(engine, count)
            console.print(f"{count:,} windows stored in {perf_counter() - began:.0f} s", highlight=False)
            command = python_command(
                "-m", "benchmarks.large_matrices", stores.database_url, stores.mlflow_url, folder, str(count)
            )
            ended = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found[count] = Taken(**json.loads(ended.stdout.splitlines()[-1]))
            console.print(f"{count:,} windows: {_describe(found[count])}", highlight=False, soft_wrap=True)
        engine.dispose()
    few, many = found[FEW_WINDOWS], found[num_windows]
    what = f"a steady cycle with {num_windows:,} windows / with {FEW_WINDOWS}"
    ratio = smaller_is_better(
        what, many.steady_cpu, few.steady_cpu, commit=2 * few.steady_cpu, goal=1.2 * few.steady_cpu, unit="CPU s"
    )
    memory = smaller_is_better(
        f"peak memory with {num_windows:,} windows", many.peak_mib, 1024, commit=1024, goal=few.peak_mib, unit="MiB"
    )
    figures = [figure for count, taken in found.items() for figure in _figures(count, taken)]
    return [ratio, memory], figures


def _figures(count: int, taken: Taken) -> list[Figure]:
    of: Mapping[str, str] = {"windows with cells": f"{count:,}"}
    return [
        Figure(of={**of, "what": "first cycle"}, measure="seconds", unit="CPU s", value=taken.cpu[0]),
        Figure(
            of={**of, "what": "steady cycle"},
            measure="seconds",
            unit="CPU s",
            value=taken.steady_cpu,
            high=max(taken.cpu[1:]),
        ),
        Figure(of={**of, "what": "peak of the process"}, measure="memory", unit="MiB", value=taken.peak_mib),
        Figure(of={**of, "what": "cells"}, measure="count", unit="", value=taken.num_cells),
    ]


def _describe(taken: Taken) -> str:
    steady = ", ".join(f"{cpu:.2f}" for cpu in taken.cpu[1:])
    return (
        f"{taken.num_cells:,} cells; first cycle {taken.cpu[0]:.2f} CPU s ({taken.seconds[0]:.1f} s), steady ones "
        f"{steady} CPU s ({min(taken.seconds[1:]):.1f} s at best); {', '.join(sorted(set(taken.states)))}; "
        f"peak {taken.peak_mib:.0f} MiB, {taken.before_mib:.0f} before the first"
    )


def _name(num_windows: int) -> str:
    return f"windows_{num_windows}"


def _fill(engine: Engine, num_windows: int) -> None:
    """A task with rows in these windows and in those of the steady cycles, and with the cells of the former."""
    task = Task.model_validate(
        {
            "name": _name(num_windows),
            "features": [{"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}],
            "target": {"name": "y", "kind": "classification"},
            "window": "PT1H",
            "schedule": "manual",
            "guard": {"max_age": NUM_AGES, "tolerance": 5.0, "min_rows": 100},
            "training": {
                "experts": ["gi"],
                "num_seeds": 2,
                "calendar": [],
                "width": 8,
                "num_layers": 1,
                "batch_size": 64,
                "pretrain_epochs": 4,
                "finetune_windows": 1,
                "finetune_epochs": 1,
                "history": FEW_WINDOWS,
            },
        }
    )
    scores = np.linspace(0.01, 0.9, 201)
    given = {"first": START, "n": ROWS_PER_WINDOW}
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START)
        of_task = {"task_id": schema.task_id, "schema_id": schema.schema_id}
        connection.execute(_ROWS, of_task | given | {"windows": num_windows + NUM_STEADY})
        connection.execute(
            _CELLS,
            {
                "task_id": schema.task_id,
                "recipe": task.recipe,
                "windows": num_windows,
                "ages": NUM_AGES,
                "methods": list(METHODS),
                "scores": scores.tolist(),
                "tempered": [0.3] * len(TEMPERATURES),
            }
            | given,
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


_ROWS = text("""
    INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT :task_id, "window" || '-' || k, 1, moment, moment, moment, :schema_id, ARRAY[x], ARRAY[kind],
           CASE WHEN x > 0.5 THEN 'yes' ELSE 'no' END
    FROM generate_series(0, :windows - 1) AS "window", generate_series(0, :n - 1) AS k, LATERAL (
        SELECT CAST(:first AS timestamptz) + interval '1 hour' * ("window" + CAST(k AS float8) / :n) AS moment,
               random() + 0 * k AS x, CASE WHEN k % 2 = 0 THEN 'a' ELSE 'b' END AS kind
    ) AS one
""")
_CELLS = text("""
    INSERT INTO error_cells (task_id, recipe, origin, "window", method, num_rows, loss, metric, num_revisions,
                             is_complete, scores, tempered, scored_at)
    SELECT :task_id, :recipe, start - interval '1 hour' * age, start, method, :n,
           error, error / 3, :n, true, CAST(:scores AS float8[]), CAST(:tempered AS float8[]), start
    FROM generate_series(0, :windows - 1) AS place, generate_series(0, :ages - 1) AS age,
         unnest(CAST(:methods AS text[])) AS method, LATERAL (
        SELECT CAST(:first AS timestamptz) + interval '1 hour' * place AS start,
               CASE method WHEN 'gi' THEN 0.2 WHEN 'naive' THEN 0.9 ELSE 0.4 END + 0.01 * (place % 7) AS error
    ) AS one
""")


def carry_out(database_url: str, mlflow_url: str, home: Path, num_windows: int) -> Taken:
    """The cycles of a task in this process."""
    settings = TrainerSettings(home=home / _name(num_windows), threads=1, device="cpu", lease_seconds=600)
    configure_logs(settings.model_copy(update={"log_level": "ERROR"}))
    engine, registry = make_engine(database_url), Registry(mlflow_url)
    with engine.connect() as connection:
        schema = find_task(connection, _name(num_windows))
        count = text("SELECT count(*) FROM error_cells WHERE task_id = :task_id")
        num_cells = connection.execute(count, {"task_id": schema.task_id}).scalar_one()
    before = _peak_mib()
    done = [_carry_out(engine, registry, schema, settings, num_windows + k) for k in range(1 + NUM_STEADY)]
    engine.dispose()
    states, cpu, seconds = map(list, zip(*done, strict=True))
    return Taken(states, cpu, seconds, before, _peak_mib(), num_cells)


def _carry_out(
    engine: Engine, registry: Registry, schema: Schema, settings: TrainerSettings, num_windows: int
) -> tuple[str, float, float]:
    """How the cycle at the end of that many windows ended, and its CPU seconds and seconds."""
    now = datetime.now(UTC)
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, to_micros(START + num_windows * HOUR), now)
        cycle = claim_cycle(connection, uuid4().hex, now, timedelta(seconds=settings.lease_seconds))
    assert cycle is not None
    began, cpu = perf_counter(), process_time()
    state = run_cycle(engine, registry, cycle, settings=settings, now=lambda: datetime.now(UTC), report=_ignore)
    return str(state), process_time() - cpu, perf_counter() - began


def _ignore(_event: str, /, **_facts: object) -> None:
    """Progress is not reported."""


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / _MIB


if __name__ == "__main__":
    taken = carry_out(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(taken.__dict__))
