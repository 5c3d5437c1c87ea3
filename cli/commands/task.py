"""What `morrow task` does and prints: define a task from a file, list tasks, show how one is."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.client.api import ask, open_api
from cli.client.output import print_json
from contracts.clock import count_windows
from contracts.errors import Fault, InvalidInput
from service.web.html import four_figures


def apply_task(url: str, file: Path, *, as_json: bool) -> None:
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
    if as_json:
        print_json(answer)
        return
    console = Console()
    what = "is stored as" if answer["changed"] else "has been stored already as"
    console.print(f"{name} {what} revision {answer['revision']}.")
    _print_warnings(console, answer)


def list_tasks(url: str, *, as_json: bool) -> None:
    """Every task with the version that answers for it."""
    with open_api(url) as api:
        answer = ask(api, "GET", "/tasks")
    if as_json:
        print_json(answer)
        return
    if not answer["tasks"]:
        Console().print("There is no task yet: `morrow task apply FILE.toml` defines one.", highlight=False)
        return
    table = Table("task", "revision", "state", "version", "valid until", "registry")
    for task in answer["tasks"]:
        champion = task["champion"] or {}
        table.add_row(
            task["task"],
            str(task["revision"]),
            _state(task) + _missing(task),
            champion.get("version", "–"),
            champion.get("valid_until", "–"),
            task["registry"]["state"],
        )
    Console().print(table)


def show_task(url: str, name: str, *, as_json: bool) -> None:
    """A task's state, its champion, expected beside realised errors by age, and its last cycles."""
    with open_api(url) as api:
        status = ask(api, "GET", f"/tasks/{name}")
    if as_json:
        print_json(status)
        return
    console = Console()
    events = "event" if status["num_events"] == 1 else "events"
    console.print(f"{name}, revision {status['revision']}: {status['num_events']:,} {events}")
    for heading, text in state_facts(status):
        console.print(f"{heading:<10}{text}", markup=False, highlight=False)
    if status["live_errors"]:
        console.print(errors_table(status))
    console.print(f"Next      {status['next_cycle'] or 'on request'}")
    console.print(_cycles_table(status["cycles"]))
    for cycle in status["cycles"]:
        if cycle["reason"]:
            console.print(f"{cycle['cutoff']} {cycle['state']}: {cycle['reason']}", markup=False, highlight=False)
    _print_warnings(console, status)


def state_facts(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Headings and what stands beside them: the state and its reasons, the champion, the registry."""
    registry, champion, closed = status["registry"], status["champion"], status["closed"]
    yield "State", _state(status)
    if closed is not None:
        yield "Closed", f"at {closed['valid_until']} by {closed['actor']}: {closed['reason']}"
    if status["stale"]:
        yield "Stale", status["stale_reason"]
    if status["missing_windows"]:
        yield "Needs", f"{count_windows(status['missing_windows'])} more before a horizon can be judged"
    for rival in status["rivals"]:
        yield "Rival", _describe_rival(rival, status["better_method"])
    if status["choice"] is not None:
        yield "Recipe", _describe_choice(status["choice"])
    yield "Registry", registry["state"] + (f": {registry['reason']}" if registry["reason"] else "")
    if champion is None:
        yield "Champion", "none yet"
        return
    yield "Champion", f"version {champion['version']}, trained until {champion['trained_until']}"
    yield "Fit", f"in minibatches of {champion['batch_size']:,} rows"
    promised = f"a horizon of {count_windows(champion['horizon'])}"
    override = status["override"]
    told = promised if override is None else f"by override of {override['actor']}; {promised} was validated"
    yield "Valid", f"until {champion['valid_until']}, {told}"


def _state(status: dict[str, Any]) -> str:
    return str(status["state"]).replace("_", " ") + (", stale" if status["stale"] else "")


def _missing(status: dict[str, Any]) -> str:
    """How many windows a first verdict still needs, after the state in a list."""
    return f", needs {count_windows(status['missing_windows'])} more" if status["missing_windows"] else ""


def _describe_rival(rival: dict[str, Any], better: dict[str, Any] | None) -> str:
    """Its mean error beside ours on the same windows, and whether it is the one that is clearly better."""
    theirs = rival["error"] + rival["difference"]
    remark = ": clearly better" if better is not None and better["method"] == rival["method"] else ""
    windows = count_windows(rival["num_windows"])
    return f"{rival['method']} {four_figures(theirs)} against our {four_figures(rival['error'])} on {windows}{remark}"


def _describe_choice(choice: dict[str, Any]) -> str:
    before, error = choice["error_before"], choice["error"]
    told = "" if error is None else f": error {error:.4g}" + ("" if before is None else f", as written {before:.4g}")
    return f"chosen among {choice['num_trials']} on what was known at {choice['cutoff']}{told}"


def errors_table(status: dict[str, Any]) -> Table:
    """Expected beside realised at 80 columns; what is above its limit is red."""
    name = status["champion"]["error_name"].replace("_", " ")
    table = Table("age", "expected", "band", "limit", "realised", "rows", title=name, title_justify="left")
    for error in status["live_errors"]:
        promised = error["expected"] is not None
        table.add_row(
            str(error["age"]),
            four_figures(error["expected"]),
            f"{four_figures(error['low'])} … {four_figures(error['high'])}" if promised else "–",
            four_figures(error["limit"]),
            _realised(error),
            f"{error['num_rows']:,}",
        )
    return table


def _realised(error: dict[str, Any]) -> Text:
    if error["realised"] is None:
        return Text("–")
    is_beyond = error["limit"] is not None and error["realised"] > error["limit"]
    so_far = "" if error["is_complete"] else " so far"
    return Text(four_figures(error["realised"]) + so_far, style="red" if is_beyond else "")


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
