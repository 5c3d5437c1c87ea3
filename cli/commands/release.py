"""`morrow rollback` and `morrow override`: an admin's decisions about what answers."""

from typing import Annotated, Any

import typer

from cli.client.api import ask, open_api
from cli.client.options import LOCAL_URL, Actor, AsJson, Reason, Url
from cli.client.output import print_facts
from cli.client.wait import await_bound, await_version, describe_wait
from cli.commands.cycle import finish_cycle


def rollback(
    task: str,
    reason: Reason,
    version: Annotated[
        str | None, typer.Option(help="Version to go back to. Default: the champion before the present one.")
    ] = None,
    actor: Actor = None,
    *,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Let an earlier version answer again, within its own horizon, until a newer cutoff is released."""
    with open_api(url) as api:
        row = ask(api, "POST", f"/tasks/{task}/rollback", json=_given(version=version, reason=reason, actor=actor))
        waited = describe_wait(await_version(api, task, row["version"]))
    sentence = f"{task} is back at version {row['version']}, valid until {row['valid_until']}.{waited}"
    print_facts(row, sentence, as_json=as_json)


def override(
    task: str,
    *,
    reason: Reason,
    version: Annotated[str | None, typer.Option(help="Version to reopen. Default: the champion.")] = None,
    valid_until: Annotated[
        str | None,
        typer.Option(help="Its new bound (RFC 3339). Default: the later of the present and the promised bound."),
    ] = None,
    cycle: Annotated[int | None, typer.Option(help="Id of a held cycle whose candidate must be released.")] = None,
    actor: Actor = None,
    wait: Annotated[
        bool, typer.Option(help="With --cycle: wait for the end; exit code 1 unless it is released.")
    ] = True,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Overrule a verdict: reopen a closed horizon, or release what a cycle held. Gates stay shut."""
    body = _given(version=version, valid_until=valid_until, cycle=cycle, reason=reason, actor=actor)
    with open_api(url) as api:
        answer = ask(api, "POST", f"/tasks/{task}/override", json=body)
        if cycle is None:
            waited = describe_wait(await_bound(api, task, answer["version"], answer["valid_until"]))
            sentence = f"Version {answer['version']} of {task} is valid until {answer['valid_until']}.{waited}"
            if answer["note"]:
                sentence = f"Nothing has changed: {answer['note']} (--valid-until)."
            print_facts(answer, sentence, as_json=as_json)
            return
        if not wait or not as_json:
            sentence = f"The cutoff {answer['cutoff']} is tried again as cycle {answer['id']}, to be released."
            print_facts(answer, sentence, as_json=as_json)
        if wait and not finish_cycle(api, task, answer, as_json=as_json):
            raise typer.Exit(1)


def _given(**fields: Any) -> dict[str, Any]:
    """The members of a request's body: options that were given."""
    return {name: value for name, value in fields.items() if value is not None}
