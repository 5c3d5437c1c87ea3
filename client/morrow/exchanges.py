"""Requests, answers and retries without any input or output, so that one source serves both clients.

An *exchange* is a generator. It yields a `Request` to send or a `Pause` to wait for, gets a `Reply` for each request,
and returns what the caller wants.
"""

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
import msgspec

from morrow.answers import Problem
from morrow.errors import ApiError, Unreachable, make_error

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
# What the same request can succeed with after a pause. All others need another request, or another model.
_PASSING = {
    "/problems/throttled",
    "/problems/overloaded",
    "/problems/unavailable",
    "/problems/not-loaded",
    "/problems/not-ready",
    "/problems/task-leaving",
}
# What a proxy answers while no API stands behind it.
_PASSING_STATUSES = {502, 503, 504}


@dataclass(frozen=True)
class Request:
    """One request. `repeats` tells whether it may be sent again although it may have been carried out."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeats: bool = True


@dataclass(frozen=True)
class Pause:
    """A wait before the next request."""

    seconds: float


# A response, or the exception that came instead.
Reply = httpx.Response | httpx.TransportError | None
Exchange = Generator[Request | Pause, Reply, T]


def ask(request: Request, kind: type[T], patience: float) -> Exchange[T]:
    """Send the request until it is answered, and decode the answer.

    `patience` is the number of seconds that pauses may take together. Raises ApiError or Unreachable.
    """
    response = yield from _send(request, patience)
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise Unreachable(f"What answers at {response.url} is not this version of Morrow's API: {error}") from error


def _send(request: Request, patience: float) -> Exchange[httpx.Response]:
    left = patience
    pause = _FIRST_PAUSE_SECONDS
    while True:
        reply = yield request
        assert reply is not None
        if isinstance(reply, httpx.Response) and reply.is_success:
            return reply
        failure, may_pass = _judge(reply, request)
        wait = _next_wait(failure, pause)
        if not may_pass or wait > left:
            raise failure
        yield Pause(wait)
        left -= wait
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _judge(reply: httpx.Response | httpx.TransportError, request: Request) -> tuple[ApiError | Unreachable, bool]:
    """The failure as an exception, and whether the same request may succeed later."""
    if isinstance(reply, httpx.TransportError):
        was_sent = not isinstance(reply, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        may_pass = (request.repeats or not was_sent) and not isinstance(reply, httpx.UnsupportedProtocol)
        failure = Unreachable(f"{request.method} {request.path}: no answer ({reply or type(reply).__name__})")
        failure.__cause__ = reply
        return failure, may_pass
    if not reply.headers.get("content-type", "").startswith("application/problem+json"):
        words = f"{request.method} {reply.url}: {reply.status_code} from something other than Morrow's API"
        return Unreachable(words), reply.status_code in _PASSING_STATUSES and request.repeats
    error = make_error(msgspec.json.decode(reply.content, type=Problem), _read_seconds(reply))
    return error, error.problem.type in _PASSING


def _next_wait(failure: ApiError | Unreachable, pause: float) -> float:
    """Seconds: what the API asks for, and a random part, so that callers do not all come back at once."""
    asked = failure.retry_after if isinstance(failure, ApiError) else None
    return (pause if asked is None else max(asked, pause)) * random.uniform(1.0, 1.25)  # noqa: S311


def _read_seconds(response: httpx.Response) -> float | None:
    try:
        return float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
