"""Run the demo: post 26 weeks of real flights, then week by week retrain, predict, compare with rivals, post labels.

Everything goes through the HTTP API of the embedded stack, as for any user. Only the rivals are fitted in a separate
process (`cli.demo.rival_worker`), on rows of the same store.
"""

import json
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status

from cli.client.api import ask, open_api
from cli.client.wait import await_version, follow_cycle, request_cycle
from cli.demo.flights import WEEK, load_flights, read_task_file, to_events, week_start
from cli.demo.predictions import Score, ask_and_score, ask_one
from cli.demo.report import LEGEND, WeekReport, budget, comparison, print_refusal, week_document, week_line, weeks_table
from cli.demo.rival_client import RivalProcess
from cli.errors import NotServed, NotStored, Refused
from cli.importing.importer import post_events
from cli.local.peak_memory import PeakMemory
from cli.local.signals import stop_signals
from cli.local.stack import EmbeddedStack, free_port
from contracts.clock import MICROSECOND, format_moment, parse_moment, to_micros
from contracts.runtime.settings import SharedSettings
from contracts.task import Task

if TYPE_CHECKING:
    import pandas as pd

NUM_KNOWN_WEEKS = 26
SWAP_LIMIT_SECONDS = 30.0


@dataclass(frozen=True)
class Demo:
    """The parts that every step of the demo needs."""

    console: Console
    api: httpx.Client
    stack: EmbeddedStack
    rivals: RivalProcess
    task: Task
    flights: "pd.DataFrame"


def run_demo(num_weeks: int, json_file: Path | None, *, keep: bool) -> None:
    """Run the whole demo in a fresh folder; `keep` leaves folder and stack until Ctrl-C."""
    began = time.monotonic()
    console = Console()
    task = Task.model_validate(tomllib.loads(read_task_file()))
    flights = load_flights()
    with stop_signals(), _fresh_home(keep=keep) as home, PeakMemory() as memory:
        settings = SharedSettings(home=home, database_url=None, mlflow_url=None)
        with (
            EmbeddedStack(settings, free_port(), console) as stack,
            RivalProcess(stack.addresses, home) as rivals,
            open_api(stack.addresses.api) as api,
        ):
            demo = Demo(console, api, stack, rivals, task, flights)
            console.print(f"API     {stack.addresses.api}/docs\nMLflow  {stack.addresses.mlflow}")
            console.print(budget(task.training), highlight=False)
            document = _run_weeks(demo, num_weeks)
            document["seconds"]["install_free_total"] = round(time.monotonic() - began, 1)
            document["peak_rss_mb"] = round(memory.peak_bytes / 2**20)
            console.print(_cost(document), highlight=False)
            if json_file:
                json_file.write_text(json.dumps(document, indent=2) + "\n")
            if keep:
                console.print(
                    f"Everything runs on until Ctrl-C. To use it from another terminal:\n"
                    f"  export MORROW_HOME={home} MORROW_URL={stack.addresses.api}",
                    highlight=False,
                    soft_wrap=True,
                )
                stack.wait()


def _run_weeks(demo: Demo, num_weeks: int) -> dict[str, Any]:
    ask(demo.api, "PUT", f"/tasks/{demo.task.name}", json=demo.task.model_dump(mode="json"))
    ingest_seconds = _post_known_weeks(demo)
    reports: list[WeekReport] = []
    with demo.console.status("") as status:
        for week in range(NUM_KNOWN_WEEKS, NUM_KNOWN_WEEKS + num_weeks):
            reports.append(_serve_week(demo, week, status))
            demo.console.print(week_line(reports[-1]), highlight=False)
        refused = _ask_past_valid_until(demo, reports)
    demo.console.print(weeks_table(reports))
    demo.console.print(LEGEND, highlight=False)
    for sentence in comparison(reports):
        demo.console.print(sentence, highlight=False)
    return {
        "weeks": [week_document(report) for report in reports],
        "refused": refused,
        "seconds": {
            "ingest": round(ingest_seconds, 1),
            "cycle_median": round(median(report.cycle_seconds for report in reports), 1),
        },
    }


def _post_known_weeks(demo: Demo) -> float:
    """Post the first 26 weeks; returns the seconds that it took, including building the rows."""
    known = demo.flights[demo.flights["week"] < NUM_KNOWN_WEEKS]
    columns = (TextColumn("Posting {task.completed:,.0f} flights"), BarColumn(), TimeElapsedColumn())
    began = time.monotonic()
    with Progress(*columns, console=demo.console) as progress:
        bar = progress.add_task("", total=len(known))
        weeks = (week for _, rows in known.groupby("week") for week in to_events(rows))
        for num_created in _post(demo, weeks):
            progress.advance(bar, num_created)
    return time.monotonic() - began


def _post(demo: Demo, events: Iterable[dict[str, Any]]) -> Iterator[int]:
    """Post all events; yields the number stored in each batch. Raises NotStored if any event is not stored."""
    for answer in post_events(demo.api, demo.task.name, events):
        if others := [result for result in answer["results"] if result["status"] != "created"]:
            raise NotStored(f"A flight was not stored: {others[0]}")
        yield answer["created"]


def _serve_week(demo: Demo, week: int, status: Status) -> WeekReport:
    """Retrain as of the week's start, predict its flights, post their labels, score the rivals."""
    start, name = week_start(week), demo.task.name
    begins = to_micros(start)
    events = to_events(demo.flights[demo.flights["week"] == week])
    title = f"Week {week - NUM_KNOWN_WEEKS + 1} of {start:%d %B}"
    began = time.monotonic()
    status.update(f"{title}: requesting a cycle …")
    cycle = request_cycle(demo.api, name, format_moment(begins))
    cycle = follow_cycle(demo.api, name, cycle, lambda step: _show(demo, status, f"{title}: {step} …"))
    cycle_seconds = time.monotonic() - began
    note = None
    if cycle["state"] == "released":
        _await_version(demo, cycle["version"])
    else:
        note = f"The cycle is {cycle['state']}: {cycle['reason']}"
    status.update(f"{title}: predicting {len(events):,} flights …")
    score, refusal = _try_to_predict(demo, events)
    champion = ask(demo.api, "GET", f"/tasks/{name}")["champion"] or {}
    status.update(f"{title}: posting the labels and fitting the rivals …")
    num_flights = sum(_post(demo, events))
    known_by = begins + (WEEK + demo.task.label_delay) // MICROSECOND
    figures = demo.rivals.score(name, begins, known_by)
    if score is not None:
        figures["gi"] = {"log_loss": score.log_loss, "error": score.error}
    return WeekReport(
        start=format_moment(begins),
        version=champion.get("version"),
        valid_until=champion.get("valid_until"),
        num_flights=num_flights,
        num_requests=score.num_requests if score else 0,
        cycle_seconds=cycle_seconds,
        note=" ".join(part for part in (note, refusal) if part) or None,
        log_loss={method: figure["log_loss"] for method, figure in figures.items()},
        error={method: figure["error"] for method, figure in figures.items()},
    )


def _show(demo: Demo, status: Status, words: str) -> None:
    demo.stack.check()
    status.update(words)


def _try_to_predict(demo: Demo, events: Sequence[dict[str, Any]]) -> tuple[Score | None, str | None]:
    """The score, or the reason why no version answered for this week."""
    try:
        return ask_and_score(demo.api, demo.task.name, events), None
    except Refused as refused:
        return None, f"No answers: {refused.problem.get('detail') or refused}"


def _await_version(demo: Demo, version: str) -> None:
    """Wait until the API reports that it serves the version. Raises NotServed."""
    if not await_version(demo.api, demo.task.name, version, limit_seconds=SWAP_LIMIT_SECONDS, on_poll=demo.stack.check):
        raise NotServed(f"Version {version} is released, but the API did not serve it in {SWAP_LIMIT_SECONDS} s.")


def _ask_past_valid_until(demo: Demo, reports: Sequence[WeekReport]) -> dict[str, Any] | None:
    """Ask at valid_until, which is answered, and a microsecond past it, which is refused with both bounds."""
    valid_until = reports[-1].valid_until
    if valid_until is None:
        return None
    event = to_events(demo.flights.iloc[:1])[0]
    ask_one(demo.api, demo.task.name, event | {"at": valid_until})
    try:
        answer = ask_one(demo.api, demo.task.name, event | {"at": format_moment(parse_moment(valid_until) + 1)})
    except Refused as refused:
        print_refusal(demo.console, refused.status, refused.problem)
        return {
            "status": refused.status,
            "type": refused.problem["type"],
            "valid_until": refused.problem["valid_until"],
        }
    raise NotServed(f"A moment past {valid_until} was answered: {answer}")


def _cost(document: dict[str, Any]) -> str:
    seconds = document["seconds"]
    return (
        f"{seconds['install_free_total']:.0f} s in all; ingest {seconds['ingest']:.0f} s; median cycle "
        f"{seconds['cycle_median']:.0f} s.\n"
        f"Peak memory of all processes: {document['peak_rss_mb']:,} MiB (sum of proportional set sizes)."
    )


@contextmanager
def _fresh_home(*, keep: bool) -> Iterator[Path]:
    """A new folder for all state; it is removed at the end unless `keep` is set."""
    home = Path(tempfile.mkdtemp(prefix="morrow-demo-"))
    try:
        yield home
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
