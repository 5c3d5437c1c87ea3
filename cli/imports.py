"""Events from files to the API: in batches, over a few connections at once, counted by what became of them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cli.remote import ask, open_api
from cli.rows import read_csv
from contracts.task import Task

ROWS_PER_BATCH = 1000
NUM_CONNECTIONS = 3
NUM_FAULTS_SHOWN = 10
OUTCOMES = ("created", "duplicates", "conflicts", "rejected")

Row = TypeVar("Row")


def import_events(url: str, task_name: str, file: Path) -> bool:
    """Post a CSV file and print what became of its rows; whether all of them are stored now."""
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
    )
    counts: Counter[str] = Counter()
    faults: list[str] = []
    num_rows = 0
    with open_api(url) as api, file.open("rb") as stream, Progress(*columns, console=console) as progress:
        task = Task.model_validate(ask(api, "GET", f"/tasks/{task_name}")["spec"])
        bar = progress.add_task(file.name, total=file.stat().st_size, rows=0)
        for answer in post_events(api, task_name, read_csv(stream, task)):
            counts.update({outcome: answer[outcome] for outcome in OUTCOMES})
            faults += _describe_faults(answer["results"], NUM_FAULTS_SHOWN - len(faults))
            num_rows += len(answer["results"])
            progress.update(bar, completed=stream.tell(), rows=num_rows)
    console.print(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES))
    for fault in faults:
        console.print(fault, markup=False, style="red")
    return counts["conflicts"] + counts["rejected"] == 0


def post_events(api: httpx.Client, task: str, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answers to batches of POST /events, as they come. Raises Refused and Unreachable."""
    with ThreadPoolExecutor(NUM_CONNECTIONS) as connections:
        waiting: set[Future[dict[str, Any]]] = set()
        for batch in batches(events, ROWS_PER_BATCH):
            waiting.add(connections.submit(ask, api, "POST", "/events", params={"task": task}, json=batch))
            if len(waiting) > NUM_CONNECTIONS:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in waiting)


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Lists of `size` rows; the last one may be shorter."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def _describe_faults(results: Iterable[dict[str, Any]], limit: int) -> list[str]:
    refused = (result for result in results if result["status"] in ("conflict", "rejected"))
    return [_describe(result) for result in islice(refused, max(0, limit))]


def _describe(result: dict[str, Any]) -> str:
    if result["status"] == "conflict":
        return f"{result['event_id']}: is stored with other content (to correct it: `morrow events correct`)"
    faults = "; ".join(f"{fault['field']}: {fault['reason']}" for fault in result["errors"])
    return f"{result['event_id'] or '(no event_id)'}: {faults}"
