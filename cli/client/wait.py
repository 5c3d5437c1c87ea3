"""Whether the API answers as a command has just told it to: its processes look at the releases every few seconds."""

import time
from collections.abc import Callable

import httpx

from cli.client.api import ask

WAIT_SECONDS = 15.0
_POLL_SECONDS = 0.2


def await_version(
    api: httpx.Client,
    task: str,
    version: str,
    *,
    limit_seconds: float = WAIT_SECONDS,
    on_look: Callable[[], object] = lambda: None,
) -> bool:
    """Wait until the process that is asked answers with this version; whether it does within the limit."""
    return _await(api, task, lambda found, _until: found == version, limit_seconds, on_look)


def await_bound(
    api: httpx.Client, task: str, version: str, valid_until: str, *, limit_seconds: float = WAIT_SECONDS
) -> bool:
    """The same of a bound; a version that does not answer has none to wait for."""
    return _await(api, task, lambda found, until: found != version or until == valid_until, limit_seconds, lambda: None)


def _await(
    api: httpx.Client,
    task: str,
    is_met: Callable[[str | None, str | None], bool],
    limit_seconds: float,
    on_look: Callable[[], object],
) -> bool:
    deadline = time.monotonic() + limit_seconds
    while True:
        champion = ask(api, "GET", f"/tasks/{task}")["champion"] or {}
        if is_met(champion.get("version"), champion.get("valid_until")):
            return True
        on_look()
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)


def describe_wait(is_answering: bool) -> str:
    """What follows the sentence of a command where the API has not taken up its word in time."""
    return "" if is_answering else f" The API has not taken it up within {WAIT_SECONDS:.0f} s; see `morrow task show`."
