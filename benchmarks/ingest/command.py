"""`python -m benchmarks ingest`: what taking events costs, compared with the way most would build it.

The service is the real process with a key. The database is our own PostgreSQL with fsync, as users have it. Every body
holds new events. Servers take turns, and every ratio is the median of ratios taken within a round. Single events are
measured at 32 connections, and batches by the server's own CPU time. The CPU time of PostgreSQL is printed too, and
counts in the ratios that name both. pgbench shows what the database could do by itself.
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

import psutil
from rich.console import Console
from rich.table import Table
from sqlalchemy import text

from benchmarks.hardware import hardware
from benchmarks.ingest.events import TASK, make_events, take_bodies
from benchmarks.ingest.yardsticks import MANY, ONE, find_pgbench, plain_events, run_pgbench
from benchmarks.output import add_output_options, record_run
from benchmarks.ratios import Ratio, larger_is_better, ratio_figures, write_ratios
from benchmarks.serving.load import Requests, name_tool
from benchmarks.serving.rounds import Asked, Measured, compare, measure, require_no_errors
from benchmarks.serving.servers import Server, cpu_seconds, morrow, running
from cli.local.database import migrated_store
from cli.local.stack import free_port
from contracts.runtime.settings import SharedSettings
from store.api_keys import add_key
from store.engine import make_engine
from store.tasks.catalog import define_task

CONNECTIONS = 32
ROWS_PER_BATCH = 1000
# More than any server here takes in a second, so that no event is sent twice.
_MAX_EVENTS_PER_SECOND = 6000
_MAX_BATCHES_PER_SECOND = 60
# No bound and no goal, for figures that are only reported.
_UNPROMISED = (0, 1)


@dataclass(frozen=True)
class Plan:
    """How long to measure."""

    num_rounds: int
    seconds: float


FULL = Plan(num_rounds=7, seconds=3)
QUICK = Plan(num_rounds=5, seconds=1)


@dataclass(frozen=True)
class Way:
    """One way of taking events: a server and the path of its route, with a key if it asks for one."""

    server: Server
    path: str
    key: str | None = None


@dataclass(frozen=True)
class Taken:
    """One load on one way, and the CPU time that PostgreSQL took for it."""

    measured: Measured
    database_seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.measured.rate

    @property
    def num_rows(self) -> int:
        return self.measured.rows * self.measured.load.num_requests


def main(arguments: list[str]) -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ingest", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds")
    add_output_options(parser)
    given = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{hardware()}; load by {name_tool()}; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        ratios = _measure(Path(folder), QUICK if given.quick else FULL, console)
    for one in ratios:
        reached = f"commit {one['commit']:g}, goal {one['goal']:g}" if one["commit"] else "no bound"
        console.print(f"{one['name']}: {one['ratio']:.2f} ({reached}), {one['unit']}")
    if given.json:
        write_ratios(given.json, ratios)
    if given.results:
        title = "Taking events, compared with routes that write through SQLAlchemy"
        record_run(given.results, title, ["ingest", *arguments], ratio_figures(ratios))


def _measure(folder: Path, plan: Plan, console: Console) -> list[Ratio]:
    settings = SharedSettings(home=folder, database_url=None, mlflow_url=None)
    with ExitStack() as cleanup:
        database_url = cleanup.enter_context(migrated_store(settings))
        key = _prepare(database_url)
        ours = cleanup.enter_context(morrow(folder / "service", database_url, "", key=key, path="/livez"))
        port = free_port()
        command = ["-m", "benchmarks.ingest.yardsticks", str(port), database_url]
        plain = cleanup.enter_context(running("SQLAlchemy", command, folder / "plain.log", port, "/openapi.json"))
        events, database = make_events(), _find_postmaster(database_url)
        path = f"/events?task={TASK.name}"
        singles = {"morrow": Way(ours, path, key), "SQLAlchemy route": Way(plain, ONE)}
        batches = {"morrow": Way(ours, path, key), "executemany route": Way(plain, MANY)}
        pgbench = find_pgbench()
        single, inserts = _run(folder, plan, singles, events, database, pgbench=pgbench, database_url=database_url)
        _show(console, f"POST of one event, {CONNECTIONS} connections", single)
        if pgbench is None:
            console.print("pgbench is not installed, so the database alone was not measured")
        else:
            console.print(f"pgbench, one row and its commit, {CONNECTIONS} connections: {median(inserts):,.0f} rows/s")
        batch, _ = _run(folder, plan, batches, events, database, num_rows=ROWS_PER_BATCH)
        _show(console, f"POST of {ROWS_PER_BATCH} events, 1 connection", batch)
    return [*_ratios(single, batch), *_beside_pgbench(single["morrow"], inserts)]


def _prepare(database_url: str) -> str:
    """Make the task, the yardstick's table and a key, which is returned."""
    engine = make_engine(database_url)
    now = datetime.now(UTC)
    with engine.begin() as connection:
        define_task(connection, TASK, now)
        plain_events.create(connection)
        key = add_key(connection, "benchmark", ["ingest"], None, now)
    engine.dispose()
    return key


def _find_postmaster(database_url: str) -> int:
    """PostgreSQL's parent process on this machine."""
    engine = make_engine(database_url)
    with engine.connect() as connection:
        backend = psutil.Process(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        postmaster = backend.ppid()
    engine.dispose()
    return postmaster


def _run(
    folder: Path,
    plan: Plan,
    ways: Mapping[str, Way],
    events: Iterator[dict[str, Any]],
    database: int,
    *,
    num_rows: int | None = None,
    pgbench: str | None = None,
    database_url: str = "",
) -> tuple[dict[str, list[Taken]], list[float]]:
    """The rounds after one that does not count, and the rates of pgbench in between. Raises LoadFailed."""
    per_second = _MAX_EVENTS_PER_SECOND if num_rows is None else _MAX_BATCHES_PER_SECOND
    connections = CONNECTIONS if num_rows is None else 1
    found: dict[str, list[Taken]] = {name: [] for name in ways}
    inserts: list[float] = []
    for number in range(plan.num_rounds + 1):
        seconds = plan.seconds if number else 1.0
        for name, way in ways.items():
            bodies = take_bodies(events, round(per_second * seconds), num_rows)
            asked = Asked(way.server, Requests(way.server.url, [way.path], bodies, way.key), num_rows or 1)
            before = cpu_seconds(database)
            measured = measure(asked, connections=connections, seconds=seconds, folder=folder)
            require_no_errors({name: [measured]})
            if number:
                found[name].append(Taken(measured, cpu_seconds(database) - before))
        if number and pgbench:
            inserts.append(run_pgbench(pgbench, database_url, connections=connections, seconds=seconds, folder=folder))
    return found, inserts


def _show(console: Console, title: str, found: Mapping[str, Sequence[Taken]]) -> None:
    table = Table(
        "", "rows/s", "server CPU µs a row", "PostgreSQL CPU µs a row", "p99 ms", title=title, title_justify="left"
    )
    for name, rounds in found.items():
        rate, p99 = (median(one.rate for one in rounds), median(one.measured.load.p99_ms for one in rounds))
        server = median(1e6 * one.measured.cpu_seconds / one.num_rows for one in rounds)
        database = median(1e6 * one.database_seconds / one.num_rows for one in rounds)
        table.add_row(name, f"{rate:,.0f}", f"{server:,.1f}", f"{database:,.1f}", f"{p99:.1f}")
    console.print(table)


def _ratios(single: Mapping[str, Sequence[Taken]], batch: Mapping[str, Sequence[Taken]]) -> list[Ratio]:
    one, many = "POST /events, one row / SQLAlchemy route", f"POST /events, {ROWS_PER_BATCH} rows / executemany"
    ways = [
        (one, single, "SQLAlchemy route", (2, 3), _UNPROMISED),
        (many, batch, "executemany route", _UNPROMISED, (5, 9)),
    ]
    ratios = []
    for name, found, yardstick, by_clock, by_cpu in ways:
        for unit, value, (commit, goal) in (
            ("rows/s", _rate, by_clock),
            ("rows/CPU s of the server", _server_rate, by_cpu),
            ("rows/CPU s of server and PostgreSQL", _whole_rate, _UNPROMISED),
        ):
            both = compare(found["morrow"], found[yardstick], value)
            ratios.append(
                larger_is_better(name, both.ours, both.yardstick, ratio=both.ratio, commit=commit, goal=goal, unit=unit)
            )
    return ratios


def _rate(taken: Taken) -> float:
    return taken.rate


def _server_rate(taken: Taken) -> float:
    return taken.measured.cpu_rate


def _whole_rate(taken: Taken) -> float:
    return taken.num_rows / (taken.measured.cpu_seconds + taken.database_seconds)


def _beside_pgbench(ours: Sequence[Taken], inserts: Sequence[float]) -> list[Ratio]:
    if not inserts:
        return []
    ratio = median(one.rate / other for one, other in zip(ours, inserts, strict=True))
    name = "POST /events, one row / pgbench"
    rates = median(one.rate for one in ours), median(inserts)
    commit, goal = _UNPROMISED
    return [larger_is_better(name, *rates, ratio=ratio, commit=commit, goal=goal, unit="rows/s")]
