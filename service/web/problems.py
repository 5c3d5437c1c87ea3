"""Errors to HTTP, in one table: every answer that is not a success is a problem document (RFC 9457).

`type` is stable and is what programs compare; `errors` lists every fault with its field. No answer holds SQL, a host
or a traceback: a bug is a 500 without detail, and its traceback is in the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

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
    TaskArchived,
    TaskLeaving,
    TaskPaused,
    TaskRenamed,
    Unavailable,
)
from service.errors import (
    AnswerNotFinite,
    CoverageUnsupported,
    Forbidden,
    Malformed,
    Overloaded,
    PreconditionFailed,
    QuotaUsed,
    RateRefused,
    Throttled,
    TooLarge,
    TooSlow,
    Unauthenticated,
    UnsupportedContent,
)
from service.validation.json_types import Count, Moment
from service.web.request_ids import request_id_of

MEDIA_TYPE = "application/problem+json"
# Where a refusal leaves its problem type in the state of a request's scope.
PROBLEM = "morrow.problem"


@dataclass(frozen=True)
class Kind:
    """One type of problem; `retry_after` is in seconds, if a retry may help."""

    status: int
    name: str
    title: str
    retry_after: int | None = None


HTTP_KINDS = {
    400: Kind(400, "malformed", "The request cannot be read"),
    404: Kind(404, "no-such-path", "There is nothing at this path"),
    405: Kind(405, "method-not-allowed", "The path does not take this method"),
    408: Kind(408, "too-slow", "The request came too slowly"),
    413: Kind(413, "too-large", "The request is too large"),
    415: Kind(415, "unsupported-content", "The content cannot be taken"),
    431: Kind(431, "head-too-large", "The head of the request is too large"),
    500: Kind(500, "internal", "Morrow made a mistake"),
    501: Kind(501, "unsupported-transfer", "The body's transfer coding is not supported"),
}

KINDS: dict[type[MorrowError], Kind] = {
    InvalidInput: Kind(422, "invalid-input", "The input breaks a rule"),
    OutsideHorizon: Kind(422, "outside-horizon", "The moment is outside the validated horizon"),
    CoverageUnsupported: Kind(422, "coverage-unsupported", "Too few scored rows support the coverage"),
    NotFound: Kind(404, "not-found", "There is no such thing"),
    PreconditionFailed: Kind(412, "precondition-failed", "A precondition does not hold"),
    TaskRenamed: Kind(404, "task-renamed", "The task has another name"),
    Conflict: Kind(409, "conflict", "The present state does not allow this"),
    TaskPaused: Kind(409, "task-paused", "The task is paused"),
    TaskArchived: Kind(409, "task-archived", "The task is archived"),
    TaskLeaving: Kind(409, "task-leaving", "A task that had this name is still leaving", 10),
    NotReady: Kind(503, "not-ready", "Nothing can answer yet", 10),
    NoModel: Kind(503, "no-model", "No version has been released yet", 10),
    NotLoaded: Kind(503, "not-loaded", "The released version is not loaded here yet", 2),
    ModelExpired: Kind(503, "model-expired", "The released version is past its horizon", 10),
    Unavailable: Kind(503, "unavailable", "A store does not answer", 1),
    Overloaded: Kind(503, "overloaded", "More is asked than can be answered", 1),
    RateRefused: Kind(503, "rate-refused", "This version cannot give rates", 60),
    Unauthenticated: Kind(401, "unauthenticated", "The request needs a valid key"),
    Forbidden: Kind(403, "forbidden", "The key does not allow this"),
    QuotaUsed: Kind(429, "quota-used", "The task has used its quota"),
    Throttled: Kind(429, "throttled", "The key has sent too many requests"),
    Malformed: HTTP_KINDS[400],
    TooSlow: HTTP_KINDS[408],
    TooLarge: HTTP_KINDS[413],
    UnsupportedContent: HTTP_KINDS[415],
    AnswerNotFinite: Kind(500, "answer-not-finite", "The model gave no finite answer"),
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was not answered (RFC 9457)."""

    type: Annotated[
        str,
        Meta(description="stable: what programs compare", extra_json_schema={"pattern": "^/problems/[a-z-]+$"}),
    ]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    errors: Annotated[Sequence[Fault] | UnsetType, Meta(description="the first faults, each with its field")] = UNSET
    num_errors: Annotated[Count | UnsetType, Meta(description="of all faults")] = UNSET
    side: Annotated[
        Literal["before", "beyond", "between"] | UnsetType,
        Meta(description="where the moment lies: before the horizon, beyond it, or in a gap between rows"),
    ] = UNSET
    gap_from: Annotated[Moment | UnsetType, Meta(description="start of the gap that holds the moment")] = UNSET
    gap_until: Moment | UnsetType = UNSET
    valid_from: Moment | UnsetType = UNSET
    valid_until: Moment | UnsetType = UNSET
    version: str | UnsetType = UNSET
    task: Annotated[str | UnsetType, Meta(description="the present name of a task that was renamed")] = UNSET
    request_id: Annotated[
        str | UnsetType, Meta(description="of the header X-Request-Id, and of the record in the access log")
    ] = UNSET


class ProblemResponse(Response):
    """A problem document with the id of its request. It leaves its type in the request's scope for the access log."""

    def __init__(self, content: bytes, kind: Kind, detail: str, headers: dict[str, str]) -> None:
        super().__init__(content, kind.status, headers, MEDIA_TYPE)
        self.problem = f"/problems/{kind.name}"
        self.kind, self.detail = kind, detail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})[PROBLEM] = self.problem
        members = _say_in_protocol(scope["path"], self.status_code, self.detail)
        if (request_id := request_id_of(scope)) is not None:
            members["request_id"] = request_id
        if members:
            self.add(members)
        await super().__call__(scope, receive, send)

    def add(self, members: dict[str, str]) -> None:
        """Add members to the document."""
        self.body = msgspec.json.encode(msgspec.json.decode(self.body) | members)
        self.headers["Content-Length"] = str(len(self.body))


def _say_in_protocol(path: str, status: int, detail: str) -> dict[str, str]:
    """The members by which clients of another protocol read a refusal at one of its paths; none at our own."""
    if path == "/v2" or path.startswith("/v2/"):
        return {"error": detail}
    if path.endswith("/invocations"):
        return {"error_code": _MLFLOW_CODES.get(status, "BAD_REQUEST"), "message": detail}
    return {}


_MLFLOW_CODES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    429: "REQUEST_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
    503: "TEMPORARILY_UNAVAILABLE",
}


def write_problem(kind: Kind, detail: str, headers: dict[str, str] | None = None, **more: Any) -> ProblemResponse:
    """A problem document; `more` are its optional members."""
    problem = Problem(type=f"/problems/{kind.name}", title=kind.title, status=kind.status, detail=detail, **more)
    headers = {"Cache-Control": "no-store", **(headers or {})}  # the same request may be answered a moment later
    if kind.retry_after is not None:
        headers["Retry-After"] = str(kind.retry_after)
    return ProblemResponse(msgspec.json.encode(problem), kind, detail, headers)
