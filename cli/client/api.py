"""How commands call a running API, and how its problem documents become sentences."""

import os
from typing import TYPE_CHECKING, Any

from cli.errors import Refused, Unreachable

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 60.0


def open_api(url: str) -> "httpx.Client":
    """A client for the API at `url` that sends the key of MORROW_KEY; use it as a context manager."""
    import httpx

    key = os.environ.get("MORROW_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else None
    # A proxy that the environment names must not stand between us and our own machine.
    is_local = httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
    return httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=not is_local)


def ask(api: "httpx.Client", method: str, path: str, **options: Any) -> Any:
    """The JSON of an answer. Raises Refused with the problem document, or Unreachable if there is no answer."""
    import httpx

    try:
        response = api.request(method, path, **options)
    except httpx.TransportError as error:
        hint = "Is `morrow up` running, and does MORROW_URL hold the address that it printed?"
        raise Unreachable(f"The API at {api.base_url} does not answer ({error}). {hint}") from error
    if response.is_error:
        raise Refused(response.status_code, read_problem(response))
    return response.json()


def read_problem(response: "httpx.Response") -> dict[str, Any]:
    """The problem document, or one made from the status if something other than Morrow answered."""
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        problem: dict[str, Any] = response.json()
        return problem
    return {"title": response.reason_phrase, "status": response.status_code}
