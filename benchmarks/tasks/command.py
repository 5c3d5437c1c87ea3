"""`python -m benchmarks tasks`: what many tasks cost a machine while nobody asks, and how soon a change is obeyed.

One small task is trained and released by the real stack. It is then copied (`benchmarks.tasks.copies`) until there are
as many tasks as wanted: rows in PostgreSQL and in MLflow's database, and files in the home folder. API and trainer are
started one after the other, each with all tasks, and do nothing but poll and tick. Statements and requests are those of
the process itself, and CPU time is the system's account. Seconds of requests are medians, and depend on the machine.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.mixed.clients import Client, Record, fill_history
from benchmarks.mixed.ledger import Ledger
from benchmarks.mixed.story import Stage, retrain
from benchmarks.mixed.stream import Present, make_task
from benchmarks.output import add_output_options, record_run
from benchmarks.result_files import Figure
from benchmarks.serving.servers import cpu_seconds, memory_bytes
from benchmarks.stores import await_that, is_answered, running_stores
from benchmarks.tasks.copies import copy_folders, copy_models, copy_tasks
from cli.local.postgres import EmbeddedPostgres
from cli.local.processes import Child, start_child
from cli.local.stack import HOST, EmbeddedStack, child_environment, free_port
from contracts.clock import format_moment, parse_moment
from contracts.runtime.python_process import python_command
from contracts.runtime.settings import SharedSettings
from service.settings import ServiceSettings
from store.engine import make_engine
from store.tasks.catalog import find_task

TASK = "original"
NUM_TASKS = (1, 10, 100, 1000, 10_000)
PATHS: dict[str, dict[str, str]] = {"/tasks": {}, "/": {}, "/metrics": {}}
NUM_REQUESTS = 5
# The first looks see everything; they are no part of what it costs to do nothing.
SETTLE_SECONDS = 15.0
# The most seconds that the trainer gets for its first pass over all tasks, and for its first sweep.
MAX_SETTLE_SECONDS = 300.0


@dataclass(frozen=True)
class Idle:
    """A process that does nothing but look: statements, requests and CPU time a second, and its memory."""

    statements: float
    requests: float
    cpu: float
    memory: float


@dataclass(frozen=True)
class Measured:
    """One number of tasks; seconds of requests by path."""

    num_tasks: int
    ready_seconds: float
    api: Idle
    request_seconds: dict[str, float | None]
    override_seconds: float
    first_question_seconds: float
    trainer: Idle

    def figures(self, poll_seconds: float) -> list[Figure]:
        """The figures as data; statements and requests of the API are those of a look."""
        rows: list[tuple[str, str, str, float | None]] = [
            ("API", "statements a look", "", self.api.statements * poll_seconds),
            ("API", "requests to MLflow a look", "", self.api.requests * poll_seconds),
            ("trainer", "statements a second", "", self.trainer.statements),
            ("trainer", "requests to MLflow a second", "", self.trainer.requests),
            ("API", "idle CPU", "% of a core", 100 * self.api.cpu),
            ("trainer", "idle CPU", "% of a core", 100 * self.trainer.cpu),
            ("API", "memory", "MiB", self.api.memory),
            ("trainer", "memory", "MiB", self.trainer.memory),
            ("API", "start until ready", "s", self.ready_seconds),
            ("API", "override obeyed", "s", self.override_seconds),
            ("API", "first question", "s", self.first_question_seconds),
            *(("API", f"GET {path}", "s", seconds) for path, seconds in self.request_seconds.items()),
        ]
        return [
            Figure(
                of={"tasks": self.num_tasks, "process": process},
                measure=measure,
                unit=unit,
                value=value,
                note="not answered" if value is None else "",
            )
            for process, measure, unit, value in rows
        ]


def main(arguments: list[str]) -> None:
    """Parse the arguments, measure each number of tasks, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks tasks", description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[*NUM_TASKS], help="numbers of tasks")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each process is watched")
    add_output_options(parser)
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    poll_seconds = ServiceSettings().poll_seconds
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        home = Path(folder) / "home"
        make_original(home, console)
        have = 1
        for num_tasks in sorted(given.tasks):
            add_copies(home, range(have, num_tasks))
            have = max(have, num_tasks)
            found.append(measure(home, num_tasks, given.seconds))
            print_table(console, found[-1].figures(poll_seconds), f"{num_tasks} tasks")
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    if given.results:
        title = "Many tasks on one machine: what they cost while nobody asks, and how soon a change is obeyed"
        figures = [figure for one in found for figure in one.figures(poll_seconds)]
        record_run(given.results, title, ["tasks", *arguments], figures)


def print_table(console: Console, figures: list[Figure], title: str) -> None:
    table = Table(title=title)
    for heading in ("process", "measure", "value", "unit"):
        table.add_column(heading)
    for figure in figures:
        table.add_row(str(figure.of["process"]), figure.measure, figure.note or f"{figure.value:.3g}", figure.unit)
    console.print(table)


def make_original(home: Path, console: Console) -> None:
    """Train and release a version of one small task with the real stack, and stop it."""
    ledger, present = Ledger(), Present()
    shared = SharedSettings(home=home, database_url=None, mlflow_url=None)
    with EmbeddedStack(shared, free_port(), console) as stack, httpx.Client(base_url=stack.addresses.api) as api:
        api.put(f"/tasks/{TASK}", json=make_task(TASK).model_dump(mode="json", exclude={"name"})).raise_for_status()
        client = Client(stack.addresses.api, TASK, ledger, Record(), seed=1000)
        fill_history(client, "history")
        retrain(Stage(api, TASK, present, ledger, client, stack.check))
        client.close()


def add_copies(home: Path, numbers: range) -> None:
    """Copy the task once for each number; nothing runs meanwhile."""
    names = name_tasks(numbers.stop)[numbers.start :]
    if not names:
        return
    with EmbeddedPostgres(home / "postgres") as postgres:
        engine = make_engine(postgres.url)
        with engine.connect() as connection:
            schema = find_task(connection, TASK)
        ids = copy_tasks(engine, schema, names)
        engine.dispose()
    copy_models(home / "mlflow" / "mlflow.db", TASK, names)
    copy_folders(home / "models", TASK, ids)


def name_tasks(num_tasks: int) -> list[str]:
    """The original, and its copies."""
    return [TASK, *(f"copy_{number:05}" for number in range(1, num_tasks))]


def measure(home: Path, num_tasks: int, seconds: float) -> Measured:
    """Watch the API, and then the trainer, with all tasks."""
    port = free_port()
    last = name_tasks(num_tasks)[-1]
    with running_stores(home) as stores:
        shared = {
            "MORROW_HOME": str(home),
            "MORROW_DATABASE_URL": stores.database_url,
            "MORROW_MLFLOW_URL": stores.mlflow_url,
            "MORROW_LOG_FORMAT": "json",
        }
        given, began = shared | {"MORROW_HOST": HOST, "MORROW_PORT": str(port)}, time.monotonic()
        with (
            running_part(home, "serve", given) as (api, counts),
            httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60, trust_env=False) as client,
        ):
            await_that("/readyz", api, lambda: is_answered(client, "/readyz") and has_looked(client, num_tasks))
            ready = time.monotonic() - began
            time.sleep(SETTLE_SECONDS)
            api_idle = watch(api, counts, seconds)
            spent = {path: time_requests(client, path, query) for path, query in PATHS.items()}
            question = median(time_question(client, name) for name in name_tasks(num_tasks)[-NUM_REQUESTS:])
            obeyed = time_override(client, api, last)
        with running_part(home, "trainer", shared) as (trainer, counts):
            time.sleep(SETTLE_SECONDS)
            await_rest(trainer, counts)
            trainer_idle = watch(trainer, counts, seconds)
    return Measured(num_tasks, ready, api_idle, spent, obeyed, question, trainer_idle)


@contextmanager
def running_part(home: Path, command: str, given: dict[str, str]) -> Iterator[tuple[Child, Path]]:
    """A process of Morrow, and the file of its counts."""
    counts = home / f"{command}.counts.json"
    counts.unlink(missing_ok=True)
    argv = python_command("-m", "benchmarks.tasks.counted", str(counts), command)
    child = start_child(command, argv, child_environment(home, given), home / "logs" / f"{command}.log")
    try:
        yield child, counts
    finally:
        child.stop()


def await_rest(trainer: Child, counts: Path) -> None:
    """Wait until the trainer has no training process, and sends about as many statements as in the 5 s before."""
    deadline, former = time.monotonic() + MAX_SETTLE_SECONDS, -1
    while time.monotonic() < deadline:
        before = json.loads(counts.read_text())["statements"]
        time.sleep(SETTLE_SECONDS / 3)
        sent = json.loads(counts.read_text())["statements"] - before
        if abs(sent - former) <= max(2, former // 10) and not psutil.Process(trainer.process.pid).children():
            return
        former = sent


def watch(child: Child, counts: Path, seconds: float) -> Idle:
    """What a process does in this many seconds."""
    before, cpu, began = json.loads(counts.read_text()), cpu_seconds(child.process.pid), time.monotonic()
    time.sleep(seconds)
    child.check()
    passed = time.monotonic() - began
    after = json.loads(counts.read_text())
    return Idle(
        statements=(after["statements"] - before["statements"]) / passed,
        requests=(after["requests"] - before["requests"]) / passed,
        cpu=(cpu_seconds(child.process.pid) - cpu) / passed,
        memory=memory_bytes(child.process.pid) / 2**20,
    )


def time_requests(client: httpx.Client, path: str, query: dict[str, str]) -> float | None:
    """The median of some requests; None if one of them fails."""
    seconds = []
    for _ in range(NUM_REQUESTS):
        began = time.monotonic()
        if not client.get(path, params=query).is_success:
            return None
        seconds.append(time.monotonic() - began)
    return median(seconds)


def time_question(client: httpx.Client, task: str) -> float:
    """The first question to a task."""
    at = find_moment(client, task)
    began = time.monotonic()
    ask(client, task, at).raise_for_status()
    return time.monotonic() - began


def time_override(client: httpx.Client, api: Child, task: str) -> float:
    """From an override of a horizon until an answer names the new bound."""
    at = find_moment(client, task)
    former = ask(client, task, at).raise_for_status().json()["valid_until"]
    until = format_moment(parse_moment(former) - 60_000_000)
    began = time.monotonic()
    client.post(f"/tasks/{task}/override", json={"valid_until": until, "reason": "benchmark"}).raise_for_status()
    await_that("the override", api, lambda: ask(client, task, at).json()["valid_until"] == until)
    return time.monotonic() - began


def find_moment(client: httpx.Client, task: str) -> str:
    """A moment that a task's version answers for."""
    found: str = client.get(f"/tasks/{task}").raise_for_status().json()["champion"]["trained_until"]
    return found


def ask(client: httpx.Client, task: str, at: str) -> httpx.Response:
    return client.get("/predict", params={"task": task, "at": at, "x": "0.5", "kind": "a"})


def has_looked(client: httpx.Client, num_tasks: int) -> bool:
    """Whether the first look at store and registry has ended for every task."""
    tasks = client.get("/readyz").json()["tasks"]
    return len(tasks) == num_tasks and all(one["version"] is not None for one in tasks.values())
