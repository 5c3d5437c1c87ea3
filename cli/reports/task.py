"""How `morrow task` shows a task: its state, skill, champion and warnings, and tables of its errors and cycles."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.clock import count_windows
from contracts.quality.skill import Skill, describe_skill
from service.web.html import four_figures


def print_applied(name: str, answer: dict[str, Any]) -> None:
    """Print which revision a definition has become, with its warnings."""
    console = Console()
    outcome = "is stored as" if answer["changed"] else "was stored already as"
    console.print(f"{name} {outcome} revision {answer['revision']}.")
    for change in answer["changes"]:
        console.print(f"Changed: {change}.", markup=False, highlight=False)
    _print_warnings(console, answer)


def print_tasks(tasks: Sequence[dict[str, Any]], *, is_part: bool = False) -> None:
    """Print a line for each task, with the version that answers for it; `is_part` if not all were asked for."""
    if not tasks:
        none = (
            "There is no such task." if is_part else "There is no task yet: `morrow task apply FILE.toml` defines one."
        )
        Console().print(none, highlight=False)
        return
    table = Table("task", "revision", "state", "version", "valid until", "vs. naive", "quality", "registry")
    for task in tasks:
        champion = task["champion"] or {}
        table.add_row(
            task["task"],
            str(task["revision"]),
            _state(task) + _missing(task),
            champion.get("version", "–"),
            champion.get("valid_until", "–"),
            _percent(task["skill"]),
            task["trust"]["verdict"],
            task["registry"]["state"],
        )
    Console().print(table)


def print_task(name: str, status: dict[str, Any]) -> None:
    """Print a task's state, skill and champion, its expected and realised errors by age, and its last cycles."""
    console = Console()
    events = "event" if status["num_events"] == 1 else "events"
    console.print(f"{name}, revision {status['revision']}: {status['num_events']:,} {events}")
    for heading, text in state_facts(status):
        console.print(f"{heading:<10}{text}", markup=False, highlight=False)
    if status["skill"] is not None:
        console.print(skill_table(status))
    if status["live_errors"]:
        console.print(errors_table(status))
    next_cycle = status["next_cycle"]
    console.print(f"Next      {f'cycle due at {next_cycle}' if next_cycle else 'cycle on request'}", highlight=False)
    console.print(_cycles_table(status["cycles"]))
    for cycle in status["cycles"]:
        if cycle["reason"]:
            console.print(f"{cycle['cutoff']} {cycle['state']}: {cycle['reason']}", markup=False, highlight=False)
    _print_warnings(console, status)


def state_facts(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Headings with their texts: the state and its reasons, the skill, the recipe, the registry and the champion."""
    registry, champion, closed = status["registry"], status["champion"], status["closed"]
    yield "State", _state(status)
    if closed is not None:
        yield "Closed", f"at {closed['valid_until']} by {closed['actor']}: {closed['reason']}"
    if status["stale"]:
        yield "Stale", status["stale_reason"]
    if status["missing_windows"]:
        yield "Needs", f"{count_windows(status['missing_windows'])} more before a horizon can be judged"
    if "trust" in status:
        yield "Quality", f"{status['trust']['verdict']}: {status['trust']['reason']}"
    if status["skill"] is not None:
        skill = msgspec.convert(status["skill"], Skill)
        yield "Skill", describe_skill(skill)
        for advice in skill.advice:
            yield "Try", advice
    if (step := status.get("next_step")) is not None and step["is_needed"]:
        yield "To do", step["text"] + (f" {step['command']}" if step["command"] else "")
    if status["choice"] is not None:
        yield "Recipe", _describe_choice(status["choice"])
    yield "Registry", registry["state"] + (f": {registry['reason']}" if registry["reason"] else "")
    if champion is None:
        yield "Champion", "none yet"
        return
    yield "Champion", f"version {champion['version']}, trained until {champion['trained_until']}"
    yield "Training", f"{champion['batch_size']:,} rows at a time"
    promised = f"a horizon of {count_windows(champion['horizon'])}"
    override = status["override"]
    bound = promised if override is None else f"by override of {override['actor']}; {promised} was validated"
    yield "Valid", f"until {champion['valid_until']}, {bound}"


# The state `no_model` in words, as on the page.
_STATES = {"no_model": "without model"}


def _state(status: dict[str, Any]) -> str:
    lifecycle = "" if status.get("lifecycle", "active") == "active" else f"{status['lifecycle']}, "
    return lifecycle + _STATES.get(status["state"], str(status["state"])) + (", stale" if status["stale"] else "")


def _missing(status: dict[str, Any]) -> str:
    """How many windows a first verdict still needs, for the list of tasks."""
    return f", needs {count_windows(status['missing_windows'])} more" if status["missing_windows"] else ""


def skill_table(status: dict[str, Any]) -> Table:
    """The model's error compared with naive and each rival on the same windows, within 80 columns."""
    skill, better = status["skill"], status["better_method"] or {}
    name = skill["error_name"].replace("_", " ")
    table = Table("against", "its error", "ours", "skill", "windows", title=name, title_justify="left")
    naive = {"method": "naive", "error": skill["naive"], "ours": skill["error"]} | {
        key: skill[key] for key in ("skill", "num_windows")
    }
    for other in [naive, *skill["rivals"]]:
        remark = ", clearly better" if better.get("method") == other["method"] else ""
        table.add_row(
            other["method"] + remark,
            four_figures(other["error"]),
            four_figures(other["ours"]),
            _percent(other),
            str(other["num_windows"]),
        )
    return table


def _percent(compared: dict[str, Any] | None) -> str:
    """A skill in percent; a dash if nothing is scored."""
    return "–" if compared is None or compared["skill"] is None else f"{compared['skill']:.0f} %"


def _describe_choice(choice: dict[str, Any]) -> str:
    before, error = choice["error_before"], choice["error"]
    errors = "" if error is None else f": error {error:.4g}" + ("" if before is None else f", as written {before:.4g}")
    return f"chosen among {choice['num_trials']} on what was known at {choice['cutoff']}{errors}"


def errors_table(status: dict[str, Any]) -> Table:
    """Expected and realised errors by age, within 80 columns. An error above its limit is red."""
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
    """One line for each cycle, within 80 columns; their reasons are sentences and follow below."""
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
