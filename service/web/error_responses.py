"""Exceptions to responses: our errors, FastAPI's and Starlette's, and bugs, each as a problem document."""

import math
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from contracts.clock import format_moment
from contracts.errors import Fault, InvalidInput, MorrowError, OutsideHorizon
from service.errors import AnswerNotFinite, Throttled
from service.metrics import METHODS, Metrics
from service.web.problems import HTTP_KINDS, KINDS, Kind, write_problem

MAX_FAULTS = 100

log = structlog.get_logger(__name__)


def problem_of(error: MorrowError) -> Response:
    """The problem document of one of our errors."""
    kind = next(KINDS[cls] for cls in type(error).__mro__ if cls in KINDS)
    more: dict[str, Any] = {}
    detail = str(error)
    if isinstance(error, InvalidInput):
        more |= {"errors": error.faults[:MAX_FAULTS], "num_errors": len(error.faults)}
        detail = "; ".join(f"{fault.field}: {fault.reason}" for fault in error.faults[:5])
    if isinstance(error, OutsideHorizon):
        more |= {
            "side": error.side,
            "valid_from": format_moment(error.valid_from),
            "valid_until": format_moment(error.valid_until),
            "version": error.version,
        }
    headers = {"Retry-After": str(math.ceil(error.seconds))} if isinstance(error, Throttled) else None
    return write_problem(kind, detail, headers, **more)


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
