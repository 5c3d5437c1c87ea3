"""`python -m benchmarks reading --large`: what one task of many events costs itself and its neighbour.

An API runs as well. The same requests and reads are timed while the store is nearly empty and once one task holds
`--rows` events: a row that is posted, a correction, an erasure, the status and the pages of the large task, and the
training read of a small neighbour. Then the rows that a cycle with `training.history = 4` reads are compared with those
that its fits use. Seconds are medians of requests and depend on the machine; the two states meet the same one.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import httpx
from rich.console import Console
from sqlalchemy import Engine, text

from benchmarks.ingest.events import TASK
from benchmarks.ratios import Ratio, smaller_is_better
from benchmarks.result_files import Figure
from benchmarks.stores import await_that, is_answered
from cli.local.postgres import EmbeddedPostgres
from cli.local.processes import start_child
from cli.local.stack import HOST, child_environment, free_port
from contracts.clock import to_micros
from contracts.runtime.python_process import python_command
from migrations import migrate
from store.engine import make_engine
from store.events.reading.counts import read_fingerprints
from store.tasks.catalog import Schema, define_task
from trainer.data.snapshot import read
from trainer.evaluation.backtest import read_needed

FIRST = datetime(2020, 1, 1, tzinfo=UTC)
SPAN = timedelta(days=700)
CUTOFF = FIRST + SPAN
HISTORY = 4
NUM_NEIGHBOUR = 100_000
NUM_REQUESTS = 21
NUM_READS = 5
_CHUNK = 1_000_000

Seconds = dict[str, float]


@dataclass(frozen=True)
class Read:
    """What a cycle reads of the large task, what the fit of its candidate uses, and how long the read takes."""

    num_read: int
    num_used: int
    seconds: float


def measure(console: Console, num_rows: int) -> tuple[list[Ratio], list[Figure]]:
    """The ratios and figures, printed as they are found."""
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder, EmbeddedPostgres(Path(folder) / "pg") as postgres:
        migrate(postgres.url)
        engine = make_engine(postgres.url)
        large, neighbour = (_define(engine, name) for name in ("large", "neighbour"))
        _fill(engine, neighbour, NUM_NEIGHBOUR)
        with _running_api(Path(folder), postgres.url) as client:
            ids = count()
            before = _time_all(engine, client, neighbour, ids)
            console.print(_describe("nearly empty", before), highlight=False, soft_wrap=True)
            began = perf_counter()
            _fill(engine, large, num_rows)
            console.print(f"{num_rows:,} events stored in {perf_counter() - began:.0f} s", highlight=False)
            after = _time_all(engine, client, neighbour, ids)
            console.print(_describe(f"with {num_rows:,} events", after), highlight=False, soft_wrap=True)
        found = _read(engine, large)
        size = _size(engine)
        engine.dispose()
    console.print(
        f"history = {HISTORY}: {found.num_read:,} rows read in {found.seconds:.1f} s, {found.num_used:,} used by the "
        f"candidate; {size / num_rows:.0f} bytes a row",
        highlight=False,
        soft_wrap=True,
    )
    return _ratios(before, after), _figures(num_rows, {"nearly empty": before, "large": after}, found, size)


def _ratios(before: Seconds, after: Seconds) -> list[Ratio]:
    """The commitments: a status in 0.2 s, and a row and a neighbour's read as fast as before within noise."""
    status, row, neighbours = "the status", "a posted row", "the neighbour's read"
    return [
        smaller_is_better("the status of a large task", after[status], 0.2, commit=0.2, goal=0.05, unit="s"),
        *(
            smaller_is_better(
                f"{what} next to a large task / before",
                after[what],
                before[what],
                commit=1.5 * before[what],
                goal=before[what],
                unit="s",
            )
            for what in (row, neighbours)
        ),
    ]


def _figures(num_rows: int, states: Mapping[str, Seconds], found: Read, size: int) -> list[Figure]:
    return [
        *(
            Figure(of={"rows": num_rows, "store": state, "what": what}, measure="seconds", unit="s", value=seconds)
            for state, told in states.items()
            for what, seconds in told.items()
        ),
        Figure(of={"rows": num_rows, "what": "rows read"}, measure="count", unit="", value=found.num_read),
        Figure(of={"rows": num_rows, "what": "rows of the candidate"}, measure="count", unit="", value=found.num_used),
        Figure(of={"rows": num_rows, "what": "that read"}, measure="seconds", unit="s", value=found.seconds),
        Figure(of={"rows": num_rows, "what": "a row"}, measure="size", unit="bytes", value=size / num_rows),
    ]


def _describe(state: str, told: Seconds) -> str:
    return f"{state}: " + ", ".join(f"{what} {1000 * seconds:.1f} ms" for what, seconds in told.items())


@contextmanager
def _running_api(folder: Path, database_url: str) -> Iterator[httpx.Client]:
    """A client of an API process on this database."""
    port = free_port()
    given = {
        "MORROW_HOME": str(folder),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_HOST": HOST,
        "MORROW_PORT": str(port),
        "MORROW_DATABASE_SECONDS": "60",
    }
    command = python_command("-m", "cli.main", "serve")
    api = start_child("API", command, child_environment(folder, given), folder / "logs" / "api.log")
    try:
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=120, trust_env=False) as client:
            await_that("/livez", api, lambda: is_answered(client, "/livez"))
            yield client
    finally:
        api.stop()


def _define(engine: Engine, name: str) -> Schema:
    task = TASK.model_copy(
        update={"name": name, "training": TASK.training.model_copy(update={"history": HISTORY, "tune": False})}
    )
    with engine.begin() as connection:
        return define_task(connection, task, FIRST)[0]


def _fill(engine: Engine, schema: Schema, num_rows: int) -> None:
    """Events spread evenly over `SPAN`, made by the server, as they would have arrived."""
    key = {"task_id": schema.task_id, "schema_id": schema.schema_id, "first": FIRST, "span": SPAN, "n": num_rows}
    for start in range(0, num_rows, _CHUNK):
        with engine.begin() as connection:
            connection.execute(_ROWS, key | {"start": start, "end": min(start + _CHUNK, num_rows) - 1})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE events"))


_ROWS = text("""
    INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT :task_id, 'row-' || i, 1, moment, moment, moment, :schema_id,
           ARRAY[random(), random(), random(), random(), random(), random(), random(), random()], '{}',
           CASE WHEN random() < 0.5 THEN 'a' ELSE 'b' END
    FROM generate_series(:start, :end) AS i, LATERAL (
        SELECT CAST(:first AS timestamptz) + CAST(:span AS interval) * (CAST(i AS float8) / :n) AS moment
    ) AS one
""")


def _time_all(engine: Engine, client: httpx.Client, neighbour: Schema, ids: Any) -> Seconds:
    """The seconds of each request and read."""
    at = (CUTOFF - timedelta(hours=1)).isoformat()

    def event(name: str, label: str = "a") -> dict[str, Any]:
        return {"event_id": name, "at": at, "features": {one.name: 0.5 for one in TASK.numbers}, "label": label}

    def post(task: str) -> None:
        body = event(f"posted-{next(ids)}")
        client.post("/events", params={"task": task}, json=body).raise_for_status()

    def correct() -> None:
        number = next(ids)
        body = event("posted-0", "b" if number % 2 else "a") | {"at": at}
        client.put("/events/posted-0", params={"task": "large"}, json=body).raise_for_status()

    def erase() -> None:
        name = f"erased-{next(ids)}"
        client.post("/events", params={"task": "large"}, json=event(name)).raise_for_status()
        began = perf_counter()
        client.post("/tasks/large/erasures", json={"event_ids": [name], "reason": "benchmark"}).raise_for_status()
        erased.append(perf_counter() - began)

    def get(path: str) -> Callable[[], None]:
        def ask() -> None:
            client.get(path).raise_for_status()

        return ask

    erased: list[float] = []
    client.post("/events", params={"task": "large"}, json=event("posted-0"))
    told = {
        "a posted row": _median(lambda: post("large")),
        "a row of the neighbour": _median(lambda: post("neighbour")),
        "a correction": _median(correct),
        "the status": _median(get("/tasks/large")),
        "the list": _median(get("/tasks")),
        "the page": _median(get("/pages/large")),
        "the page's rows": _median(get("/pages/large/events")),
    }
    for _ in range(NUM_READS):
        erase()
    told["an erasure"] = median(erased)
    cutoff = to_micros(CUTOFF)
    told["the neighbour's read"] = _median(lambda: read(engine, neighbour, cutoff, CUTOFF), NUM_READS)

    def look() -> None:
        with engine.connect() as connection:
            read_fingerprints(
                connection,
                neighbour.task_id,
                neighbour.task,
                cutoff,
                since=cutoff - HISTORY * neighbour.task.clock.window,
            )

    told["the neighbour's live look"] = _median(look, NUM_READS)
    return told


def _median(use: Callable[[], object], times: int = NUM_REQUESTS) -> float:
    seconds = []
    for _ in range(times):
        began = perf_counter()
        use()
        seconds.append(perf_counter() - began)
    return median(seconds)


def _read(engine: Engine, schema: Schema) -> Read:
    began, cutoff = perf_counter(), schema.task.clock.window_start(to_micros(CUTOFF))
    reading = read_needed(engine, schema, cutoff, CUTOFF)
    seconds = perf_counter() - began
    return Read(len(reading.events), reading.num_fit_rows(cutoff), seconds)


def _size(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_total_relation_size('events')")).scalar_one())
