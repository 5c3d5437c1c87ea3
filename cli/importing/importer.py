"""The import of a file: events go to the API in batches, over a few connections at once, and outcomes are counted.

Answers are processed in the order of the file. So one number says how far an import has come
(`cli.importing.bookmark`), and refused rows keep the order of the file (`cli.importing.rejects`).
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cli.client.api import ask, open_api
from cli.importing.bookmark import Bookmark, describe_source, name_bookmark, read_bookmark, write_bookmark
from cli.importing.formats import Format
from cli.importing.parquet import open_parquet, read_parquet
from cli.importing.rejects import append_rejects, cut_rejects, name_rejects
from cli.importing.rows import Row, encode_row, read_csv, read_ndjson
from contracts.errors import MorrowError
from contracts.task import Task

ROWS_PER_BATCH = 1000
NUM_CONNECTIONS = 3
NUM_FAULTS_SHOWN = 10
OUTCOMES = ("created", "duplicates", "conflicts", "rejected")
# Reported only if there were any.
ERASED = "erased"
NDJSON = {"content-type": "application/x-ndjson"}

T = TypeVar("T")


@dataclass(frozen=True)
class RowFile:
    """An open file. `position` turns a number of rows into the progress through the file, up to `length`."""

    rows: Iterator[Row]
    length: int
    position: Callable[[int], int]


@dataclass(frozen=True)
class Imported:
    """The outcome of an import. An earlier, broken import had sent the first `num_before` rows."""

    num_rows: int
    num_before: int
    counts: dict[str, int]
    seconds: float
    rejects: Path | None
    faults: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Rows per second of this import alone."""
        return (self.num_rows - self.num_before) / self.seconds


def import_events(url: str, task_name: str, file: Path, format: Format, folder: Path) -> Imported:
    """Post a file, from where an earlier import of it broke off. Rejected rows and the bookmark go to `folder`.

    A progress bar is shown on standard error. Raises InvalidInput, Refused, Unreachable and Unavailable.
    """
    place, rejects = name_bookmark(file, folder), name_rejects(file, folder, is_csv=format == "csv")
    mark = first = read_bookmark(place, describe_source(url, task_name, file))
    faults: list[str] = []
    began = time.monotonic()
    with open_api(url) as api:
        task = Task.model_validate(ask(api, "GET", f"/tasks/{task_name}")["spec"])
        write_bookmark(place, mark)
        cut_rejects(rejects, mark.rejects_bytes)
        with open_rows(file, format, task) as opened, _bar() as progress:
            bar = progress.add_task(file.name, total=opened.length, rows=mark.num_rows, rate=0.0)
            if mark.num_rows:
                progress.console.print(f"Resuming after {mark.num_rows:,} rows.", highlight=False)
            rows = islice(opened.rows, mark.num_rows, None)
            try:
                for batch, answer in post_rows(api, task_name, rows):
                    refused = find_refused(batch, answer)
                    faults += [reason for _, reason in refused[: NUM_FAULTS_SHOWN - len(faults)]]
                    mark = _advance(mark, batch, answer, append_rejects(rejects, refused))
                    write_bookmark(place, mark)
                    rate = (mark.num_rows - first.num_rows) / (time.monotonic() - began)
                    at = opened.position(mark.num_rows)
                    progress.update(bar, completed=at, rows=mark.num_rows, rate=rate)
            except (MorrowError, KeyboardInterrupt):
                if mark.num_rows:
                    sentence = f"{mark.num_rows:,} rows are sent. Run the same command to resume."
                    progress.console.print(sentence, highlight=False)
                else:
                    place.unlink()
                raise
    place.unlink()
    shown = (*OUTCOMES, ERASED) if ERASED in mark.counts else OUTCOMES
    return Imported(
        num_rows=mark.num_rows,
        num_before=first.num_rows,
        counts={outcome: mark.counts.get(outcome, 0) for outcome in shown},
        seconds=time.monotonic() - began,
        rejects=rejects if mark.rejects_bytes else None,
        faults=tuple(faults),
    )


@contextmanager
def open_rows(file: Path, format: Format, task: Task) -> Iterator[RowFile]:
    """A file of rows, which are read lazily. Raises as the readers of `cli.importing.rows` and
    `cli.importing.parquet` do.
    """
    if format == "parquet":
        with open_parquet(file) as opened:
            yield RowFile(read_parquet(opened, task), opened.metadata.num_rows, lambda num_rows: num_rows)
        return
    with file.open("rb") as stream:
        rows = read_csv(stream, task) if format == "csv" else read_ndjson(stream)
        yield RowFile(rows, file.stat().st_size, lambda _: stream.tell())


def post_rows(api: httpx.Client, task: str, rows: Iterable[Row]) -> Iterator[tuple[list[Row], dict[str, Any]]]:
    """Each batch with its answer of POST /events, in order. Raises Refused and Unreachable."""
    with ThreadPoolExecutor(NUM_CONNECTIONS) as connections:
        waiting: deque[tuple[list[Row], Future[dict[str, Any]]]] = deque()
        for batch in batches(rows, ROWS_PER_BATCH):
            body = b"\n".join(row.line for row in batch)
            options: dict[str, Any] = {"params": {"task": task}, "content": body, "headers": NDJSON}
            waiting.append((batch, connections.submit(ask, api, "POST", "/events", **options)))
            if len(waiting) > NUM_CONNECTIONS:
                oldest, answer = waiting.popleft()
                yield oldest, answer.result()
        for batch, answer in waiting:
            yield batch, answer.result()


def post_events(api: httpx.Client, task: str, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answers of POST /events to batches of events. Their results name the events that were not created."""
    for _, answer in post_rows(api, task, map(encode_row, events)):
        yield answer


def batches(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last one may be shorter."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def find_refused(batch: Sequence[Row], answer: dict[str, Any]) -> list[tuple[Row, str]]:
    """The refused rows of a batch, each with its reason."""
    return [
        (batch[result["line"] - 1], _describe(result))
        for result in answer["results"]
        if result["status"] in ("conflict", "rejected")
    ]


def _describe(result: dict[str, Any]) -> str:
    if result["status"] == "conflict":
        return f"{result['event_id']}: is stored with other content (to correct it: `morrow events correct`)"
    faults = "; ".join(f"{fault['field']}: {fault['reason']}" for fault in result["errors"])
    return f"{result['event_id'] or '(no event_id)'}: {faults}"


def _advance(mark: Bookmark, batch: Sequence[Row], answer: dict[str, Any], rejects_bytes: int) -> Bookmark:
    counts = Counter(mark.counts) + Counter({outcome: answer.get(outcome, 0) for outcome in (*OUTCOMES, ERASED)})
    return msgspec.structs.replace(
        mark, num_rows=mark.num_rows + len(batch), counts=dict(counts), rejects_bytes=rejects_bytes
    )


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TextColumn("{task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
