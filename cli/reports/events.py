"""The lines of `morrow events list`."""

import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console


def print_events(task: str, found: Mapping[str, Any], options: Mapping[str, str | None]) -> None:
    """Print a line for each event: its id whole, its moment, its label and its features; and how to go on."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not found["events"]:
        console.print(f"{task} has no labelled event there: `morrow task show {task}` counts all.")
        return
    for one in found["events"]:
        event = one["event"]
        features = ", ".join(f"{name}={_say(value)}" for name, value in event["features"].items())
        console.print(f"{event['event_id']}  {event['at']}  {_say(event['label'])}  {features}")
    command = f"morrow events show {task} {shlex.quote(found['events'][0]['event']['event_id'])}"
    console.print(f"One of them as it can be corrected: {command}")
    if found["next"] is not None:
        given = " ".join(f"{name} {shlex.quote(value)}" for name, value in options.items() if value is not None)
        console.print(f"More: morrow events list {task} {given} --after {shlex.quote(found['next'])}")


def _say(value: Any) -> str:
    return "–" if value is None else str(value)
