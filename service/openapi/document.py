"""The OpenAPI document: FastAPI's, completed by what FastAPI cannot know.

One table lists the id, bodies and answers of each operation. Its problems follow from what it is: whether it needs a
key, takes a body or names a task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.admin import answers, hooks
from service.admin.predictions import LoggedAnswer
from service.admin.stored_events import event_answers
from service.admin.stored_events.events import ListedEvents
from service.ingest.endpoint import CorrectionResult, IngestResult
from service.ingest.labels import LabelsResult
from service.ingest.stored_event import EventFound
from service.models.answer import Answer, Answers
from service.openapi.examples import read_examples, show_example
from service.openapi.json_schema import Shape, many, ref
from service.openapi.raw_paths import describe_raw_paths
from service.openapi.schemas import describe_components
from service.web.auth import HEALTH, PUBLIC, needed_scope
from service.web.bodies import JSON
from service.web.problems import HTTP_KINDS, MEDIA_TYPE, Problem


@dataclass(frozen=True)
class Operation:
    """An operation's id, after which clients name a function; its answers by status and its bodies by media type."""

    id: str
    answers: Mapping[int, type[msgspec.Struct]] = field(default_factory=dict)
    body: Mapping[str, Shape] | None = None
    needs_body: bool = True


def _json(shape: Shape) -> dict[str, Shape]:
    """A body of this shape."""
    return {JSON: {"schema": shape}}


def _either(*names: str) -> Shape:
    """A body of exactly one of these components."""
    return {"oneOf": [ref(name) for name in names]}


_REFUSED_ROW = {"description": "anything else is stored as a refused row, with the reasons in its result"}
_EVENTS = {
    "oneOf": [
        ref("Event"),
        ref("UnlabelledEvent"),
        many({"anyOf": [ref("Event"), ref("UnlabelledEvent"), _REFUSED_ROW]}),
    ]
}
_ONE_LABEL = (ref("LabelOfEvent"), ref("LabelOfAnswer"))
_LABELS = {"oneOf": [*_ONE_LABEL, many({"anyOf": [*_ONE_LABEL, _REFUSED_ROW]})]}

_CHANGE = _json(ref("ChangeRequest"))

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("get", "/predict"): Operation("predict", {200: Answer}),
    ("post", "/predict"): Operation("predictMany", {200: Answers}, _json(_either("Rows", "RowAtMoments"))),
    ("post", "/events"): Operation("storeEvents", {200: IngestResult}, _json(_EVENTS)),
    ("get", "/events/{event_id}"): Operation("getEvent", {200: EventFound}),
    ("put", "/events/{event_id}"): Operation(
        "correctEvent", {200: CorrectionResult}, _json(_either("Correction", "UnlabelledCorrection"))
    ),
    ("get", "/predictions/{prediction_id}"): Operation("getPrediction", {200: LoggedAnswer}),
    ("post", "/tasks/{task}/labels"): Operation("storeLabels", {200: LabelsResult}, _json(_LABELS)),
    ("get", "/tasks"): Operation("listTasks", {200: answers.Tasks}),
    ("get", "/tasks/{task}"): Operation("getTask", {200: answers.TaskStatus}),
    ("put", "/tasks/{task}"): Operation(
        "defineTask", {200: answers.TaskDefined, 201: answers.TaskDefined}, _json(ref("TaskDefinition"))
    ),
    ("get", "/tasks/{task}/models/{version}"): Operation("getModel", {200: answers.Model}),
    ("get", "/tasks/{task}/cycles"): Operation("listCycles", {200: answers.Cycles}),
    ("post", "/tasks/{task}/cycles"): Operation(
        "requestCycle", {202: answers.CycleRequested}, _json(ref("CycleRequest")), needs_body=False
    ),
    ("get", "/tasks/{task}/releases"): Operation("listReleases", {200: answers.Releases}),
    ("post", "/tasks/{task}/rollback"): Operation(
        "rollBack", {200: answers.ReleaseRecorded}, _json(ref("RollbackRequest"))
    ),
    ("post", "/tasks/{task}/override"): Operation(
        "overrideVerdict",
        {200: answers.ReleaseRecorded, 202: answers.Cycle},
        _json(_either("HorizonOverride", "CycleOverride")),
    ),
    ("get", "/tasks/{task}/erasures"): Operation("listErasures", {200: event_answers.Erasures}),
    ("post", "/tasks/{task}/erasures"): Operation(
        "eraseEvents", {200: event_answers.ErasureResult}, _json(ref("ErasureRequest"))
    ),
    ("get", "/tasks/{task}/events"): Operation("listEvents", {200: ListedEvents}),
    ("get", "/tasks/{task}/imports"): Operation("listImports", {200: event_answers.Imports}),
    ("post", "/tasks/{task}/imports"): Operation(
        "beginImport", {201: event_answers.Import}, _json(ref("ImportRequest"))
    ),
    ("get", "/tasks/{task}/imports/{import}"): Operation("getImport", {200: event_answers.ImportContent}),
    ("post", "/tasks/{task}/imports/{import}/retract"): Operation(
        "retractImport", {200: event_answers.ImportContent}, _json(ref("RetractionRequest"))
    ),
    ("get", "/tasks/{task}/versions/{version}/rows"): Operation("listFitRows", {200: event_answers.FitRows}),
    ("get", "/tasks/{task}/events/{event_id}/versions"): Operation(
        "listEventVersions", {200: event_answers.EventVersions}
    ),
    ("delete", "/tasks/{task}"): Operation("deleteTask", {202: answers.TaskChanged}),
    ("get", "/tasks/{task}/contents"): Operation("countContents", {200: answers.TaskContents}),
    ("get", "/tasks/{task}/changes"): Operation("listChanges", {200: answers.TaskChanges}),
    ("post", "/tasks/{task}/pause"): Operation("pauseTask", {200: answers.TaskChanged}, _CHANGE, needs_body=False),
    ("post", "/tasks/{task}/resume"): Operation("resumeTask", {200: answers.TaskChanged}, _CHANGE, needs_body=False),
    ("post", "/tasks/{task}/archive"): Operation("archiveTask", {200: answers.TaskChanged}, _CHANGE, needs_body=False),
    ("post", "/tasks/{task}/unarchive"): Operation(
        "unarchiveTask", {200: answers.TaskChanged}, _CHANGE, needs_body=False
    ),
    ("post", "/tasks/{task}/rename"): Operation("renameTask", {200: answers.TaskChanged}, _json(ref("RenameRequest"))),
    ("get", "/hooks"): Operation("listHooks", {200: hooks.Hooks}),
    ("post", "/hooks"): Operation("addHook", {201: hooks.HookAdded}, _json(ref("HookRequest"))),
    ("delete", "/hooks/{hook}"): Operation("removeHook", {200: hooks.HookState}),
    ("get", "/hooks/{hook}/events"): Operation("listHookEvents", {200: hooks.HookEvents}),
    ("post", "/hooks/{hook}/test"): Operation(
        "testHook", {202: hooks.HookTested}, _json(ref("HookActionRequest")), needs_body=False
    ),
    ("post", "/hooks/{hook}/retry"): Operation(
        "retryDeadLetters", {200: hooks.HookRetried}, _json(ref("HookActionRequest")), needs_body=False
    ),
    ("get", "/livez"): Operation("getLiveness", {200: answers.Liveness}),
    ("get", "/readyz"): Operation("getReadiness", {200: answers.Readiness, 503: answers.Readiness}),
    ("get", "/metrics"): Operation("getMetrics"),
}
_DEFINE = ("put", "/tasks/{task}")
# Paths without parameters, about one process only: a request to them cannot be wrong.
_PLAIN = HEALTH | PUBLIC["metrics"]
_SECONDS = {"description": "seconds after which a retry may help", "schema": {"type": "integer", "minimum": 0}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "how to send a key", "schema": {"type": "string"}, "required": True}},
    429: {"Retry-After": _SECONDS | {"required": True}},
    503: {"Retry-After": _SECONDS | {"required": True}},
}
_REQUEST_ID = {
    "description": "id of the request, also in the access log: that of the request's own X-Request-Id, or a new one",
    "schema": {"type": "string"},
}
# FastAPI's own description of a 422, whose form is not ours.
_FASTAPI_422 = "Validation Error"
_REASONS = {
    401: "The request needs a valid key",
    404: "There is no such task, version, event, logged prediction or hook",
    409: "The task is archived or paused, or a task of this name is being deleted",
    422: "A parameter or the body breaks a rule: `errors` names each field",
    429: "The key has sent too many requests, or the task has used its quota",
    503: "A store does not answer, or no key is known yet",
}
_KEYS = {
    "key": {"type": "http", "scheme": "bearer", "description": "Required once there is a key: morrow-…"},
    "password": {"type": "http", "scheme": "basic", "description": "The key as the password, with any name"},
}


def describe(app: FastAPI) -> None:
    """Let the app return the whole document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = write_document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def write_document(app: FastAPI) -> dict[str, Any]:
    """The document of an app's routes."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    document["paths"] = {**describe_raw_paths(), **document["paths"]}
    bodies = [body for operation in OPERATIONS.values() for body in operation.answers.values()]
    document["components"] = {
        "schemas": describe_components([*bodies, Problem]),
        "headers": {"RequestId": _REQUEST_ID},
        "securitySchemes": _KEYS,
    }
    for path, verbs in document["paths"].items():
        for verb, described in verbs.items():
            _complete(described, verb, path)
    return document


def _complete(described: dict[str, Any], verb: str, path: str) -> None:
    operation = OPERATIONS[verb, path]
    described["operationId"] = operation.id
    for parameter in described.get("parameters", []):
        parameter["schema"].pop("title", None)  # FastAPI's title may be that of a component
        given = [kind for kind in parameter["schema"].get("anyOf", ()) if kind != {"type": "null"}]
        if len(given) == 1:  # no address can hold null
            parameter["schema"] = {**given[0], **{n: s for n, s in parameter["schema"].items() if n != "anyOf"}}
    if operation.body is not None:
        described["requestBody"] = {"required": operation.needs_body, "content": dict(operation.body)}
    responses = {
        int(status): response
        for status, response in described["responses"].items()
        if response["description"] != _FASTAPI_422
    }
    for status, reason in _problems_of(described, verb, path).items():
        responses.setdefault(status, {"description": reason})
    described["responses"] = {
        str(status): _complete_response(responses[status], operation, status) for status in sorted(responses)
    }
    described["security"] = [] if path in HEALTH else [{name: []} for name in _KEYS]
    show_example(described, path, read_examples()[operation.id])


def _complete_response(response: Shape, operation: Operation, status: int) -> Shape:
    """A response with its headers and its body."""
    headers = response.get("headers", {}) | _HEADERS.get(status, {})
    headers["X-Request-Id"] = {"$ref": "#/components/headers/RequestId"}
    return response | _content_of(operation, status) | {"headers": headers}


def _content_of(operation: Operation, status: int) -> Shape:
    """The body of a response."""
    answer = operation.answers.get(status)
    if answer is not None:
        return {"content": {JSON: {"schema": ref(answer.__name__)}}}
    if status == 200 and not operation.answers:
        return {"content": {"text/plain": {"schema": {"type": "string"}}}}
    return {} if status < 400 else {"content": {MEDIA_TYPE: {"schema": ref("Problem")}}}


def _problems_of(described: Mapping[str, Any], verb: str, path: str) -> dict[int, str]:
    """The problems that an operation may answer, with their reasons."""
    statuses: set[int] = set()
    scope = needed_scope(verb.upper(), path)
    if path not in HEALTH:
        statuses |= {401, 429, 503}
    if path not in _PLAIN:
        statuses.add(422)
    if path == "/predict":
        statuses |= {400, 409}
    if "requestBody" in described:
        statuses |= {400, 408, 413, 415}
    if _names_something(described) and (verb, path) != _DEFINE:
        statuses.add(404)
    reasons = {status: _REASONS.get(status) or HTTP_KINDS[status].title for status in statuses}
    if path not in HEALTH and scope is not None:
        reasons[403] = f"The key lacks the scope {scope}, or a page of another site sent the request"
    return reasons


def _names_something(described: Mapping[str, Any]) -> bool:
    """Whether an operation is about a task, a logged answer or a hook, which may not be there."""
    return any(parameter["name"] in ("task", "prediction_id", "hook") for parameter in described.get("parameters", []))
