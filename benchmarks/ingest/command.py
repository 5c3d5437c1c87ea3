"""`python -m benchmarks ingest`: what it costs to take events, beside the way most would build it, all in one run.

The service is the real process with a key; the database is our own PostgreSQL with fsync, as users have it. Every body
holds events that were never sent before. Servers take turns, and every ratio is the median of ratios taken within a
round. Rates of single events are those at 32 connections; a batch is measured by the server's own CPU time, in which
PostgreSQL has no part. pgbench stands beside them as what the database could do by itself.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, hardware, larger_is_better, write_figures
from benchmarks.ingest.events import TASK, make_events, take_bodies
from benchmarks.ingest.yardsticks import MANY, ONE, find_pgbench, plain_events, run_pgbench
from benchmarks.serving.load import Requests, name_tool
from benchmarks.serving.rounds import Asked, Measured, compare, measure, require_no_errors
from benchmarks.serving.servers import Server, morrow, running
from cli.stack import free_port
from cli.store import migrated_store
from contracts.catalog import define_task
from contracts.database import make_engine
from contracts.keys import add_key
from contracts.settings import SharedSettings

CONNECTIONS = 32
ROWS_PER_BATCH = 1000
# More than any server here takes in a second, so that none is sent an event twice.
_MOST_EVENTS_PER_SECOND = 6000
_MOST_BATCHES_PER_SECOND = 60


@dataclass(frozen=True)
class Plan:
    """How long to measure."""

    num_rounds: int
    seconds: float


FULL = Plan(num_rounds=7, seconds=3)
QUICK = Plan(num_rounds=5, seconds=1)


@dataclass(frozen=True)
class Way:
    """One way of taking events: a server and the path of its route, with a key where it asks for one."""

    server: Server
    path: str
    key: str | None = None


def main(arguments: list[str]) -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ingest", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{hardware()}; load by {name_tool()}; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        figures = _measure(Path(folder), QUICK if given.quick else FULL, console)
    for figure in figures:
        reached = f"commit {figure['commit']:g}, goal {figure['goal']:g}" if figure["commit"] else "no bound"
        console.print(f"{figure['name']}: {figure['ratio']:.2f} ({reached}), {figure['unit']}")
    if given.json:
        write_figures(given.json, figures)


def _measure(folder: Path, plan: Plan, console: Console) -> list[Figure]:
    settings = SharedSettings(home=folder, database_url=None, mlflow_url=None)
    with ExitStack() as cleanup:
        database_url = cleanup.enter_context(migrated_store(settings))
        key = _prepare(database_url)
        ours = cleanup.enter_context(morrow(folder / "service", database_url, "", key=key, path="/livez"))
        port = free_port()
        command = ["-m", "benchmarks.ingest.yardsticks", str(port), database_url]
        plain = cleanup.enter_context(running("SQLAlchemy", command, folder / "plain.log", port, "/openapi.json"))
        events = make_events()
        path = f"/events?task={TASK.name}"
        singles = {"morrow": Way(ours, path, key), "SQLAlchemy route": Way(plain, ONE)}
        batches = {"morrow": Way(ours, path, key), "executemany route": Way(plain, MANY)}
        pgbench = find_pgbench()
        single, inserts = _run(folder, plan, singles, events, pgbench=pgbench, database_url=database_url)
        _show(console, f"POST of one event, {CONNECTIONS} connections", single)
        if pgbench is None:
            console.print("pgbench is not installed, so the database by itself was not measured")
        else:
            console.print(f"pgbench, one row and its commit, {CONNECTIONS} connections: {median(inserts):,.0f} rows/s")
        batch, _ = _run(folder, plan, batches, events, num_rows=ROWS_PER_BATCH)
        _show(console, f"POST of {ROWS_PER_BATCH} events, 1 connection", batch)
    return [*_figures(single, batch), *_beside_pgbench(single["morrow"], inserts)]


def _prepare(database_url: str) -> str:
    """The task, the yardstick's table, and a key, which is returned."""
    engine = make_engine(database_url)
    now = datetime.now(UTC)
    with engine.begin() as connection:
        define_task(connection, TASK, now)
        plain_events.create(connection)
        key = add_key(connection, "benchmark", ["ingest"], None, now)
    engine.dispose()
    return key


def _run(
    folder: Path,
    plan: Plan,
    ways: Mapping[str, Way],
    events: Iterator[dict[str, Any]],
    *,
    num_rows: int | None = None,
    pgbench: str | None = None,
    database_url: str = "",
) -> tuple[dict[str, list[Measured]], list[float]]:
    """So many rounds after one that does not count, and the rates of pgbench in between. Raises LoadFailed."""
    per_second = _MOST_EVENTS_PER_SECOND if num_rows is None else _MOST_BATCHES_PER_SECOND
    connections = CONNECTIONS if num_rows is None else 1
    found: dict[str, list[Measured]] = {name: [] for name in ways}
    inserts: list[float] = []
    for number in range(plan.num_rounds + 1):
        seconds = plan.seconds if number else 1.0
        for name, way in ways.items():
            bodies = take_bodies(events, round(per_second * seconds), num_rows)
            asked = Asked(way.server, Requests(way.server.url, [way.path], bodies, way.key), num_rows or 1)
            measured = measure(asked, connections=connections, seconds=seconds, folder=folder)
            require_no_errors({name: [measured]})
            if number:
                found[name].append(measured)
        if number and pgbench:
            inserts.append(run_pgbench(pgbench, database_url, connections=connections, seconds=seconds, folder=folder))
    return found, inserts


def _show(console: Console, title: str, found: Mapping[str, Sequence[Measured]]) -> None:
    table = Table("", "rows/s", "server CPU µs a row", "p99 ms", title=title, title_justify="left")
    for name, rounds in found.items():
        rate, cpu = (median(one.rate for one in rounds), median(1e6 / one.cpu_rate for one in rounds))
        table.add_row(name, f"{rate:,.0f}", f"{cpu:,.1f}", f"{median(one.load.p99_ms for one in rounds):.1f}")
    console.print(table)


def _figures(single: Mapping[str, Sequence[Measured]], batch: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    one = compare(single["morrow"], single["SQLAlchemy route"], lambda measured: measured.rate)
    one_cpu = compare(single["morrow"], single["SQLAlchemy route"], lambda measured: measured.cpu_rate)
    many = compare(batch["morrow"], batch["executemany route"], lambda measured: measured.cpu_rate)
    many_wall = compare(batch["morrow"], batch["executemany route"], lambda measured: measured.rate)
    name_one, name_many = (
        "POST /events, one row / SQLAlchemy route",
        f"POST /events, {ROWS_PER_BATCH} rows / executemany",
    )
    return [
        larger_is_better(name, both.ours, both.yardstick, ratio=both.ratio, commit=commit, goal=goal, unit=unit)
        for name, both, commit, goal, unit in (
            (name_one, one, 2, 3, "requests/s"),
            (name_one, one_cpu, 0, 1, "requests/CPU s"),
            (name_many, many, 5, 9, "rows/CPU s"),
            (name_many, many_wall, 0, 1, "rows/s"),
        )
    ]


def _beside_pgbench(ours: Sequence[Measured], inserts: Sequence[float]) -> list[Figure]:
    if not inserts:
        return []
    ratio = median(one.rate / other for one, other in zip(ours, inserts, strict=True))
    name = "POST /events, one row / pgbench"
    rates = median(one.rate for one in ours), median(inserts)
    return [larger_is_better(name, *rates, ratio=ratio, commit=0, goal=1, unit="rows/s")]
