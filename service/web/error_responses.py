"""Exceptions to responses: our own errors, those of FastAPI and Starlette, and bugs, each as a problem document."""

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from contracts.clock import format_moment
from contracts.errors import Fault, InvalidInput, MorrowError, OutsideHorizon, TaskRenamed
from contracts.shown import shorten
from service.errors import (
    AnswerNotFinite,
    BodiesFull,
    PreconditionFailed,
    QuotaUsed,
    Throttled,
    UnreadableRequest,
    UnsupportedEncoding,
)
from service.metrics import METHODS, Metrics
from service.validation.names import printable
from service.web.html import accepts_html, answer_page, is_page
from service.web.problems import HTTP_KINDS, KINDS, PROBLEM, Kind, ProblemResponse, write_problem
from service.web.request_ids import request_id_of

MAX_FAULTS = 100
# Faults that a sentence names.
MAX_NAMED = 5

log = structlog.get_logger(__name__)


def problem_of(error: MorrowError) -> ProblemResponse:
    """The problem document of one of our errors."""
    kind = next(KINDS[cls] for cls in type(error).__mro__ if cls in KINDS)
    more: dict[str, Any] = {}
    headers: dict[str, str] = {}
    detail = str(error)
    if isinstance(error, InvalidInput):
        more |= {"errors": error.faults[:MAX_FAULTS], "num_errors": len(error.faults)}
        detail = "; ".join(f"{fault.field}: {fault.reason}" for fault in error.faults[:MAX_NAMED])
        if len(error.faults) > MAX_NAMED:
            detail += f"; and {len(error.faults) - MAX_NAMED} more"
    if isinstance(error, OutsideHorizon):
        more |= {
            "side": error.side,
            "valid_from": format_moment(error.valid_from),
            "valid_until": format_moment(error.valid_until),
            "version": error.version,
        }
        if error.gap is not None:
            more["gap_from"], more["gap_until"] = map(format_moment, error.gap)
    if isinstance(error, TaskRenamed):
        more["task"] = error.new_name
    if isinstance(error, Throttled | QuotaUsed):
        headers["Retry-After"] = str(math.ceil(error.seconds))
    if isinstance(error, PreconditionFailed) and error.etag is not None:
        headers["ETag"] = error.etag
    if isinstance(error, UnsupportedEncoding):
        headers["Accept-Encoding"] = "gzip"
    if isinstance(error, BodiesFull) or (isinstance(error, UnreadableRequest) and error.has_rest):
        headers["Connection"] = "close"
    return write_problem(kind, detail, headers, **more)


def refuse_method(allowed: Sequence[str]) -> Response:
    """The problem document of a method that a path does not accept; HEAD is accepted wherever GET is."""
    methods = [method for method in METHODS if ("GET" if method == "HEAD" else method) in allowed]
    return write_problem(HTTP_KINDS[405], HTTPStatus(405).phrase, {"Allow": ", ".join(methods)})


def respond_to(error: Exception, scope: Scope, metrics: Metrics) -> Response:
    """The problem document of any exception, which is counted or logged if it is our fault."""
    path, request_id = scope["path"], request_id_of(scope)
    if isinstance(error, AnswerNotFinite):
        metrics.not_finite.labels(error.task).inc()
        log.error("answer.not_finite", task=error.task, version=error.version, request_id=request_id)
    if isinstance(error, MorrowError):
        return problem_of(error)
    if isinstance(error, RequestValidationError):
        return problem_of(InvalidInput(_list_invalid_parameters(error)))
    if isinstance(error, HTTPException):
        if error.status_code == 404 and error.detail == HTTPStatus(404).phrase:
            shown = printable(shorten(path))
            return write_problem(HTTP_KINDS[404], f"There is nothing at {shown}: /docs lists the paths of the API.")
        return write_problem(_kind_of_status(error.status_code), error.detail, dict(error.headers or {}))
    log.error("request.failed", method=scope["method"], path=path, request_id=request_id, exc_info=error)
    return write_problem(HTTP_KINDS[500], "The error is in the log.")


def handle_errors(app: FastAPI, metrics: Metrics) -> None:
    """Answer every exception of the framework's routes with a problem document."""

    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:
            return refuse_method(_allowed_methods(request))
        answer = respond_to(error, request.scope, metrics)
        return _show(answer, request) if isinstance(answer, ProblemResponse) else answer

    for kind in (MorrowError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, handle)


def _show(problem: ProblemResponse, request: Request) -> Response:
    """The problem as a page, if a browser opens a page."""
    path = request.url.path
    if not (is_page(path) and accepts_html(request.scope)):
        return problem
    page = answer_page("problem.html", path, problem.status_code, kind=problem.kind, text=problem.detail)
    request.scope.setdefault("state", {})[PROBLEM] = problem.problem
    return page


def _list_invalid_parameters(error: RequestValidationError) -> list[Fault]:
    """Each fault's field and reason only: the input itself may hold values that JSON cannot (NaN, lone surrogates)."""
    faults = (Fault(_name_parameter(fault["loc"]), _say_invalid(fault)) for fault in error.errors()[:MAX_FAULTS])
    return [*dict.fromkeys(faults)]


def _say_invalid(fault: Mapping[str, Any]) -> str:
    """What is wrong with the value of a parameter, with the value and those that it could have."""
    given, context = fault.get("input"), fault.get("ctx", {})
    sentence = _INVALID.get(fault["type"])
    if sentence is None or not isinstance(given, str):
        return str(fault["msg"])
    limits = {name: str(limit).replace("'", "") for name, limit in context.items()}
    return sentence.format(repr(printable(shorten(given))), **limits)


# Types of pydantic's faults in our words.
_INVALID = {
    "literal_error": "is {}, and can be {expected}",
    "bool_parsing": "is {}: write true or false",
    "int_parsing": "is {}: write a whole number, such as 50",
    "int_parsing_size": "is {}: write a smaller number, such as 50",
    "greater_than_equal": "is {}, and must be at least {ge}",
    "less_than_equal": "is {}, and must be at most {le}",
    "string_too_long": "is {}, and can have {max_length} characters at most",
}


def _name_parameter(place: Sequence[str | int]) -> str:
    """The name of a parameter, without the alternatives of its type, such as `literal['a','b']`."""
    return ".".join(
        str(part) for part in place[1:] if not str(part).startswith(("literal[", "nullable", "constrained"))
    )


def _kind_of_status(status: int) -> Kind:
    phrase = HTTPStatus(status).phrase
    return HTTP_KINDS.get(status) or Kind(status, phrase.lower().replace(" ", "-"), phrase)


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes of a path: each method has its own route, which knows no other."""

    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in METHODS if is_taken(method)]
