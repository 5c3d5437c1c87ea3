"""Requests, answers and retries without any input or output, so that one source serves both clients.

An *exchange* is a generator. It yields a `Request` to send or a `Pause` to wait for, gets a `Reply` for each request,
and returns what the caller wants.
"""

import math
import random
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx
import msgspec

from morrow.answers import Problem
from morrow.errors import PASSING, ApiError, Unreachable, make_error

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
# What a proxy answers while no API stands behind it.
_PASSING_STATUSES = {502, 503, 504}
# Failures before any byte was sent, and those that the same request always meets.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LASTING = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.DecodingError)


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
Reply = httpx.Response | httpx.RequestError | None
Exchange = Generator[Request | Pause, Reply, T]


def ask(request: Request, kind: type[T], patience: float) -> Exchange[T]:
    """Send the request until it is answered, and decode the answer.

    `patience` is the number of seconds that pauses and failed requests may take together. Raises ApiError or
    Unreachable.
    """
    response = yield from _send(request, patience)
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"What answers at {response.url} is not this version of Morrow's API: {error}") from error


def _send(request: Request, patience: float) -> Exchange[httpx.Response]:
    left = patience
    pause = _FIRST_PAUSE_SECONDS
    while True:
        began = time.monotonic()
        reply = yield request
        assert reply is not None
        if isinstance(reply, httpx.Response) and reply.is_success:
            return reply
        failure, may_pass = _judge(reply, request)
        left -= time.monotonic() - began
        wait = _next_wait(failure, pause)
        if not may_pass or wait > left:
            raise failure
        yield Pause(wait)
        left -= wait
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _judge(reply: httpx.Response | httpx.RequestError, request: Request) -> tuple[ApiError | Unreachable, bool]:
    """The failure as an exception, and whether the same request may succeed later."""
    if isinstance(reply, httpx.RequestError):
        may_pass = (request.repeats or isinstance(reply, _NOT_SENT)) and not isinstance(reply, _LASTING)
        failure = Unreachable(f"{request.method} {request.path}: no answer ({str(reply) or type(reply).__name__})")
        failure.__cause__ = reply
        return failure, may_pass
    problem = _read_problem(reply)
    if problem is None:
        words = f"{request.method} {reply.url}: {reply.status_code} from something other than Morrow's API"
        if reply.has_redirect_location:
            words += f", which redirects to {reply.headers['location']}: open the client with the API's own address"
        return Unreachable(words), reply.status_code in _PASSING_STATUSES and request.repeats
    return make_error(problem, _read_seconds(reply)), problem.type in PASSING


def _read_problem(response: httpx.Response) -> Problem | None:
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return msgspec.json.decode(response.content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _next_wait(failure: ApiError | Unreachable, pause: float) -> float:
    """Seconds: what the API asks for, and a random part, so that callers do not all come back at once."""
    asked = failure.retry_after if isinstance(failure, ApiError) else None
    return (pause if asked is None else max(asked, pause)) * random.uniform(1.0, 1.25)  # noqa: S311


def _read_seconds(response: httpx.Response) -> float | None:
    """The seconds of `Retry-After`, which a proxy may give as a date; None without one that can be read."""
    text = response.headers.get("retry-after", "")
    with suppress(ValueError):
        seconds = float(text)
        return seconds if 0 <= seconds < math.inf else None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
