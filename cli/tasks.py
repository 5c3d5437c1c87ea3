"""What `morrow task` does and prints: define a task from a file, list tasks, show how one is."""

import tomllib
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cli.remote import ask, open_api
from contracts.errors import Fault, InvalidInput


def apply_task(url: str, file: Path) -> None:
    """Send a task's TOML to the API. Raises InvalidInput where the file is not TOML or names no task."""
    try:
        spec = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput([Fault(str(file), f"is not TOML: {error}")]) from error
    name = spec.get("name")
    if not isinstance(name, str):
        raise InvalidInput([Fault("name", f"is missing in {file}")])
    with open_api(url) as api:
        answer = ask(api, "PUT", f"/tasks/{name}", json=spec)
    console = Console()
    what = "is stored as" if answer["changed"] else "has been stored already as"
    console.print(f"{name} {what} revision {answer['revision']}.")
    _print_warnings(console, answer)


def list_tasks(url: str) -> None:
    """Every task with the version that answers for it."""
    with open_api(url) as api:
        tasks = ask(api, "GET", "/tasks")["tasks"]
    table = Table("task", "revision", "version", "valid until", "registry")
    for task in tasks:
        champion = task["champion"] or {}
        table.add_row(
            task["task"],
            str(task["revision"]),
            champion.get("version", "–"),
            champion.get("valid_until", "–"),
            task["registry"]["state"],
        )
    Console().print(table)


def show_task(url: str, name: str) -> None:
    """A task's champion, its errors by age and its last cycles."""
    with open_api(url) as api:
        status = ask(api, "GET", f"/tasks/{name}")
    console = Console()
    registry, champion = status["registry"], status["champion"]
    console.print(f"{name}, revision {status['revision']}: {status['num_events']:,} events")
    console.print(f"Registry  {registry['state']}" + (f": {registry['reason']}" if registry["reason"] else ""))
    if champion is None:
        console.print("Champion  none yet")
    else:
        console.print(f"Champion  version {champion['version']}, trained until {champion['trained_until']}")
        console.print(f"Valid     until {champion['valid_until']}, a horizon of {_count_windows(champion['horizon'])}")
        console.print(_errors_table(champion))
    console.print(f"Next      {status['next_cycle'] or 'on request'}")
    console.print(_cycles_table(status["cycles"]))
    for cycle in status["cycles"]:
        if cycle["reason"]:
            console.print(f"{cycle['cutoff']} {cycle['state']}: {cycle['reason']}", markup=False, highlight=False)
    _print_warnings(console, status)


def _count_windows(number: int) -> str:
    return f"{number} window" if number == 1 else f"{number} windows"


def _errors_table(champion: dict[str, Any]) -> Table:
    table = Table("age", champion["error_name"], "band", "windows")
    for error in champion["errors"]:
        band = f"{error['low']:.4f} … {error['high']:.4f}"
        table.add_row(str(error["age"]), f"{error['mean']:.4f}", band, str(error["num_windows"]))
    return table


def _cycles_table(cycles: list[dict[str, Any]]) -> Table:
    """One line a cycle at 80 columns; reasons are sentences and follow below."""
    table = Table("cutoff", "attempt", "state", "step", "version", "rows")
    for cycle in cycles:
        rows = "–" if cycle["num_rows"] is None else f"{cycle['num_rows']:,}"
        table.add_row(
            cycle["cutoff"],
            str(cycle["attempt"]),
            cycle["state"],
            cycle["step"] or "–",
            cycle["version"] or "–",
            rows,
        )
    return table


def _print_warnings(console: Console, answer: dict[str, Any]) -> None:
    for warning in answer["warnings"]:
        console.print(f"Warning: {warning}", style="yellow", markup=False)
