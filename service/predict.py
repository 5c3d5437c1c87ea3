"""GET and POST /predict, the hot path: a raw route inside the FastAPI app, one compiled validator, bytes out.

Nothing here waits for the database or the registry. One row is answered on the event loop; a batch in a thread, in
parts, a bounded number of batches at a time.
"""

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from contracts.errors import Fault, InvalidInput
from service.bodies import read_body
from service.follower import Follower
from service.forecaster import Answer, Forecaster
from service.rows import printable
from service.settings import ServiceSettings

MAX_PARAMETERS = 1024

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HEADERS = [(b"content-type", b"application/json")]


class Answers(msgspec.Struct, frozen=True):
    """The answer of POST /predict, in the order of its rows."""

    answers: list[Answer]


class _CountedRoute(Route):
    """A raw route that, as FastAPI's own do, names itself in the scope, where metrics read it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self} if match is not Match.NONE else child_scope


class Predict:
    """The ASGI application behind /predict; `now` gives microseconds since the epoch."""

    def __init__(
        self,
        follower: Follower,
        settings: ServiceSettings,
        now: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._follower = follower
        self._settings = settings
        self._now = now
        self._encode = msgspec.json.Encoder().encode
        self._batches = anyio.CapacityLimiter(settings.batch_threads)

    def route(self) -> Route:
        return _CountedRoute("/predict", self, methods=["GET", "POST"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            response = await self._answer_batch(Request(scope, receive))
            await response(scope, receive, send)
            return
        body = self._answer_query(scope["query_string"])
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, length]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer_query(self, query: bytes) -> bytes:
        now = self._now()
        task, pairs = _take_task(parse_query(query))
        forecaster = self._follower.find(task)
        return self._encode(forecaster.answer(forecaster.rules.read_query(pairs), now))

    async def _answer_batch(self, request: Request) -> Response:
        task, others = _take_task(parse_query(request.scope["query_string"]))
        if others:
            raise InvalidInput([Fault(printable(name), "is not a parameter of this path") for name, _ in others[:20]])
        body = await read_body(request, self._settings.max_body_bytes)
        now = self._now()
        forecaster = self._follower.find(task)
        answered = await anyio.to_thread.run_sync(self._answer_body, forecaster, body, now, limiter=self._batches)
        return Response(answered, media_type="application/json")

    def _answer_body(self, forecaster: Forecaster, body: bytes, now: int) -> bytes:
        rows = forecaster.rules.read_questions(body, self._settings.max_rows)
        return self._encode(Answers(forecaster.answers(rows, now)))


def parse_query(query: bytes) -> list[tuple[str, str]]:
    """Names and values of a query string. Raises HTTPException 400 where its encoding is broken."""
    if not query:
        return []
    try:
        text = query.decode("ascii")
        if _BAD_ESCAPE.search(text):
            raise ValueError("a % is not followed by two hexadecimal digits")
        return parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        raise HTTPException(400, f"The query string cannot be read: {reason}.") from None


def _take_task(pairs: list[tuple[str, str]]) -> tuple[str | None, list[tuple[str, str]]]:
    """The parameter `task`, and the others. Raises InvalidInput where it is given twice."""
    tasks = [value for name, value in pairs if name == "task"]
    if len(tasks) > 1:
        raise InvalidInput([Fault("task", "is given more than once")])
    return (tasks[0], [pair for pair in pairs if pair[0] != "task"]) if tasks else (None, pairs)


def predict_path_item() -> dict[str, Any]:
    """What OpenAPI says of /predict."""
    problems = {
        "404": {"description": "There is no such task"},
        "422": {"description": "A parameter breaks a rule, or `at` is outside the horizon: see `type`"},
        "503": {"description": "No version has been released, or `at` was left out and the version has expired"},
    }
    task = {
        "name": "task",
        "in": "query",
        "schema": {"type": "string"},
        "description": "may be left out while there is one task",
    }
    moment = {"type": "string", "format": "date-time"}
    features = {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}
    row = {"type": "object", "required": ["features"], "properties": {"at": moment, "features": features}}
    one_answer = {"description": "The answer", "content": {"application/json": {"schema": _ANSWER}}}
    answers = {"type": "object", "properties": {"answers": {"type": "array", "items": _ANSWER}}}
    return {
        "get": {
            "tags": ["predict"],
            "summary": "One answer",
            "description": "Each feature is a parameter of its own name. An offset's + is written %2B.",
            "parameters": [
                task,
                {"name": "at", "in": "query", "schema": moment, "description": "moment asked for; now where absent"},
                {"name": "features", "in": "query", "schema": features, "style": "form", "explode": True},
            ],
            "responses": {"200": one_answer, **problems},
        },
        "post": {
            "tags": ["predict"],
            "summary": "Many answers",
            "description": "Rows, each with its `at` (now where absent), or one row's features and many `at`.",
            "parameters": [task],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {
                            "oneOf": [
                                {
                                    "type": "object",
                                    "required": ["rows"],
                                    "properties": {"rows": {"type": "array", "items": row}},
                                },
                                {
                                    "type": "object",
                                    "required": ["features", "at"],
                                    "properties": {"features": features, "at": {"type": "array", "items": moment}},
                                },
                            ]
                        }
                    }
                },
            },
            "responses": {
                "200": {"description": "Answers in order", "content": {"application/json": {"schema": answers}}},
                **problems,
            },
        },
    }


_ANSWER = {
    "type": "object",
    "properties": {
        "task": {"type": "string"},
        "prediction": {"type": ["string", "number"], "description": "the likeliest class, or the mean"},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
        "mean": {"type": "number"},
        "scale": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "lead": {"type": "string", "description": "ISO 8601 duration since trained_until"},
        "expected_error": {"type": ["number", "null"], "description": "mean error at this age; null before the cutoff"},
        "error_name": {"type": "string"},
        "version": {"type": "string"},
        "trained_until": {"type": "string", "format": "date-time"},
        "valid_until": {"type": "string", "format": "date-time"},
    },
}
