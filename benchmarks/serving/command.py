"""`python -m benchmarks serving`: what an answer costs compared with its yardsticks, all in one run and by turns.

The model is the flights task's, as a real cycle has released it, with cohort, TReLU and encoder. The service is the
real process with key, metrics, guard and full answers. `--folder` keeps the stack with the released versions, and
`--mlflow-env` the environment of `mlflow models serve`, so that a rerun starts measuring at once. Every ratio is the
median of ratios taken within a round.

With `--log` it measures only what the log of predictions costs (`benchmarks.serving.logged`).
With `--recipes` it measures only what the parts of a task's default recipe cost (`benchmarks.serving.recipes`), which
needs no environment of MLflow.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.hardware import hardware
from benchmarks.output import add_output_options, record_run
from benchmarks.ratios import Ratio, larger_is_better, ratio_figures, smaller_is_better, write_ratios
from benchmarks.serving.bare_graph import save_bare_graph
from benchmarks.serving.floor import CORE, DESIGN, measure_imports
from benchmarks.serving.load import Requests, name_tool
from benchmarks.serving.logged import LOGGED, UNLOGGED, measure_log
from benchmarks.serving.questions import (
    NUM_ROWS,
    ROWS_PER_BATCH,
    batch_body,
    complete_rows,
    frame_body,
    get_paths,
    tensor_body,
)
from benchmarks.serving.recipes import measure_recipes
from benchmarks.serving.release import Released, make_key, read_defaults, read_tasks, release
from benchmarks.serving.rounds import Asked, Measured, compare, require_no_errors, run_rounds
from benchmarks.serving.servers import Server, compile_ours, make_mlflow_environment, mlflow_serve, morrow, yardstick
from benchmarks.serving.swaps import CONNECTIONS, Swaps, measure_swaps
from benchmarks.serving.yardsticks import NOOP_PATH
from cli.local.stack import EmbeddedStack, free_port
from contracts.runtime.settings import SharedSettings

Rounds = dict[str, list[Measured]]
Rows = Sequence[dict[str, Any]]
Report = Callable[[object], object]

NUM_IMPORTS = 5


@dataclass(frozen=True)
class Plan:
    """How long to measure."""

    num_rounds: int
    seconds: float
    num_starts: int
    num_swaps: int
    log_seconds: float


FULL = Plan(num_rounds=7, seconds=3, num_starts=5, num_swaps=5, log_seconds=300)
QUICK = Plan(num_rounds=5, seconds=2, num_starts=1, num_swaps=1, log_seconds=20)
# What a file of results holds.
_OTHERS = "An answer compared with a FastAPI no-op and MLflow's server of the same version"
_PARTS = "An answer with parts of a task's default recipe, and with the log of predictions, compared with one without"


@dataclass(frozen=True)
class Place:
    """Where the released versions are, and where this run may write."""

    stack: EmbeddedStack
    folder: Path
    venv: Path
    key: str


def main(arguments: list[str]) -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks serving", description=__doc__)
    cache = Path(tempfile.gettempdir()) / "morrow-benchmark-serving"
    parser.add_argument("--folder", type=Path, default=cache / "stack", help="folder that keeps the released versions")
    parser.add_argument(
        "--mlflow-env",
        type=Path,
        default=cache / "mlflow",
        help="environment of MLflow's server; made if it is missing",
    )
    parser.add_argument("--quick", action="store_true", help="short rounds, one start, one swap")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--recipes", action="store_true", help="only the parts of a task's default recipe")
    parts.add_argument("--log", action="store_true", help="only the log of predictions")
    add_output_options(parser)
    given = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    if not (given.recipes or given.log):
        make_mlflow_environment(given.mlflow_env)
    compile_ours()
    console.print(f"{hardware()}; load by {name_tool()}; load average {os.getloadavg()[0]:.1f}")
    settings = SharedSettings(home=given.folder, database_url=None, mlflow_url=None)
    with (
        tempfile.TemporaryDirectory(prefix="morrow-") as folder,
        EmbeddedStack(settings, free_port(), console) as stack,
    ):
        defaults = [] if given.log else release(stack, read_defaults(), console)
        released = [] if given.recipes else release(stack, read_tasks(), console)
        place = Place(stack, Path(folder), given.mlflow_env, make_key(stack.addresses.database))
        plan = QUICK if given.quick else FULL
        ratios = [] if given.recipes or given.log else _measure(place, released, plan, console.print)
        ratios += _measure_log(place, released[0], plan, console.print) if released else []
        ratios += _measure_defaults(place, defaults, plan, console.print) if defaults else []
    console.print(_table(ratios))
    console.print(f"load average {os.getloadavg()[0]:.1f}")
    if given.json:
        write_ratios(given.json, ratios)
    if given.results:
        title = _PARTS if given.recipes or given.log else _OTHERS
        record_run(given.results, title, ["serving", *arguments], ratio_figures(ratios))


def _measure(place: Place, released: Sequence[Released], plan: Plan, report: Report) -> list[Ratio]:
    cohort, plain = released
    report(f"Starting the servers; {plan.num_starts} times the two whose start is compared …")
    starts = [_start_both(place, cohort) for _ in range(plan.num_starts - 1)]
    with ExitStack() as cleanup:
        ours, mlflow = (cleanup.enter_context(server) for server in _both(place, cohort))
        noop, bare = (cleanup.enter_context(yardstick(name, place.folder)) for name in ("noop", "bare"))
        starts.append((ours.start_cpu_seconds, mlflow.start_cpu_seconds))
        rows = complete_rows(cohort, NUM_ROWS)
        single = {
            "morrow": _ask(place, ours, cohort, rows),
            "morrow, one plain network": _ask(place, ours, plain, rows),
            "FastAPI no-op": Asked(noop, Requests(noop.url, [NOOP_PATH])),
            "bare ASGI": Asked(bare, Requests(bare.url, ["/"])),
        }
        peers = {
            "MLflow, DataFrame": _ask_mlflow(mlflow, [frame_body(cohort.task, [row]) for row in rows]),
            "MLflow, tensor": _ask_mlflow(mlflow, [tensor_body(cohort.task, [row]) for row in rows]),
        }
        many = complete_rows(cohort, ROWS_PER_BATCH)
        batches = {
            "morrow": _post(place, ours, cohort, many),
            "morrow, one plain network": _post(place, ours, plain, many),
            "MLflow, DataFrame": _ask_mlflow(mlflow, [frame_body(cohort.task, many)], len(many)),
            "MLflow, tensor": _ask_mlflow(mlflow, [tensor_body(cohort.task, many)], len(many)),
        }
        busy = _rounds(place, plan, report, "GET, 32 connections", asked=single | peers, connections=CONNECTIONS)
        calm = _rounds(place, plan, report, "GET, 1 connection", asked=single, connections=1)
        bulk = _rounds(place, plan, report, f"POST, {ROWS_PER_BATCH} rows", asked=batches, connections=1)
        memory = ours.memory_bytes(), mlflow.memory_bytes()
        floor = [
            *_floor("imports of FastAPI, NumPy, ONNX Runtime", CORE, memory[0], starts),
            *_floor("imports of all libraries", DESIGN, memory[0], starts),
        ]
        mlflow_url = place.stack.addresses.mlflow
        swaps = measure_swaps(single["morrow"], cohort, mlflow_url, num_rounds=plan.num_swaps, folder=place.folder)
    report(f"swaps under load: {len(swaps.swapped)}, errors: {swaps.num_errors}")
    return [*_rates(busy, calm), *_bulk(bulk), *_costs(memory, starts), *floor, _tail(swaps)]


def _measure_defaults(place: Place, released: Sequence[Released], plan: Plan, report: Report) -> list[Ratio]:
    """What the parts of the default recipe cost."""
    home, addresses = Path(tempfile.mkdtemp(dir=place.folder)), place.stack.addresses
    path = get_paths(released[0].task.name, complete_rows(released[0], 1))[0]
    with morrow(home, addresses.database, addresses.mlflow, key=place.key, path=path) as ours:
        asked = {one.task.name: _ask(place, ours, one, complete_rows(one, NUM_ROWS)) for one in released}

        def run(title: str, asked: dict[str, Asked], connections: int) -> Rounds:
            return _rounds(place, plan, report, title, asked=asked, connections=connections)

        ratios, said = measure_recipes(run, asked, released, addresses.mlflow, place.folder)
    for line in said:
        report(line)
    return ratios


def _measure_log(place: Place, released: Released, plan: Plan, report: Report) -> list[Ratio]:
    """What the log of predictions costs."""
    addresses, rows = place.stack.addresses, complete_rows(released, NUM_ROWS)
    path = get_paths(released.task.name, rows)[0]
    with ExitStack() as cleanup:
        asked = {}
        for name, is_logged in ((LOGGED, "true"), (UNLOGGED, "false")):
            home = Path(tempfile.mkdtemp(dir=place.folder))
            server = morrow(
                home,
                addresses.database,
                addresses.mlflow,
                key=place.key,
                path=path,
                MORROW_LOG_PREDICTIONS=is_logged,
            )
            asked[name] = _ask(place, cleanup.enter_context(server), released, rows)

        def run(title: str, asked: dict[str, Asked], connections: int) -> Rounds:
            return _rounds(place, plan, report, title, asked=asked, connections=connections)

        ratios, said = measure_log(run, asked, addresses.database, seconds=plan.log_seconds, folder=place.folder)
    for line in said:
        report(line)
    return ratios


def _both(place: Place, released: Released) -> Iterator[AbstractContextManager[Server]]:
    """Ours with an empty home, and so without a local copy of any version, and MLflow's."""
    addresses = place.stack.addresses
    home = Path(tempfile.mkdtemp(dir=place.folder))
    path = get_paths(released.task.name, complete_rows(released, 1))[0]
    yield morrow(home, addresses.database, addresses.mlflow, key=place.key, path=path)
    yield mlflow_serve(place.venv, save_bare_graph(addresses.mlflow, released, place.folder), place.folder)


def _start_both(place: Place, released: Released) -> tuple[float, float]:
    """CPU seconds from start to the first answer, ours and MLflow's."""
    found = []
    for starting in _both(place, released):
        with starting as server:
            found.append(server.start_cpu_seconds)
    ours, mlflow = found
    return ours, mlflow


def _ask(place: Place, server: Server, released: Released, rows: Rows) -> Asked:
    return Asked(server, Requests(server.url, get_paths(released.task.name, rows), key=place.key))


def _post(place: Place, server: Server, released: Released, rows: Rows) -> Asked:
    path = f"/predict?task={released.task.name}"
    return Asked(server, Requests(server.url, [path], [batch_body(rows)], place.key), len(rows))


def _ask_mlflow(server: Server, bodies: Sequence[str], num_rows: int = 1) -> Asked:
    return Asked(server, Requests(server.url, ["/invocations"], bodies), num_rows)


def _rounds(
    place: Place, plan: Plan, report: Report, title: str, *, asked: dict[str, Asked], connections: int
) -> Rounds:
    """Run the rounds; print medians and the least disturbed CPU time. Raises LoadFailed if an answer is an error."""
    found = run_rounds(
        asked, num_rounds=plan.num_rounds, connections=connections, seconds=plan.seconds, folder=place.folder
    )
    require_no_errors(found)
    table = Table("", "rows/s", "CPU µs a row", "least", "p99 ms", title=title, title_justify="left")
    for name, rounds in found.items():
        cpu = [1e6 / one.cpu_rate for one in rounds]
        rate, p99 = median(one.rate for one in rounds), median(one.load.p99_ms for one in rounds)
        table.add_row(name, f"{rate:,.0f}", f"{median(cpu):,.1f}", f"{min(cpu):,.1f}", f"{p99:.1f}")
    report(table)
    return found


def _rates(busy: Rounds, calm: Rounds) -> list[Ratio]:
    noop, frame, tensor, plain = "FastAPI no-op", "MLflow, DataFrame", "MLflow, tensor", "morrow, one plain network"
    found: list[Ratio] = []
    for rounds, yardstick_name, commit, goal in (
        (busy, noop, 2.0, 2.8),
        (calm, noop, 1.3, 2.2),
        (busy, frame, 20, 50),
        (busy, tensor, 8, 18),
        (busy, plain, 0, 1),
        (calm, plain, 0, 1),
        (busy, "bare ASGI", 0, 1),
        (calm, "bare ASGI", 0, 1),
    ):
        connections = CONNECTIONS if rounds is busy else 1
        name = f"GET /predict / {yardstick_name}, {connections} connection{'s' if connections > 1 else ''}"
        found += _by_wall_and_cpu(name, rounds["morrow"], rounds[yardstick_name], commit, goal)
    return found


def _by_wall_and_cpu(
    name: str, ours: Sequence[Measured], other: Sequence[Measured], commit: float, goal: float
) -> Iterator[Ratio]:
    for unit, value in (("requests/s", lambda one: one.rate), ("requests/CPU s", lambda one: one.cpu_rate)):
        found = compare(ours, other, value)
        yield larger_is_better(
            name, found.ours, found.yardstick, ratio=found.ratio, commit=commit, goal=goal, unit=unit
        )


def _bulk(bulk: Rounds) -> list[Ratio]:
    ratios = []
    for name, commit, goal in (
        ("MLflow, DataFrame", 3, 5),
        ("MLflow, tensor", 3, 5),
        ("morrow, one plain network", 0, 1),
    ):
        found = compare(bulk["morrow"], bulk[name], lambda one: one.cpu_rate)
        title = f"POST /predict {ROWS_PER_BATCH} rows / {name}"
        ratios.append(
            larger_is_better(
                title, found.ours, found.yardstick, ratio=found.ratio, commit=commit, goal=goal, unit="rows/CPU s"
            )
        )
    return ratios


def _costs(memory: tuple[int, int], starts: Sequence[tuple[float, float]]) -> list[Ratio]:
    ours, mlflow = (size / 2**20 for size in memory)
    start, mlflow_start = (median(seconds) for seconds in zip(*starts, strict=True))
    return [
        smaller_is_better(
            "memory (PSS) / MLflow serve", ours, mlflow, commit=0.2 * mlflow, goal=0.12 * mlflow, unit="MiB"
        ),
        smaller_is_better(
            "start / MLflow serve",
            start,
            mlflow_start,
            commit=0.15 * mlflow_start,
            goal=0.08 * mlflow_start,
            unit="CPU s",
        ),
    ]


def _floor(name: str, modules: Sequence[str], memory: int, starts: Sequence[tuple[float, float]]) -> Iterator[Ratio]:
    """What the service takes compared with an interpreter that only imports these libraries."""
    found = [measure_imports(modules) for _ in range(NUM_IMPORTS)]
    seconds, size = (median(values) for values in zip(*found, strict=True))
    start = median(ours for ours, _ in starts)
    for unit, what, ours, bare in (
        ("MiB", "memory (PSS)", memory / 2**20, size / 2**20),
        ("CPU s", "start", start, seconds),
    ):
        yield larger_is_better(f"{what} / {name}", ours, bare, ratio=ours / bare, commit=0, goal=1, unit=unit)


def _tail(swaps: Swaps) -> Ratio:
    quiet, swapped = (median(load.p99_ms for load in loads) for loads in (swaps.quiet, swaps.swapped))
    return smaller_is_better(
        "p99 of GET while a version is swapped in / without",
        swapped,
        quiet,
        commit=1.5 * quiet,
        goal=1.1 * quiet,
        unit="ms",
    )


def _table(ratios: Sequence[Ratio]) -> Table:
    """Every ratio with its levels: ours over the yardstick if less is better."""
    table = Table("ratio", "in", "ours", "yardstick", "ratio", "commit", "goal", "met")
    for one in ratios:
        is_less_better = one["better"] == "lower"
        ratio, commit, goal = (
            f"{1 / one[key] if is_less_better else one[key]:.2f}" for key in ("ratio", "commit", "goal")
        )
        sign = "≤ " if is_less_better else "≥ "
        is_bound = one["commit"] != 0
        table.add_row(
            one["name"],
            one["unit"],
            f"{one['ours']:,.4g}",
            f"{one['yardstick']:,.4g}",
            ratio,
            sign + commit if is_bound else "",
            sign + goal if is_bound else "",
            ("yes" if one["met"] else "no") if is_bound else "",
        )
    return table
