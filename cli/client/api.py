"""How commands call a running API, and how its problem documents become sentences."""

import os
import time
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from cli.errors import Refused, Unreachable
from contracts.errors import Fault, InvalidInput

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
# What a proxy answers while no API stands behind it.
_GATEWAY_STATUSES = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


def open_api(url: str) -> "httpx.Client":
    """A client for the API at `url` that sends the key of MORROW_KEY; use it as a context manager.

    Raises InvalidInput if the address, the key, or a proxy that the address needs cannot be used.
    """
    import httpx

    from contracts.runtime.addresses import read_http_address
    from contracts.runtime.http_clients import client_options

    try:
        address = read_http_address(url)
    except ValueError as error:
        raise InvalidInput([Fault("MORROW_URL", f"{url} {error}")]) from None
    key = os.environ.get("MORROW_KEY", "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InvalidInput([Fault("MORROW_KEY", "holds a character that no key has: copy it again")])
    headers = {"Authorization": f"Bearer {key}"} if key else None
    return httpx.Client(base_url=address, headers=headers, timeout=TIMEOUT_SECONDS, **client_options(address))


def ask(api: "httpx.Client", method: str, path: str, **options: Any) -> Any:
    """The JSON of an answer. Raises Refused with the problem document, or Unreachable if there is no answer."""
    import httpx

    try:
        response = api.request(method, path, **options)
    except httpx.TransportError as error:
        hint = "Is `morrow up` running, and does MORROW_URL hold the address that it printed?"
        raise Unreachable(f"The API at {api.base_url} does not answer ({error}). {hint}") from error
    if response.is_error:
        where = say_log() if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR else None
        asked = response.headers.get("retry-after", "")
        seconds = float(asked) if asked.isascii() and asked.isdigit() else None  # a proxy may give a date
        raise Refused(response.status_code, read_problem(response), where, retry_after=seconds)
    try:
        return response.json()
    except ValueError as error:
        raise Unreachable(
            f"What answers at {api.base_url} is not Morrow's API: correct MORROW_URL, and see that no proxy answers."
        ) from error


def ask_patiently(
    api: "httpx.Client",
    method: str,
    path: str,
    *,
    patience: float = PATIENCE_SECONDS,
    is_over: Event | None = None,
    **options: Any,
) -> Any:
    """As `ask`; what can succeed later is asked again for `patience` seconds, or until `is_over` is set.

    The request may be carried out twice, if an answer is lost.
    """
    is_over = Event() if is_over is None else is_over
    deadline, pause = time.monotonic() + patience, _FIRST_PAUSE_SECONDS
    while True:
        try:
            return ask(api, method, path, **options)
        except (Refused, Unreachable) as error:
            asked = _find_pause(error)
            if asked is None:
                raise
            seconds = max(asked, pause)
            if time.monotonic() + seconds > deadline or is_over.wait(seconds):
                raise
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _find_pause(error: Refused | Unreachable) -> float | None:
    """The least seconds until the same request may succeed; None if it cannot."""
    import httpx

    if isinstance(error, Refused):
        return 0.0 if error.retry_after is None and error.status in _GATEWAY_STATUSES else error.retry_after
    passing = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)
    return 0.0 if isinstance(error.__cause__, passing) else None


def say_log() -> str:
    """Where the API writes its log: a file of `morrow up` if there is one here, else what its process prints."""
    from contracts.runtime.settings import default_home

    home = os.environ.get("MORROW_HOME")
    file = (Path(home).expanduser() if home else default_home()) / "logs" / "api.log"
    if file.is_file():
        return f"The log of the API that `morrow up` started here is {file}."
    return "The API writes its log to the output of its process: `docker compose logs api` shows it with compose."


def read_problem(response: "httpx.Response") -> dict[str, Any]:
    """The problem document, or one made from the status if something other than Morrow answered."""
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        problem: dict[str, Any] = response.json()
        return problem
    return {"title": response.reason_phrase, "status": response.status_code}
