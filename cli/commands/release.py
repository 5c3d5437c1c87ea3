"""What `morrow rollback`, `morrow override` and `morrow events correct` do and print: an admin's word, written down."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from cli.client.api import ask, open_api
from cli.client.output import print_json
from cli.client.wait import await_bound, await_version, describe_wait
from cli.commands.cycle import see_to_end, tell_end
from contracts.errors import Fault, InvalidInput


def roll_back(url: str, task: str, version: str | None, reason: str, actor: str | None, *, as_json: bool) -> None:
    """Let an earlier version answer again, and say until when it is valid."""
    with open_api(url) as api:
        row = ask(api, "POST", f"/tasks/{task}/rollback", json=_given(version=version, reason=reason, actor=actor))
        waited = describe_wait(await_version(api, task, row["version"]))
    _tell(row, f"{task} is back at version {row['version']}, valid until {row['valid_until']}.{waited}", as_json)


def override(
    url: str,
    task: str,
    *,
    version: str | None,
    valid_until: str | None,
    cycle: int | None,
    reason: str,
    actor: str | None,
    wait: bool,
    as_json: bool,
) -> bool:
    """Set until when a version is valid, or have what a cycle held released and, where wanted, follow that to its end.

    Whether it is as asked for, or at least on its way where nobody waits.
    """
    body = _given(version=version, valid_until=valid_until, cycle=cycle, reason=reason, actor=actor)
    with open_api(url) as api:
        answer = ask(api, "POST", f"/tasks/{task}/override", json=body)
        if cycle is not None:
            sentence = f"The cutoff {answer['cutoff']} is tried again as cycle {answer['id']}, to be released."
            if not wait or not as_json:
                _tell(answer, sentence, as_json)
            return tell_end(*see_to_end(api, task, answer), as_json=as_json) if wait else True
        waited = describe_wait(await_bound(api, task, answer["version"], answer["valid_until"]))
    _tell(answer, f"Version {answer['version']} of {task} is valid until {answer['valid_until']}.{waited}", as_json)
    return True


def correct_event(url: str, task: str, file: Path, *, as_json: bool) -> None:
    """Send one event as it should be. Raises InvalidInput where the file is not one event in JSON."""
    try:
        event = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput([Fault(str(file), f"is not JSON: {error}")]) from error
    if not isinstance(event, dict):
        raise InvalidInput([Fault(str(file), "is not one event: a JSON object")])
    event_id = event.get("event_id")
    if not isinstance(event_id, str):
        raise InvalidInput([Fault("event_id", f"is missing in {file}")])
    with open_api(url) as api:
        answer = ask(
            api,
            "PUT",
            f"/events/{quote(event_id, safe='')}",
            params={"task": task},
            content=file.read_bytes(),
            headers={"content-type": "application/json"},
        )
    what = "is corrected" if answer["status"] == "corrected" else "says so already"
    _tell(answer, f"{event_id} {what}.", as_json)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _tell(facts: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        Console().print(sentence, markup=False, highlight=False)
