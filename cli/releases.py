"""What `morrow rollback`, `morrow override` and `morrow events correct` do and print: an admin's word, written down."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from cli.remote import ask, open_api
from contracts.errors import Fault, InvalidInput


def roll_back(url: str, task: str, version: str | None, reason: str, actor: str | None) -> None:
    """Let an earlier version answer again, and say until when it is valid."""
    with open_api(url) as api:
        row = ask(api, "POST", f"/tasks/{task}/rollback", json=_given(version=version, reason=reason, actor=actor))
    _print(f"{task} is back at version {row['version']}, valid until {row['valid_until']}.")


def override(
    url: str,
    task: str,
    *,
    version: str | None,
    valid_until: str | None,
    cycle: int | None,
    reason: str,
    actor: str | None,
) -> None:
    """Set until when a version is valid, or have what a cycle held released."""
    body = _given(version=version, valid_until=valid_until, cycle=cycle, reason=reason, actor=actor)
    with open_api(url) as api:
        answer = ask(api, "POST", f"/tasks/{task}/override", json=body)
    if cycle is None:
        _print(f"Version {answer['version']} of {task} is valid until {answer['valid_until']}.")
    else:
        _print(f"The cutoff {answer['cutoff']} is tried again as cycle {answer['id']}, to be released.")


def correct_event(url: str, task: str, file: Path) -> None:
    """Send one event as it should be. Raises InvalidInput where the file is not one event in JSON."""
    try:
        event = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput([Fault(str(file), f"is not JSON: {error}")]) from error
    event_id = event.get("event_id") if isinstance(event, dict) else None
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
    _print(f"{event_id} {what}.")


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _print(sentence: str) -> None:
    Console().print(sentence, markup=False, highlight=False)
