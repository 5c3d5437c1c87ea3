"""How `morrow task` shows a task: its state, skill, champion and warnings, and tables of its errors and cycles."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.clock import count_windows
from contracts.quality.methods import explain_methods, explain_weights
from contracts.quality.remedies import split_advice
from contracts.quality.skill import Skill, describe_skill
from service.web.html import four_figures, say_seconds, say_share, shorten_moment


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
    console = Console()
    console.print(tasks_table(tasks, console.width))
    for task in tasks:
        if task["registry"]["state"] != "ok":
            reason = task["registry"]["reason"] or "see morrow doctor"
            console.print(
                f"{task['task']}: following the registry is degraded: {reason}", markup=False, highlight=False
            )


def tasks_table(tasks: Sequence[dict[str, Any]], width: int) -> Table:
    """A row for each task. No moment and no figure is ever cut off: columns that do not fit are left out instead."""
    table = Table()
    headings, rows = ["task", "state", "valid until", "quality", "version", "skill", "revision"], []
    for task in tasks:
        champion = task["champion"] or {}
        rows.append(
            [
                task["task"],
                _state(task) + _missing(task),
                shorten_moment(champion.get("valid_until")) or "–",
                _say_verdict(task["trust"]),
                champion.get("version") or _kept_version(task) or "–",
                _percent(task["skill"]),
                str(task["revision"]),
            ]
        )
    widths = [max(map(len, column)) + 3 for column in zip(headings, *rows, strict=True)]
    whole = [_LEAST_WIDTH, _LEAST_WIDTH, *widths[2:]]  # names and states can be folded
    num_shown = max(
        count for count in range(_FEWEST_COLUMNS, 8) if count <= _FEWEST_COLUMNS or sum(whole[:count]) < width
    )
    for place, heading in enumerate(headings[:num_shown]):
        table.add_column(heading, no_wrap=place > 1, overflow="fold")
    for row in rows:
        table.add_row(*row[:num_shown])
    return table


# Columns that are never left out, and the width at which names and states are folded, with its frame.
_FEWEST_COLUMNS, _LEAST_WIDTH = 3, 17


def _say_verdict(trust: dict[str, Any]) -> str:
    return str(trust["verdict"]) + (", provisional" if trust.get("is_provisional") else "")


def _kept_version(status: dict[str, Any]) -> str | None:
    """The version that an archived task keeps, although nothing answers with it."""
    return status["registry"].get("champion") if status.get("lifecycle") == "archived" else None


def print_task(name: str, status: dict[str, Any]) -> None:
    """Print a task's state, skill and champion, its expected and realised errors by age, and its last cycles."""
    console = Console()
    console.print(f"{name}, revision {status['revision']}: {_say_rows(status)}")
    for heading, text in state_facts(status):
        console.print(f"{heading:<10}{text}", markup=False, highlight=False)
    if status["skill"] is not None:
        console.print(skill_table(status))
        _print_meanings(console, status)
    if status["live_errors"]:
        console.print(errors_table(status))
    if (given := status.get("answers")) and given["by_age"]:
        for table in answers_tables(given):
            console.print(table)
    next_cycle = status["next_cycle"]
    console.print(f"Next      {f'cycle due at {next_cycle}' if next_cycle else 'cycle on request'}", highlight=False)
    console.print(_cycles_table(status["cycles"]))
    for cycle in status["cycles"]:
        if cycle["reason"]:
            console.print(f"{cycle['cutoff']} {cycle['state']}: {cycle['reason']}", markup=False, highlight=False)
    _print_warnings(console, status)


def _say_rows(status: dict[str, Any]) -> str:
    """How many events a task has, and how many of them and of their labels wait for their other half."""
    events = "event" if status["num_events"] == 1 else "events"
    counts = [f"{status['num_events']:,} {events}"]
    if unlabelled := status.get("num_unlabelled"):
        counts.append(f"{unlabelled:,} without a label")
    if waiting := status.get("num_waiting"):
        counts.append(f"{waiting:,} {'label' if waiting == 1 else 'labels'} without an event")
    return ", ".join(counts)


def state_facts(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Headings with their texts: the state and its reasons, the skill, the recipe, the registry and the champion."""
    registry, champion, closed = status["registry"], status["champion"], status["closed"]
    yield "State", _state(status)
    if closed is not None:
        yield "Closed", f"at {closed['valid_until']} by {closed['actor']}: {closed['reason']}"
    if status["stale"]:
        yield "Stale", status["stale_reason"]
    if status["missing_windows"]:
        yield "Needs", f"{_say_more(status)} before a horizon can be judged"
    if "trust" in status:
        yield "Quality", f"{_say_verdict(status['trust'])}: {status['trust']['reason']}"
    if status["skill"] is not None:
        skill = msgspec.convert(status["skill"], Skill)
        yield "Skill", describe_skill(skill)
    if (step := status.get("next_step")) is not None:
        command = f" {step['command']}" if step["command"] else ""
        yield "To do" if step["is_needed"] else "Next step", f"{step['text']}{command}"
    if status["skill"] is not None:
        for advice in skill.advice:
            if step is None or not _is_said(advice, step):
                yield "Try", advice
    if status["choice"] is not None:
        yield "Recipe", _describe_choice(status["choice"])
    yield "Registry", registry["state"] + (f": {registry['reason']}" if registry["reason"] else "")
    if champion is None:
        kept = _kept_version(status)
        yield "Champion", "none yet" if kept is None else f"version {kept}, kept; it answers nothing while archived"
    else:
        yield from _describe_champion(status, champion)


def _describe_champion(status: dict[str, Any], champion: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The version that answers, the end of its validity, and the command that asks it about a file."""
    yield "Champion", f"version {champion['version']}, trained until {champion['trained_until']}"
    yield "Training", f"{champion['batch_size']:,} rows at a time"
    if (weights := explain_weights(champion.get("weights") or {})) is not None:
        yield "Answers", weights.removeprefix("answers ")
    promised = f"a horizon of {count_windows(champion['horizon'])}"
    override = status["override"]
    if override is not None:
        bound = f"by override of {override['actor']}; {promised} was validated"
    elif status["closed"] is not None:
        bound = f"since an error above its limit closed the horizon; {promised} was promised at the release"
    else:
        bound = promised
    yield "Valid", f"until {champion['valid_until']}, {bound}"
    if (commands := status.get("commands")) is not None:
        yield "Ask", commands["predict"]


def _is_said(advice: str, step: dict[str, Any]) -> bool:
    """Whether the next step says this advice already."""
    text, command = split_advice(advice)
    commands = command or "", step["command"] or ""
    return step["text"].lower().startswith(text.lower()) or all(one.startswith("morrow backtest ") for one in commands)


# The state `no_model` in words, as on the page.
_STATES = {"no_model": "without model"}


def _state(status: dict[str, Any]) -> str:
    if status.get("lifecycle") == "archived":
        return "archived"
    lifecycle = "" if status.get("lifecycle", "active") == "active" else f"{status['lifecycle']}, "
    return lifecycle + _STATES.get(status["state"], str(status["state"])) + (", stale" if status["stale"] else "")


def _missing(status: dict[str, Any]) -> str:
    """How many windows a first verdict still needs, for the list of tasks."""
    return f", needs {_say_more(status)}" if status["missing_windows"] else ""


def _say_more(status: dict[str, Any]) -> str:
    number = status["missing_windows"]
    return "1 more window" if number == 1 else f"{number:,} more windows"


def skill_table(status: dict[str, Any]) -> Table:
    """The errors of the model, of naive and of each rival, all on the same windows, within 80 columns."""
    skill, better = status["skill"], status["better_method"] or {}
    compared = skill["compared"]
    first = compared[0]
    shared = count_windows(first["num_windows"])
    title = f"{skill['error_name'].replace('_', ' ')} on the same {shared}"
    if (skill.get("pending") or skill.get("rescored")) and first["num_windows"] < skill["num_windows"]:
        title = (
            f"{skill['error_name'].replace('_', ' ')} on the {shared} that all rivals have been fitted on so far\n"
            f"(of {skill['num_windows']}; more follow while rivals are being fitted)"
        )
    table = Table("method", "error", "skill", title=title, title_justify="left")
    table.add_row("model", four_figures(first["ours"]), "")
    for other in compared:
        is_better = better.get("method") == other["method"] and other["error"] < other["ours"]
        remark = ", clearly better" if is_better else ""
        table.add_row(other["method"] + remark, four_figures(other["error"]), _percent(other))
    return table


def _print_meanings(console: Console, status: dict[str, Any]) -> None:
    kind = status.get("spec", {}).get("target", {}).get("kind")
    names = ["model", *(one["method"] for one in status["skill"]["compared"])]
    for method, meaning in explain_methods(names, is_classification=None if kind is None else kind == "classification"):
        console.print(f"  {method}: {meaning}", markup=False, highlight=False)


def _percent(compared: dict[str, Any] | None) -> str:
    """A skill in percent; a dash if nothing is scored."""
    return "–" if compared is None or compared["skill"] is None else f"{round(compared['skill'])} %"


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


def answers_tables(given: dict[str, Any]) -> list[Table]:
    """How right the logged answers were, and how late their labels came, by version and age, within 80 columns."""
    days = "1 day" if given["days"] == 1 else f"{given['days']:,} days"
    sample = "" if given["share"] == 1 else f", of which {say_share(given['share'])} are logged"
    title = f"answers of {days}{sample}; error and coverage as given / as promised"
    errors = Table("version", "age", "answers", "waiting", "error", "coverage", title=title, title_justify="left")
    delays = Table("version", "age", "calibration error", "label delay, median", "90 %")
    for one in given["by_age"]:
        names = one["version"], "own rows" if one["age"] is None else str(one["age"])
        errors.add_row(
            *names,
            f"{one['num_answers']:,}",
            say_share(one["waiting"]),
            _beside(four_figures(one["error"]), four_figures(one["expected_error"])),
            _beside(say_share(one["coverage"]), say_share(one["promised_coverage"])),
        )
        if one["num_labelled"]:
            delays.add_row(
                *names,
                four_figures(one["calibration_error"]),
                say_seconds(one["label_delay_median"]),
                say_seconds(one["label_delay_p90"]),
            )
    return [errors, delays] if delays.row_count else [errors]


def _beside(found: str, promised: str) -> str:
    return found if found == promised == "–" else f"{found} / {promised}"


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
