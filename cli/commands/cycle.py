"""What `morrow cycle` does and prints: ask the API for a retraining, follow its steps, say how it ended.

`morrow override --cycle` follows what it has asked for in the same way.
"""

import time
from collections.abc import Callable
from typing import Any

import httpx
from rich.console import Console

from cli.client.api import ask, open_api
from cli.client.output import print_json
from cli.client.wait import await_version, describe_wait
from contracts.errors import NotFound

POLL_SECONDS = 0.5
ENDED = ("released", "held", "skipped", "failed")


def run_cycle(url: str, task: str, as_of: str | None, *, wait: bool, as_json: bool) -> bool:
    """Ask for a cycle and, where wanted, follow it to its end; whether it is released, or only asked for."""
    with open_api(url) as api:
        cycle = request_cycle(api, task, as_of)
        if wait:
            return tell_end(*see_to_end(api, task, cycle), as_json=as_json)
    if as_json:
        print_json(cycle)
    else:
        Console().print(f"Cycle as of {cycle['cutoff']}: {cycle['state']}.")
    return True


def see_to_end(api: httpx.Client, task: str, cycle: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Follow a cycle to its end, and wait until the API answers with what it released: the cycle, and whether it does
    where there is something to answer with.
    """
    with Console(stderr=True).status(f"Cycle as of {cycle['cutoff']} …") as status:
        ended = follow_cycle(api, task, cycle, lambda step: status.update(f"Cycle as of {cycle['cutoff']}: {step} …"))
        return ended, ended["state"] != "released" or await_version(api, task, ended["version"])


def tell_end(ended: dict[str, Any], is_answering: bool, *, as_json: bool) -> bool:
    """Print how a cycle ended; whether it is released."""
    first, *ages = describe_end(ended)
    if as_json:
        print_json(ended)
    else:
        for line in (first + describe_wait(is_answering), *ages):
            Console().print(line, markup=False, highlight=False)
    return bool(ended["state"] == "released")


def describe_end(cycle: dict[str, Any]) -> list[str]:
    """How a cycle ended, and a line for each age that was judged: none where it ended before that."""
    verdict = cycle["verdict"] or {}
    judged = [age for age in verdict.get("ages", []) if age["mean"] is not None]
    return [
        f"Cycle as of {cycle['cutoff']}: {cycle['state']}" + _outcome(cycle),
        *(
            f"  age {age['age']}: {verdict['error_name']} {age['mean']:.4f}, {age['reason'] or 'valid'}"
            for age in judged
        ),
    ]


def request_cycle(api: httpx.Client, task: str, as_of: str | None) -> dict[str, Any]:
    """Ask for a cycle; returns it as it stands."""
    cycle: dict[str, Any] = ask(api, "POST", f"/tasks/{task}/cycles", json={"as_of": as_of} if as_of else {})
    return cycle


def follow_cycle(
    api: httpx.Client, task: str, cycle: dict[str, Any], on_step: Callable[[str], object]
) -> dict[str, Any]:
    """Poll until this attempt at this cutoff has ended; says each step that is seen.

    Raises NotFound where the API lists newer cutoffs only.
    """
    while True:
        found = next((one for one in list_cycles(api, task) if one["id"] == cycle["id"]), None)
        if found is None:
            raise NotFound(f"The cycle of {cycle['cutoff']} is requested, but the API lists newer ones only.")
        if found["state"] in ENDED:
            return found
        on_step(found["step"] or "waiting for the trainer")
        time.sleep(POLL_SECONDS)


def list_cycles(api: httpx.Client, task: str) -> list[dict[str, Any]]:
    """A task's cycles, newest first."""
    cycles: list[dict[str, Any]] = ask(api, "GET", f"/tasks/{task}/cycles")["cycles"]
    return cycles


def _outcome(cycle: dict[str, Any]) -> str:
    if cycle["state"] == "released":
        return f" as version {cycle['version']}."
    return f": {cycle['reason']}" if cycle["reason"] else "."
