"""`morrow hooks`: let another system know of releases, closed horizons and failed cycles."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.client.api import ask, open_api
from cli.client.options import LOCAL_URL, Actor, AsJson, Url
from cli.client.output import print_facts, print_json

if TYPE_CHECKING:
    import httpx

app = typer.Typer(
    no_args_is_help=True,
    help="Send an event to another system when a version is released, a horizon closes, a cycle fails and so on.",
)

_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.2


@app.command()
def add(
    name: str,
    receiver: Annotated[str, typer.Argument(help="Address that takes the events, https://…")],
    *,
    task: Annotated[
        list[str] | None, typer.Option(help="Only events of this task; may be repeated. Default: of every task.")
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Only events of this type, such as morrow.version.released; may be repeated. Default: all."
        ),
    ] = None,
    actor: Actor = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Make a hook, and print the secret of its signatures once."""
    body = {"name": name, "url": receiver, "tasks": task or None, "types": event or None, "actor": actor}
    with open_api(url) as api:
        hook = ask(api, "POST", "/hooks", json={key: value for key, value in body.items() if value is not None})
    if as_json:
        print_json(hook)
        return
    typer.echo(hook["secret"])
    typer.echo(
        "This is the secret: the receiver verifies the signatures by it. It cannot be shown again. "
        f"Try the hook with `morrow hooks test {name}`.",
        err=True,
    )


@app.command("list")
def show(
    name: Annotated[str | None, typer.Argument(help="Show the newest events of this hook. Default: all hooks.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most events.")] = 20,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show the hooks with the numbers of their events and the last failure, or the events of one."""
    from rich.console import Console
    from rich.table import Table

    with open_api(url) as api:
        answer = ask(api, "GET", "/hooks" if name is None else f"/hooks/{name}/events", params=_limit(name, limit))
    if as_json:
        print_json(answer)
        return
    console = Console(markup=False, highlight=False)
    if name is None:
        hooks = answer["hooks"]
        table = Table("hook", "receiver", "tasks", "delivered", "waiting", "dead", "last failure")
        for hook in hooks:
            tasks = "all" if hook["tasks"] is None else ", ".join(hook["tasks"])
            counts = [f"{hook[key]:,}" for key in ("num_delivered", "num_waiting", "num_dead")]
            table.add_row(hook["name"], hook["url"], tasks, *counts, hook["answer"] or "")
        console.print(table if hooks else "There is no hook: `morrow hooks add NAME https://…` makes one.")
        for hook in hooks:
            if hook["num_dead"]:
                console.print(f"Repair the receiver of {hook['name']}, then run `morrow hooks retry {hook['name']}`.")
        return
    table = Table("event", "type", "task", "happened", "state", "attempts", "answer")
    for one in answer["events"]:
        table.add_row(
            one["id"],
            one["type"],
            one["task"] or "",
            one["at"],
            one["state"],
            str(one["num_attempts"]),
            one["answer"] or "",
        )
    console.print(table if answer["events"] else f"No event of {name} is kept.")


@app.command("test")
def send_test(name: str, *, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Send one event now, and print what the receiver answers; exit code 1 unless it takes the event."""
    with open_api(url) as api:
        event_id = ask(api, "POST", f"/hooks/{name}/test")["id"]
        found = _await_end(api, name, event_id)
    if found["state"] == "delivered":
        sentence = f"{name} has taken the event {event_id}: {found['answer']}"
    elif found["state"] == "dead":
        sentence = f"{name} has not taken the event {event_id}: {found['answer']}"
    else:
        sentence = f"Nothing has been sent within {_WAIT_SECONDS:g} s: the trainer sends events, so see that it runs."
    print_facts(found, sentence, as_json=as_json)
    if found["state"] != "delivered":
        raise typer.Exit(1)


@app.command()
def retry(name: str, *, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Send all events again that were given up: the dead letters."""
    from contracts.shown import say_count

    with open_api(url) as api:
        answer = ask(api, "POST", f"/hooks/{name}/retry")
    print_facts(answer, f"{say_count(answer['num_events'], 'dead letter')} of {name} will be sent.", as_json=as_json)


@app.command()
def remove(name: str, *, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Remove a hook with its events, also those that wait."""
    with open_api(url) as api:
        hook = ask(api, "DELETE", f"/hooks/{name}")
    unsent = hook["num_waiting"] + hook["num_dead"]
    dropped = f" {unsent:,} of its events had not been delivered." if unsent else ""
    print_facts(hook, f"The hook {name} is removed.{dropped}", as_json=as_json)


def _limit(name: str | None, limit: int) -> dict[str, int]:
    return {} if name is None else {"limit": limit}


def _await_end(api: "httpx.Client", name: str, event_id: str) -> dict[str, Any]:
    """The event once it has been tried, or as it is if nobody has tried it in time."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        events = ask(api, "GET", f"/hooks/{name}/events", params={"limit": 1000})["events"]
        found: dict[str, Any] = next(one for one in events if one["id"] == event_id)
        if found["state"] != "waiting" or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_SECONDS)
