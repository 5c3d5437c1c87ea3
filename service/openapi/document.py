"""The OpenAPI document, completed by what raw paths, bodies read by hand and middleware cannot tell FastAPI.

What each operation takes and answers stands here in one table, from `service.openapi.schemas`; which problems it
may meet follows from what it is: whether it needs a key, takes a body, names a task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.admin import answers
from service.ingest.endpoint import CorrectionResult, IngestResult
from service.models.answer import Answer, Answers
from service.openapi.schemas import describe_components
from service.web.auth import HEALTH, PUBLIC, needed_scope
from service.web.bodies import JSON, NDJSON
from service.web.json_schema import GIVEN_MOMENT, Shape, many, ref, text
from service.web.problems import HTTP_KINDS, MEDIA_TYPE, Problem


@dataclass(frozen=True)
class Operation:
    """An operation's id, which clients name a function after; its answers by status, and its bodies by media type."""

    id: str
    answers: Mapping[int, type[msgspec.Struct]] = field(default_factory=dict)
    body: Mapping[str, Shape] | None = None
    needs_body: bool = True


def _json(shape: Shape, **more: Any) -> dict[str, Shape]:
    """A body of this shape."""
    return {JSON: {"schema": shape, **more}}


def _either(*names: str) -> Shape:
    """A body of exactly one of these components."""
    return {"oneOf": [ref(name) for name in names]}


_EVENT = {
    "event_id": "UA-1545-EWR-2013-01-01",
    "at": "2013-01-01T05:00:00-05:00",
    "features": {"carrier": "UA", "distance": 1400},
    "label": "on_time",
}
_REFUSED_ROW = {"description": "anything else is kept and refused in the result of its row"}
_EVENTS = {"oneOf": [ref("Event"), many({"anyOf": [ref("Event"), _REFUSED_ROW]})]}
_LINES = {NDJSON: {"schema": {"type": "string", "description": "one event a line"}}}

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("get", "/predict"): Operation("predict", {200: Answer}),
    ("post", "/predict"): Operation("predictMany", {200: Answers}, _json(_either("Rows", "RowAtMoments"))),
    ("post", "/events"): Operation("storeEvents", {200: IngestResult}, _json(_EVENTS, example=_EVENT) | _LINES),
    ("put", "/events/{event_id}"): Operation(
        "correctEvent", {200: CorrectionResult}, _json(ref("Correction"), example={**_EVENT, "label": "late"})
    ),
    ("get", "/tasks"): Operation("listTasks", {200: answers.Tasks}),
    ("get", "/tasks/{task}"): Operation("getTask", {200: answers.TaskStatus}),
    ("put", "/tasks/{task}"): Operation(
        "defineTask", {200: answers.TaskDefined, 201: answers.TaskDefined}, _json(ref("TaskDefinition"))
    ),
    ("get", "/tasks/{task}/models/{version}"): Operation("getModel", {200: answers.Model}),
    ("get", "/tasks/{task}/cycles"): Operation("listCycles", {200: answers.Cycles}),
    ("post", "/tasks/{task}/cycles"): Operation(
        "requestCycle", {202: answers.Cycle}, _json(ref("CycleRequest")), needs_body=False
    ),
    ("get", "/tasks/{task}/releases"): Operation("listReleases", {200: answers.Releases}),
    ("post", "/tasks/{task}/rollback"): Operation("rollBack", {200: answers.Release}, _json(ref("RollbackRequest"))),
    ("post", "/tasks/{task}/override"): Operation(
        "overrideVerdict",
        {200: answers.Release, 202: answers.Cycle},
        _json(_either("HorizonOverride", "CycleOverride")),
    ),
    ("get", "/tasks/{task}/erasures"): Operation("listErasures", {200: answers.Erasures}),
    ("post", "/tasks/{task}/erasures"): Operation(
        "eraseEvents", {200: answers.ErasureResult}, _json(ref("ErasureRequest"))
    ),
    ("get", "/livez"): Operation("getLiveness", {200: answers.Liveness}),
    ("get", "/readyz"): Operation("getReadiness", {200: answers.Readiness, 503: answers.Readiness}),
    ("get", "/metrics"): Operation("getMetrics"),
}
_DEFINE = ("put", "/tasks/{task}")
# Paths that take no parameter and tell of one process only: nothing about a request to them can be wrong.
_PLAIN = HEALTH | PUBLIC["metrics"]
_SECONDS = {"description": "seconds after which trying again may help", "schema": {"type": "integer", "minimum": 0}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "how a key is sent", "schema": {"type": "string"}, "required": True}},
    429: {"Retry-After": _SECONDS | {"required": True}},
    503: {"Retry-After": _SECONDS | {"required": True}},
}
# What FastAPI says where a parameter breaks a rule, in a form that is not ours.
_UNTOLD = "Validation Error"
_REASONS = {
    401: "The request needs a valid key",
    404: "There is no such task, version or event",
    422: "A parameter or the body breaks a rule: `errors` names each field",
    429: "The key asks too often",
    503: "A store does not answer, or no key is known yet",
}
_KEYS = {
    "key": {"type": "http", "scheme": "bearer", "description": "Needed as soon as there is a key: morrow-…"},
    "password": {"type": "http", "scheme": "basic", "description": "The key as the password, under any name"},
}


def describe(app: FastAPI) -> None:
    """Let the app tell the whole document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = write_document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def write_document(app: FastAPI) -> dict[str, Any]:
    """The document of an app's routes."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    document["paths"] = {"/predict": _predict_path_item(), **_events_path_items(), **document["paths"]}
    bodies = [body for operation in OPERATIONS.values() for body in operation.answers.values()]
    document["components"] = {"schemas": describe_components([*bodies, Problem]), "securitySchemes": _KEYS}
    for path, verbs in document["paths"].items():
        for verb, told in verbs.items():
            _complete(told, verb, path)
    return document


def _complete(told: dict[str, Any], verb: str, path: str) -> None:
    operation = OPERATIONS[verb, path]
    told["operationId"] = operation.id
    for parameter in told.get("parameters", []):
        parameter["schema"].pop("title", None)  # FastAPI's, which may be the title of a component
    if operation.body is not None:
        told["requestBody"] = {"required": operation.needs_body, "content": dict(operation.body)}
    responses = {status: one for status, one in told["responses"].items() if one["description"] != _UNTOLD}
    for status, answer in operation.answers.items():
        responses[str(status)]["content"] = {JSON: {"schema": ref(answer.__name__)}}
    for status, reason in _problems_of(told, verb, path).items():
        responses.setdefault(str(status), {"description": reason})
    for status, response in responses.items():
        if int(status) >= 400 and int(status) not in operation.answers:
            response["content"] = {MEDIA_TYPE: {"schema": ref("Problem")}}
            if int(status) in _HEADERS:
                response["headers"] = _HEADERS[int(status)]
    told["responses"] = dict(sorted(responses.items()))
    told["security"] = [] if path in HEALTH else [{name: []} for name in _KEYS]


def _problems_of(told: Mapping[str, Any], verb: str, path: str) -> dict[int, str]:
    """The problems that follow from what an operation is, with their reasons."""
    statuses: set[int] = set()
    scope = needed_scope(verb.upper(), path)
    if path not in HEALTH:
        statuses |= {401, 429, 503}
    if path not in _PLAIN:
        statuses.add(422)
    if path == "/predict":
        statuses.add(400)
    if "requestBody" in told:
        statuses |= {400, 408, 413, 415}
    if any(parameter["name"] == "task" for parameter in told.get("parameters", [])) and (verb, path) != _DEFINE:
        statuses.add(404)
    reasons = {status: _REASONS.get(status) or HTTP_KINDS[status].title for status in statuses}
    if path not in HEALTH and scope is not None:
        reasons[403] = f"The key does not hold the scope {scope}, or a page of another site asks"
    return reasons


def _events_path_items() -> dict[str, Any]:
    """The paths of events, which are no routes of FastAPI's either."""
    unavailable = {"description": "The database does not answer: nothing was stored, send it again"}
    event_id = {
        "name": "event_id",
        "in": "path",
        "required": True,
        "schema": text(),
        "description": "id of an event that is stored",
    }
    post = {
        "tags": ["events"],
        "summary": "Store labelled events",
        "description": "One event object, or an array of them, which is answered 200 with a result for each row. A "
        "body of `application/x-ndjson` holds one event a line and may be of any length: it is stored piece by piece, "
        "and answered with counts and the results of lines that were not created, the first thousand. Any body may "
        "come with `Content-Encoding: gzip`.",
        "parameters": [_TASK, _ATOMIC],
        "responses": {
            "200": {"description": "A result for each row"},
            "409": {"description": "The one event, or with atomic any, contradicts what is stored, or is erased"},
            "422": {"description": "The one event, or with atomic any, breaks a rule"},
            "503": unavailable,
        },
    }
    put = {
        "tags": ["events"],
        "summary": "Correct an event",
        "description": "The whole event as it should be; `event_id` may be left out. It becomes a new revision that "
        "counts from the moment at which it is received, whatever its `known_at`: what was trained before can still be "
        "rebuilt. A correction that breaks a rule is kept with its reason, unless its id is not that of the path: it "
        "is then nobody's row.",
        "parameters": [event_id, _TASK],
        "responses": {
            "200": {"description": "The correction is stored, or says what is stored already"},
            "404": {"description": "There is no such event"},
            "409": {"description": "The event is erased"},
            "422": {"description": "The correction breaks a rule"},
            "503": unavailable,
        },
    }
    return {"/events": {"post": post}, "/events/{event_id}": {"put": put}}


def _predict_path_item() -> dict[str, Any]:
    """The path of questions, which is no route of FastAPI's."""
    problems = {
        "422": {
            "description": "A parameter or the body breaks a rule, `at` is outside the horizon (`side` says whether "
            "before the first row of training or beyond what is validated), or too few scored rows support the "
            "coverage: see `type`"
        },
        "500": {"description": "The model gave no finite answer to these rows; counted in the metrics"},
        "503": {
            "description": "No version has been released, `at` was left out and the version has expired, this "
            "version cannot give rates, or too many batches wait for a thread"
        },
    }
    at = {"name": "at", "in": "query", "schema": GIVEN_MOMENT, "description": "moment asked for; now where absent"}
    features = {
        "name": "features",
        "in": "query",
        "schema": ref("FeaturesInQuery"),
        "style": "form",
        "explode": True,
        "description": "each feature under its own name, never under this one",
    }
    return {
        "get": {
            "tags": ["predict"],
            "summary": "One answer",
            "description": "Each feature is a parameter of its own name. An offset's + is written %2B.",
            "parameters": [*_OPTIONS, at, features],
            "responses": {"200": {"description": "The answer"}, **problems},
        },
        "post": {
            "tags": ["predict"],
            "summary": "Many answers",
            "description": "Rows, each with its `at` (now where absent), or one row's features and many `at`; "
            "at most 100 with `rate`.",
            "parameters": _OPTIONS,
            "responses": {"200": {"description": "Answers in order"}, **problems},
        },
    }


_TASK: Shape = {
    "name": "task",
    "in": "query",
    "schema": {"type": "string"},
    "description": "may be left out while there is one task",
}
_ATOMIC: Shape = {
    "name": "atomic",
    "in": "query",
    "schema": {"type": "boolean", "default": False},
    "description": "store all rows or none",
}
_OPTIONS: list[Shape] = [
    _TASK,
    {
        "name": "coverage",
        "in": "query",
        "schema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "description": "how often `interval` or `prediction_set` is to hold the truth",
    },
    {
        "name": "rate",
        "in": "query",
        "schema": {"type": "boolean", "default": False},
        "description": "whether the answer says how fast it changes, and when the prediction flips",
    },
]
