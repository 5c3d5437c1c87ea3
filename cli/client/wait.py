"""How commands wait until the API serves what they changed: its processes poll the releases every few seconds."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cli.client.api import ask

if TYPE_CHECKING:
    import httpx

WAIT_SECONDS = 15.0
_POLL_SECONDS = 0.2


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
