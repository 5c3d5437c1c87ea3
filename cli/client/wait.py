"""How commands wait: for the end of a cycle, and until the API serves a change, which it polls for."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cli.client.api import ask
from contracts.errors import NotFound

if TYPE_CHECKING:
    import httpx

WAIT_SECONDS = 15.0
CYCLE_ENDS = ("released", "held", "skipped", "failed")
_POLL_SECONDS = 0.2
_CYCLE_POLL_SECONDS = 0.5


def request_cycle(api: "httpx.Client", task: str, as_of: str | None, *, again: bool = False) -> dict[str, Any]:
    """Ask for a cycle as of a moment (RFC 3339), None for now; returns the requested cycle."""
    body: dict[str, Any] = {"as_of": as_of} if as_of else {}
    if again:
        body["again"] = True
    cycle: dict[str, Any] = ask(api, "POST", f"/tasks/{task}/cycles", json=body)
    return cycle


def follow_cycle(
    api: "httpx.Client", task: str, cycle: dict[str, Any], on_step: Callable[[str], object]
) -> dict[str, Any]:
    """Poll until this attempt at this cutoff has ended; `on_step` gets each step in words, or what it waits for.

    Raises NotFound if the API lists newer cutoffs only.
    """
    while True:
        answer = ask(api, "GET", f"/tasks/{task}/cycles")
        found: dict[str, Any] | None = next((one for one in answer["cycles"] if one["id"] == cycle["id"]), None)
        if found is None:
            raise NotFound(f"The cycle of {cycle['cutoff']} is requested, but the API lists newer ones only.")
        if found["state"] in CYCLE_ENDS:
            return found
        on_step(found["step"] or describe_queue(answer.get("waits_for", []), datetime.now(UTC)))
        time.sleep(_CYCLE_POLL_SECONDS)


def find_following(api: "httpx.Client", task: str, cycle: dict[str, Any]) -> dict[str, Any] | None:
    """The attempt at the same cutoff that was requested when this one ended; None if there is none."""
    if not cycle["followed"]:
        return None
    listed = ask(api, "GET", f"/tasks/{task}/cycles")["cycles"]
    later = [one for one in listed if one["cutoff"] == cycle["cutoff"] and one["attempt"] > cycle["attempt"]]
    return min(later, key=lambda one: int(one["attempt"]), default=None)


def describe_queue(running: Sequence[dict[str, Any]], now: datetime) -> str:
    """What a requested cycle waits for: the cycles of other tasks that run, or a trainer that takes it."""
    if not running:
        return "waiting for the trainer"
    first, *others = (
        f"the cycle of {one['task']} as of {one['cutoff']}, which has run for {_say_seconds(one['started_at'], now)}"
        for one in running
    )
    return f"waiting for {first}" + (f", and for {len(others)} more" if others else "")


def _say_seconds(since: str | None, now: datetime) -> str:
    seconds = 0 if since is None else max(0, round((now - datetime.fromisoformat(since)).total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def await_version(
    api: "httpx.Client",
    task: str,
    version: str,
    *,
    limit_seconds: float = WAIT_SECONDS,
    on_poll: Callable[[], object] = lambda: None,
) -> bool:
    """Wait until the API serves this version; returns whether it does within the limit."""
    return _await(api, task, lambda found, _until: found == version, limit_seconds, on_poll)


def await_bound(
    api: "httpx.Client", task: str, version: str, valid_until: str, *, limit_seconds: float = WAIT_SECONDS
) -> bool:
    """Wait until the API serves this version with this `valid_until`. Any other version ends the wait at once."""
    return _await(api, task, lambda found, until: found != version or until == valid_until, limit_seconds, lambda: None)


def _await(
    api: "httpx.Client",
    task: str,
    is_met: Callable[[str | None, str | None], bool],
    limit_seconds: float,
    on_poll: Callable[[], object],
) -> bool:
    deadline = time.monotonic() + limit_seconds
    while True:
        champion = ask(api, "GET", f"/tasks/{task}")["champion"] or {}
        if is_met(champion.get("version"), champion.get("valid_until")):
            return True
        on_poll()
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)


def describe_wait(is_serving: bool) -> str:
    """The sentence to add to a command's own if the API did not follow in time."""
    if is_serving:
        return ""
    return f" The API does not serve that after {WAIT_SECONDS:.0f} s; see `morrow task show`."
