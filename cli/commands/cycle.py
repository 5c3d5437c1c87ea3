"""`morrow cycle`: retrain a task now. `morrow override --cycle` follows its cycle in the same way."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.client.api import ask, open_api
from cli.client.options import LOCAL_URL, AsJson, Url
from cli.client.output import print_facts, print_json
from cli.client.wait import await_version, describe_wait, find_following, follow_cycle, request_cycle

if TYPE_CHECKING:
    import httpx


def cycle(
    task: str,
    as_of: Annotated[
        str | None,
        typer.Option(help="Train as of this moment (RFC 3339). Default: now, or the end of the newest events."),
    ] = None,
    *,
    again: Annotated[bool, typer.Option("--again", help="Train a cutoff that has been released once more.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait for the end; exit code 1 unless it is released.")] = True,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Retrain a task.

    A cutoff that has been released is trained once more if the recipe has changed since, or with --again. If a cycle
    of an earlier revision of the task is running, another attempt follows it.
    """
    with open_api(url) as api:
        requested = request_cycle(api, task, as_of, again=again)
        if requested["note"]:
            typer.echo(f"As of {requested['cutoff']}: {requested['note']}.", err=True)
        if not wait:
            print_facts(requested, f"Cycle as of {requested['cutoff']}: {requested['state']}.", as_json=as_json)
        else:
            is_released = finish_cycle(api, task, requested, as_json=as_json)
            if requested["state"] == "running" and requested["note"] and not requested["followed"]:
                typer.echo(f"Remember: {requested['note']}.", err=True)
            if not is_released:
                raise typer.Exit(1)


def finish_cycle(api: "httpx.Client", task: str, cycle: dict[str, Any], *, as_json: bool) -> bool:
    """Follow a cycle to its end, wait until the API serves what it released, and print the outcome.

    If another attempt at the cutoff follows, the command waits for it too, and its outcome counts.
    Returns whether it is released.
    """
    from rich.console import Console

    title = f"Cycle as of {cycle['cutoff']}"
    console = Console(stderr=True)
    said: set[str] = set()
    with console.status(f"{title} …") as status:

        def show(step: str) -> None:
            status.update(f"{title}: {step} …")
            # A status is seen in a terminal only, and a wait for another task may be long: it is a line of its own.
            queue, _, _ = step.partition(", which has run for")
            if queue != step and queue not in said:
                said.add(queue)
                console.print(f"{title}: {step}.", markup=False, highlight=False, soft_wrap=True)

        ended = follow_cycle(api, task, cycle, show)
        while (following := find_following(api, task, ended)) is not None:
            show(f"attempt {ended['attempt']} has ended ({ended['state']}), and attempt {following['attempt']} follows")
            ended = follow_cycle(api, task, following, show)
        is_released = bool(ended["state"] == "released")
        waited = describe_wait(await_version(api, task, ended["version"])) if is_released else ""
        needs_status = ended["state"] in ("released", "skipped", "held") and not as_json
        status_now = ask(api, "GET", f"/tasks/{task}") if needs_status else {}
    if as_json:
        print_json(ended)
    else:
        first, *ages = describe_end(ended, task, is_tuned=_is_tuned(status_now))
        command = status_now.get("commands", {}).get("import_events")
        for line in (first + waited, *ages, *advise_skipped(ended, task, command)):
            Console().print(line, markup=False, highlight=False)
        for doubt in status_now.get("doubts", ()) if is_released else ():
            Console().print(f"Warning: {doubt}.", markup=False, highlight=False)
    return is_released


def _is_tuned(status: dict[str, Any]) -> bool:
    """Whether the task asks the trainer to search for a recipe."""
    return status.get("spec", {}).get("training", {}).get("tune") is True


def describe_end(cycle: dict[str, Any], task: str = "TASK", *, is_tuned: bool = False) -> list[str]:
    """How a cycle ended, with a line for each judged age; there is none if it ended before that.

    If an age is not valid, the last two lines say what may help. `is_tuned` as for `suggest`.
    """
    from contracts.quality.remedies import say_aside, suggest
    from contracts.verdict import decode_verdict

    lines = [f"Cycle as of {cycle['cutoff']}: {cycle['state']}" + _outcome(cycle)]
    if cycle["verdict"] is not None and (matrix := decode_verdict(cycle["verdict"]).matrix) is not None:
        lines += [
            f"  age {age.age}: {matrix.error_name} {age.mean:.4f}, {age.reason or 'valid'}"
            for age in matrix.ages
            if age.mean is not None
        ]
        if matrix.aside:
            lines.append(f"  {say_aside(matrix.aside)}: the expected error leaves them out; check their labels.")
        broken = next((age for age in matrix.ages if age.reason), None)
        remedy = None if broken is None else suggest(broken, matrix.tolerance, matrix.max_error, is_tuned=is_tuned)
        if remedy is not None:
            then = f" Then: morrow task apply FILE && morrow cycle {task} --again" if " = " in remedy else ""
            lines.append(f"  {remedy}.{then}")
            lines.append(f"  To see what more windows would cost: morrow backtest {task}")
    return lines


def advise_skipped(cycle: dict[str, Any], task: str, command: str | None = None) -> list[str]:
    """What to do about a cycle that found too little to train on; nothing for one that ended otherwise.

    `command` imports a file with the options of the last import.
    """
    if cycle["state"] != "skipped":
        return []
    return [f"  Send more labelled events: {command or f'morrow events import {task} FILE'}"]


def _outcome(cycle: dict[str, Any]) -> str:
    if cycle["state"] == "released":
        return f" as version {cycle['version']}."
    return f": {cycle['reason']}" if cycle["reason"] else "."
