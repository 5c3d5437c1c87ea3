"""Answers that no server of ours gives, and a client that gets them in turn."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
from morrow import (
    Client,
    Event,
)

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def answering(*replies: httpx.Response | httpx.TransportError, requests: list[httpx.Request] | None = None) -> Client:
    """A client whose requests get these replies in turn."""
    left: Iterator[httpx.Response | httpx.TransportError] = iter(replies)

    def answer(request: httpx.Request) -> httpx.Response:
        if requests is not None:
            requests.append(request)
        reply = next(left)
        if isinstance(reply, httpx.TransportError):
            raise reply
        return reply

    return Client("http://morrow.test", transport=httpx.MockTransport(answer))


def problem(kind: str, status: int, **more: Any) -> httpx.Response:
    """A refusal."""
    headers = {"content-type": "application/problem+json", **more.pop("headers", {})}
    body = {"type": f"/problems/{kind}", "title": kind, "status": status, "detail": "no", **more}
    return httpx.Response(status, json=body, headers=headers)


STORED = {"created": 1, "duplicates": 0, "conflicts": 0, "rejected": 0, "results": []}
EVENT = Event(event_id="a", at=NOON, features={"price": 1}, label=2.0)
