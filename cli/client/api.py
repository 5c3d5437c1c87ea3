"""How commands talk to a running API, and how its problem documents become sentences."""

import os
from typing import Any

import httpx

from cli.errors import Refused, Unreachable

TIMEOUT_SECONDS = 60.0


def open_api(url: str) -> httpx.Client:
    """A client for the API at `url`, with the key that MORROW_KEY holds; use it as a context manager."""
    key = os.environ.get("MORROW_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else None
    return httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=not _is_local(url))


def ask(api: httpx.Client, method: str, path: str, **options: Any) -> Any:
    """The JSON of an answer. Raises Refused with the problem document, Unreachable where there is no answer."""
    try:
        response = api.request(method, path, **options)
    except httpx.TransportError as error:
        hint = "is `morrow up` running, and is this the address that it has printed (MORROW_URL)?"
        raise Unreachable(f"The API at {api.base_url} does not answer ({error}): {hint}") from error
    if response.is_error:
        raise Refused(response.status_code, read_problem(response))
    return response.json()


def read_problem(response: httpx.Response) -> dict[str, Any]:
    """The problem document, or one made of the status where something else than Morrow answered."""
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        problem: dict[str, Any] = response.json()
        return problem
    return {"title": response.reason_phrase, "status": response.status_code}


def _is_local(url: str) -> bool:
    """A proxy of the environment has no business between us and our own machine."""
    return httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
