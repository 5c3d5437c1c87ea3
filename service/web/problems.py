"""Errors to HTTP, in one table: every answer that is not a success is a problem document (RFC 9457).

`type` is stable and is what programs compare; `errors` lists every fault with its field. No answer holds SQL, a host
or a traceback: a bug is a 500 without detail, and its traceback is in the log.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from contracts.clock import format_moment
from contracts.errors import (
    Conflict,
    Fault,
    InvalidInput,
    ModelExpired,
    MorrowError,
    NoModel,
    NotFound,
    NotLoaded,
    NotReady,
    OutsideHorizon,
    Unavailable,
)
from service.metrics import METHODS, Metrics
from service.models.answer import AnswerNotFinite
from service.models.conformal import CoverageUnsupported
from service.models.sessions import RateRefused
from service.predict.endpoint import Overloaded
from service.web.api_keys import Forbidden, Throttled, Unauthenticated

MAX_FAULTS = 100
MEDIA_TYPE = "application/problem+json"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Kind:
    """One type of problem; `retry_after` in seconds where trying again may help."""

    status: int
    name: str
    title: str
    retry_after: int | None = None


KINDS: dict[type[MorrowError], Kind] = {
    InvalidInput: Kind(422, "invalid-input", "The input breaks a rule"),
    OutsideHorizon: Kind(422, "outside-horizon", "The moment is outside the validated horizon"),
    CoverageUnsupported: Kind(422, "coverage-unsupported", "Too few scored rows support the coverage"),
    NotFound: Kind(404, "not-found", "There is no such thing"),
    Conflict: Kind(409, "conflict", "This contradicts what is stored"),
    NotReady: Kind(503, "not-ready", "Nothing can answer yet", 10),
    NoModel: Kind(503, "no-model", "No version has been released yet", 10),
    NotLoaded: Kind(503, "not-loaded", "The released version is not loaded here yet", 2),
    ModelExpired: Kind(503, "model-expired", "The released version is past its horizon", 10),
    Unavailable: Kind(503, "unavailable", "A store does not answer", 1),
    Overloaded: Kind(503, "overloaded", "More is asked than can be answered", 1),
    RateRefused: Kind(503, "rate-refused", "This version cannot give rates", 60),
    Unauthenticated: Kind(401, "unauthenticated", "The request needs a valid key"),
    Forbidden: Kind(403, "forbidden", "The key does not allow this"),
    Throttled: Kind(429, "throttled", "The key asks too often"),
    AnswerNotFinite: Kind(500, "answer-not-finite", "The model gave no finite answer"),
}

HTTP_KINDS = {
    400: Kind(400, "malformed", "The request cannot be read"),
    404: Kind(404, "no-such-path", "There is nothing at this path"),
    405: Kind(405, "method-not-allowed", "The path does not take this method"),
    408: Kind(408, "too-slow", "The request came too slowly"),
    413: Kind(413, "too-large", "The request is too large"),
    415: Kind(415, "unsupported-content", "The content cannot be taken"),
    431: Kind(431, "head-too-large", "The head of the request is too large"),
    500: Kind(500, "internal", "Morrow made a mistake"),
}


def problem_of(error: MorrowError) -> Response:
    """The problem document of one of our errors."""
    kind = next(KINDS[cls] for cls in type(error).__mro__ if cls in KINDS)
    more: dict[str, Any] = {}
    detail = str(error)
    if isinstance(error, InvalidInput):
        more |= list_faults(error.faults)
        detail = "; ".join(f"{fault['field']}: {fault['reason']}" for fault in more["errors"][:5])
    if isinstance(error, OutsideHorizon):
        more |= {
            "side": error.side,
            "valid_from": format_moment(error.valid_from),
            "valid_until": format_moment(error.valid_until),
            "version": error.version,
        }
    headers = {"Retry-After": str(math.ceil(error.seconds))} if isinstance(error, Throttled) else None
    return write_problem(kind, detail, headers, **more)


def list_faults(faults: Sequence[Fault]) -> dict[str, Any]:
    """The members `errors`, of the first faults, and `num_errors`, of all."""
    shown = [{"field": fault.field, "reason": fault.reason} for fault in faults[:MAX_FAULTS]]
    return {"errors": shown, "num_errors": len(faults)}


def write_problem(kind: Kind, detail: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """A problem document; `more` are members of its own."""
    document = {"type": f"/problems/{kind.name}", "title": kind.title, "status": kind.status, "detail": detail, **more}
    headers = dict(headers or {})
    if kind.retry_after is not None:
        headers["Retry-After"] = str(kind.retry_after)
    return Response(msgspec.json.encode(document), kind.status, headers, MEDIA_TYPE)


def handle_problems(app: FastAPI, metrics: Metrics) -> None:
    """Answer every exception of the app with a problem document."""

    async def on_answer_not_finite(_request: Request, error: Exception) -> Response:
        assert isinstance(error, AnswerNotFinite)
        metrics.not_finite.labels(error.task).inc()
        log.error("answer.not_finite", task=error.task, version=error.version)
        return problem_of(error)

    app.add_exception_handler(AnswerNotFinite, on_answer_not_finite)
    app.add_exception_handler(MorrowError, _on_morrow_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_bug)


async def _on_morrow_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MorrowError)
    return problem_of(error)


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    """Only place, and reason: the input itself may hold what JSON cannot (NaN, lone surrogates)."""
    assert isinstance(error, RequestValidationError)
    faults = [Fault(".".join(map(str, fault["loc"][1:])), fault["msg"]) for fault in error.errors()[:MAX_FAULTS]]
    return problem_of(InvalidInput(faults))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    kind = HTTP_KINDS.get(error.status_code)
    kind = kind or Kind(error.status_code, phrase.lower().replace(" ", "-"), phrase)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed_methods(request))
    return write_problem(kind, error.detail, headers)


def _allowed_methods(request: Request) -> list[str]:
    """What all routes of a path take together: each verb has a route of its own, which knows of no other."""

    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    # The app answers HEAD as GET, and no route knows of it.
    return [method for method in METHODS if is_taken("GET" if method == "HEAD" else method)]


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("request.failed", method=request.method, path=request.url.path, exc_info=error)
    return write_problem(HTTP_KINDS[500], "The error is in the log.")
