"""The paths of /predict and /events, which are raw ASGI applications and so unknown to FastAPI."""

from contracts.spec.spec_values import IDENTIFIER
from service.openapi.json_schema import MOMENT, Shape, ref, text

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
_IMPORT: Shape = {
    "name": "import",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10**18},
    "description": "id of an import that the rows belong to",
}
_COVERAGE: Shape = {
    "name": "coverage",
    "in": "query",
    "schema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "description": "share of truths that `interval` or `prediction_set` must hold",
}
_RATE: Shape = {
    "name": "rate",
    "in": "query",
    "schema": {"type": "boolean", "default": False},
    "description": "whether to answer how fast the prediction changes, and when it becomes another",
}
_AT: Shape = {
    "name": "at",
    "in": "query",
    "schema": MOMENT,
    "description": "moment of the prediction; now if left out",
}
_FEATURES: Shape = {
    "name": "features",
    "in": "query",
    "schema": ref("FeaturesInQuery"),
    "style": "form",
    "explode": True,
    "description": "each feature is a parameter of its own name",
}
_IF_NONE_MATCH: Shape = {
    "name": "If-None-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "the ETag of an answer to the same question: 304 says that it still holds",
}
_CACHE_CONTROL: Shape = {
    "description": "`private, no-cache` if the question gives `at`: a client may keep the answer, and asks by its ETag "
    "before it uses it again. Otherwise `no-store`",
    "schema": {"type": "string"},
}
_ETAG: Shape = {
    "description": "if the question gives `at`: changes with the version, its horizon and its calibration",
    "schema": {"type": "string"},
}
_HOW_KEPT: Shape = {"Cache-Control": _CACHE_CONTROL | {"required": True}, "ETag": _ETAG}
_EVENT_ID: Shape = {
    "name": "event_id",
    "in": "path",
    "required": True,
    "schema": text(),
    "description": "id of a stored event",
}
_TASK_IN_PATH: Shape = {
    "name": "task",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{IDENTIFIER}$"},
    "description": "name of the task",
}
_PROBLEMS_OF_PREDICT: Shape = {
    "422": {
        "description": "A parameter or the body breaks a rule; or `at` is outside the horizon, and `side` says whether "
        "it is before the first row of training or beyond the validated horizon; or too few scored rows support the "
        "coverage. `type` tells them apart"
    },
    "500": {"description": "The model gave no finite answer to these rows; counted in the metrics"},
    "503": {
        "description": "No version has been released, `at` was left out and the version has expired, this version "
        "cannot give rates, too many batches wait for a thread, or other bodies leave no room for this one"
    },
}
_NOTHING_STORED: Shape = {
    "description": "The database does not answer, or other bodies leave no room for this one. Nothing was stored: send "
    "it again"
}


def describe_raw_paths() -> Shape:
    """Their path items, without what follows from the table of operations."""
    return {
        "/predict": {
            "get": {
                "tags": ["predict"],
                "summary": "One prediction",
                "description": "Each feature is a parameter of its own name. Write the + of an offset as %2B. A "
                "boolean may be true, t, yes, y, on or 1, or the opposite of one, in lower or upper case.",
                "parameters": [_TASK, _COVERAGE, _RATE, _AT, _FEATURES, _IF_NONE_MATCH],
                "responses": {
                    "200": {"description": "The answer", "headers": _HOW_KEPT},
                    "304": {"description": "The answer that the client has still holds", "headers": _HOW_KEPT},
                    **_PROBLEMS_OF_PREDICT,
                },
            },
            "post": {
                "tags": ["predict"],
                "summary": "Many predictions",
                "description": "Either rows, each with its `at` (now if left out), or one row's features with one `at` "
                "or a list of them. The answers are always a list. At most 100 rows with `rate`.",
                "parameters": [_TASK, _COVERAGE, _RATE],
                "responses": {"200": {"description": "The answers in order"}, **_PROBLEMS_OF_PREDICT},
            },
        },
        "/events": {
            "post": {
                "tags": ["events"],
                "summary": "Store events",
                "description": "One event object, or an array of them with a result for each row. A body of "
                "`application/x-ndjson` holds one event per line and may have any length: it is stored piece by piece. "
                "Its answer has counts, and results of the first thousand lines that were not created. Any body may "
                "come with `Content-Encoding: gzip`. An event may come without `label`: it is kept as "
                "`unlabelled`, and no fit reads it until its label comes, by a correction or with the whole event.",
                "parameters": [_TASK, _ATOMIC, _IMPORT],
                "responses": {
                    "200": {"description": "A result for each row"},
                    "409": {
                        "description": "A single event contradicts the stored one, or was erased; with `atomic`, any "
                        "event of the body"
                    },
                    "422": {"description": "A single event breaks a rule; with `atomic`, any event of the body"},
                    "503": _NOTHING_STORED,
                },
            }
        },
        "/events/{event_id}": {
            "get": {
                "tags": ["events"],
                "summary": "Show an event",
                "description": "The present revision of a stored event. `event` has the form in which PUT takes it "
                "back. The ETag is the number of the revision: sent as `If-Match` with a correction, it keeps a change "
                "that someone else has made meanwhile.",
                "parameters": [_TASK, _EVENT_ID],
                "responses": {
                    "200": {"description": "The event"},
                    "404": {"description": "There is no such task or event, or the event is erased or retracted"},
                    "409": {"description": "The task is archived"},
                },
            },
            "put": {
                "tags": ["events"],
                "summary": "Correct an event",
                "description": "The whole corrected event; `event_id` may be left out. It completes an event that is "
                "stored without its label. Otherwise it becomes a new revision that counts from the moment at which it "
                "is received, whatever its `known_at`, so earlier training sets can still be rebuilt. A correction "
                "that breaks a rule is stored with its reasons, unless its id differs from the path. The ETag is the "
                "number of the revision, 1 for an event that was never corrected; `If-Match` and `If-None-Match` are "
                "honoured.",
                "parameters": [_EVENT_ID, _TASK],
                "responses": {
                    "200": {"description": "The correction is stored, or was stored before"},
                    "404": {"description": "There is no such event"},
                    "409": {"description": "The event was erased"},
                    "412": {"description": "`If-Match` or `If-None-Match` does not hold for the current revision"},
                    "422": {"description": "The correction breaks a rule"},
                    "503": _NOTHING_STORED,
                },
            },
        },
        "/tasks/{task}/labels": {
            "post": {
                "tags": ["events"],
                "summary": "Store labels apart from their events",
                "description": "One label, an array of them, or lines of `application/x-ndjson` with one each. "
                "A label joins the event of its `event_id` that is stored without one, or the logged answer of its "
                "`prediction_id`, of which the event is made. Otherwise it is `waiting` until that arrives. The same "
                "label again is a `duplicate`, another one a `conflict`: a correction goes to PUT /events/{event_id}.",
                "parameters": [_TASK_IN_PATH],
                "responses": {
                    "200": {"description": "A result for each label"},
                    "409": {
                        "description": "A single label contradicts the stored one, or its event was erased; or the "
                        "task is archived"
                    },
                    "422": {"description": "A single label breaks a rule"},
                    "503": _NOTHING_STORED,
                },
            }
        },
    }
