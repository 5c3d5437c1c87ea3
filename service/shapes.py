"""What bodies and answers look like, as JSON schemas: the components of the OpenAPI document.

The laws of single values are those of `service.literals` as far as a schema can say them. What depends on more than
one value is in the words of a description: the task's own features and classes, the order of two moments, the
horizon of a version.
"""

from typing import Any

import msgspec

from contracts.spec import MAX_TEXT, SCHEMA_PRINTABLE
from contracts.task import Task
from service.erasures import MAX_IDS
from service.fields import MAX_ACTOR, MAX_REASON
from service.flips import NUM_MOMENTS
from service.ingest import CorrectionResult, IngestResult

Shape = dict[str, Any]
REF = "#/components/schemas/{name}"
_EVERY_FORM = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_WITH_OFFSET = r"([Zz]|[+-][0-9]{2}:[0-5][0-9])$"


def ref(name: str) -> Shape:
    """A reference to a component."""
    return {"$ref": REF.format(name=name)}


def nullable(shape: Shape) -> Shape:
    """The same, or null."""
    return {"anyOf": [shape, {"type": "null"}]}


def many(shape: Shape, **more: Any) -> Shape:
    """An array of it."""
    return {"type": "array", "items": shape, **more}


def closed(required: Shape, optional: Shape | None = None) -> Shape:
    """An object of these members and no other."""
    return {
        "type": "object",
        "required": list(required),
        "properties": required | (optional or {}),
        "additionalProperties": False,
    }


def text(longest: int = MAX_TEXT, **more: Any) -> Shape:
    """A text as `json_text` takes it."""
    return {"type": "string", "minLength": 1, "maxLength": longest, "pattern": SCHEMA_PRINTABLE, **more}


MOMENT: Shape = {"type": "string", "format": "date-time"}
GIVEN_MOMENT: Shape = MOMENT | {
    "pattern": _EVERY_FORM + _WITH_OFFSET,
    "description": "RFC 3339 with an offset, to the microsecond; no leap second",
}
FREE: Shape = {"type": "object", "additionalProperties": True}
_STRING: Shape = {"type": "string"}
_NUMBER: Shape = {"type": "number"}
_COUNT: Shape = {"type": "integer", "minimum": 0}
_FLAG: Shape = {"type": "boolean"}

FEATURES: Shape = {
    "type": "object",
    "description": "by name: those of the task and no other; only what is declared optional may be left out or null",
    "additionalProperties": {"anyOf": [_NUMBER, text(), {"type": "null"}]},
}
_REST_OF_EVENT = {
    "at": GIVEN_MOMENT,
    "features": ref("Features"),
    "label": {"anyOf": [_NUMBER, text()], "description": "a class, or a number where the task is a regression"},
}
_KNOWN_AT = {"known_at": nullable(GIVEN_MOMENT) | {"description": "not before at; at + label_delay where absent"}}
# A query string has no null: what is missing is left out.
FEATURES_IN_QUERY: Shape = FEATURES | {"additionalProperties": {"anyOf": [_NUMBER, text()]}}
_ROW = closed({"features": ref("Features")}, {"at": nullable(GIVEN_MOMENT) | {"description": "now where absent"}})

_ANSWER = closed(
    {
        "task": _STRING,
        "prediction": {"type": ["string", "number"], "description": "the likeliest class, or the mean"},
        "at": MOMENT,
        "lead": {"type": "string", "description": "ISO 8601 duration since trained_until, with a sign before it"},
        "expected_error": {"type": ["number", "null"], "description": "mean error at this age; null before the cutoff"},
        "error_name": _STRING,
        "version": _STRING,
        "trained_until": MOMENT,
        "valid_until": MOMENT,
    },
    {
        "probabilities": {"type": "object", "additionalProperties": _NUMBER},
        "mean": _NUMBER,
        "scale": _NUMBER,
        "coverage": {"type": "number", "description": "of `interval` or `prediction_set`; 0.9 where not asked for"},
        "interval": {
            "type": ["array", "null"],
            "items": _NUMBER,
            "minItems": 2,
            "maxItems": 2,
            "description": "of a regression, low and high; null where too few scored rows support 0.9",
        },
        "prediction_set": many(
            _STRING, description="of a classification, where `coverage` is asked for: the likeliest class first"
        ),
        "rate": {
            "type": "object",
            "additionalProperties": _NUMBER,
            "description": "where asked for: change per second of each probability, or of `mean` and `scale`, with "
            "features and calendar held",
        },
        "flips_at": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "with `rate`, of a classification: the first moment up to valid_until at which the "
            "prediction is another one, features held, to the second; null where there is none among "
            f"{NUM_MOMENTS} moments",
        },
    },
)
_FAULT = closed({"field": _STRING, "reason": _STRING})
_PROBLEM = closed(
    {
        "type": {"type": "string", "pattern": "^/problems/[a-z-]+$", "description": "stable: what programs compare"},
        "title": _STRING,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": _STRING,
    },
    {
        "errors": many(_FAULT, description="the first faults, each with its field"),
        "num_errors": _COUNT | {"description": "of all faults"},
        "side": {"enum": ["before", "beyond"], "description": "outside the horizon: on which side of it"},
        "valid_from": MOMENT,
        "valid_until": MOMENT,
        "version": _STRING,
    },
)
_CYCLE = closed(
    {
        "id": _COUNT,
        "cutoff": MOMENT,
        "attempt": _COUNT,
        "state": {"enum": ["requested", "running", "released", "held", "skipped", "failed"]},
        "step": nullable(_STRING),
        "version": nullable(_STRING),
        "num_rows": nullable(_COUNT),
        "reason": nullable(_STRING),
        "verdict": nullable(FREE),
        "override": nullable(closed({"actor": _STRING, "reason": nullable(_STRING)})),
        "run_id": nullable(_STRING),
        "requested_at": nullable(MOMENT),
        "started_at": nullable(MOMENT),
        "ended_at": nullable(MOMENT),
    }
)
_RELEASE = closed(
    {
        "action": {"enum": ["release", "rollback", "calibrate", "close", "reopen", "override"]},
        "version": _STRING,
        "valid_until": MOMENT,
        "actor": _STRING,
        "reason": _STRING,
        "at": MOMENT,
        "verdict": nullable(FREE),
    }
)
_ERASURE = {
    "id": _COUNT,
    "at": MOMENT,
    "actor": _STRING,
    "reason": _STRING,
    "num_events": _COUNT | {"description": "that were erased now"},
    "num_revisions": _COUNT,
    "num_rejected": _COUNT | {"description": "refused rows with these ids that were kept"},
}
_ERASED = _ERASURE | {
    "versions": many(_STRING, description="released versions that were trained on any of the events"),
    "results": many(closed({"event_id": _STRING, "status": {"enum": ["erased", "erased_before", "unknown"]}})),
}
_BAND = {"low": nullable(_NUMBER), "high": nullable(_NUMBER), "limit": nullable(_NUMBER)}
_CHAMPION = {
    "version": _STRING,
    "trained_from": MOMENT,
    "trained_until": MOMENT,
    "valid_until": MOMENT,
    "horizon": _COUNT,
    "error_name": _STRING,
    "errors": many(closed({"age": _COUNT, "mean": _NUMBER, "num_windows": _COUNT} | _BAND)),
}
_LIVE_ERROR = closed(
    {"age": _COUNT, "window": MOMENT, "expected": nullable(_NUMBER), "realised": nullable(_NUMBER)}
    | {"num_rows": _COUNT, "is_complete": _FLAG}
    | _BAND
)
_DEFINED = {"task": _STRING, "revision": _COUNT, "spec": ref("Task"), "choice": nullable(FREE)}
_STANDING = _DEFINED | {
    "champion": nullable(ref("Champion")),
    "registry": closed({"state": _STRING, "reason": nullable(_STRING), "champion": nullable(_STRING)}),
    "state": {"enum": ["no_model", "valid", "closed", "expired"]},
    "closed": nullable(ref("Release")),
    "override": nullable(ref("Release")),
    "stale": _FLAG,
    "stale_reason": nullable(_STRING),
    "seconds_since_release": nullable(_NUMBER),
    "num_failed": _COUNT,
    "better_method": nullable(FREE),
    "rivals": many(FREE),
    "missing_windows": _COUNT,
}
_WORKER = closed({"pid": _COUNT, "version": nullable(_STRING), "is_ready": _FLAG, "seen_at": MOMENT})
_STATUS = _STANDING | {
    "workers": many(_WORKER),
    "num_events": _COUNT,
    "live_errors": many(_LIVE_ERROR),
    "last_verdict": nullable(FREE),
    "cycles": many(ref("Cycle")),
    "next_cycle": nullable(MOMENT),
    "warnings": many(_STRING),
}
_MODEL = _CHAMPION | {
    "task": FREE,
    "recipe": _STRING,
    "classes": many(_STRING),
    "num_rows": _COUNT,
    "rows_digest": _STRING,
    "read_at": MOMENT,
    "seeds": many({"type": "integer"}),
    "device": _STRING,
    "git_sha": _STRING,
    "checksums": {"type": "object", "additionalProperties": _STRING},
}
_READINESS = closed(
    {
        "status": {"enum": ["ok", "not ready"]},
        "database": {"enum": ["ok", "unavailable"]},
        "tasks": {
            "type": "object",
            "additionalProperties": closed({"version": nullable(_STRING), "registry": _STRING}),
        },
    }
)
_WHO_AND_WHY = (
    {"reason": text(MAX_REASON, description="why, for the record")},
    {"actor": text(MAX_ACTOR, description="who asks")},
)
_VERSION = text(description="a version released before")
_BOUND = GIVEN_MOMENT | {"description": "the later of the present bound and what the release promised, where left out"}
_HELD_CYCLE = {
    "type": "integer",
    "minimum": 1,
    "exclusiveMaximum": 10**18,
    "description": "id of a held cycle to release",
}


def _or_null(optional: Shape) -> Shape:
    """In a small body, null is as good as absent."""
    return {name: nullable(shape) for name, shape in optional.items()}


SHAPES: dict[str, Shape] = {
    "Features": FEATURES,
    "FeaturesInQuery": FEATURES_IN_QUERY,
    "Event": closed({"event_id": text(), **_REST_OF_EVENT}, _KNOWN_AT),
    "Correction": closed(_REST_OF_EVENT, {"event_id": text(description="the id in the path"), **_KNOWN_AT}),
    "Question": {
        "oneOf": [
            closed({"rows": many(_ROW, minItems=1)}),
            closed({"features": ref("Features"), "at": many(GIVEN_MOMENT, minItems=1)}),
        ]
    },
    "Answer": _ANSWER,
    "Answers": closed({"answers": many(ref("Answer"))}),
    "Problem": _PROBLEM,
    "Cycle": _CYCLE,
    "Cycles": closed({"cycles": many(ref("Cycle"))}),
    "AskForCycle": closed({}, _or_null({"as_of": GIVEN_MOMENT | {"description": "not in the future"}})),
    "Release": _RELEASE,
    "Releases": closed({"releases": many(ref("Release"))}),
    "Rollback": closed(_WHO_AND_WHY[0], _or_null({"version": _VERSION, **_WHO_AND_WHY[1]})),
    "Override": {
        "oneOf": [
            closed(_WHO_AND_WHY[0], _or_null({"version": _VERSION, "valid_until": _BOUND, **_WHO_AND_WHY[1]})),
            closed({"cycle": _HELD_CYCLE, **_WHO_AND_WHY[0]}, _or_null(_WHO_AND_WHY[1])),
        ]
    },
    "Erasures": closed({"erasures": many(closed(_ERASURE))}),
    "Erased": closed(_ERASED),
    "AskForErasure": closed(
        {"event_ids": many(text(), minItems=1, maxItems=MAX_IDS), **_WHO_AND_WHY[0]}, _or_null(_WHO_AND_WHY[1])
    ),
    "Champion": closed(_CHAMPION),
    "TaskDefined": closed(_DEFINED | {"changed": _FLAG, "warnings": many(_STRING)}),
    "TaskStatus": closed(_STATUS),
    "Tasks": closed({"tasks": many(closed(_STANDING))}),
    "Model": closed(_MODEL),
    "Alive": closed({"status": {"const": "ok"}}),
    "Readiness": _READINESS,
}


def component_shapes() -> dict[str, Shape]:
    """Every component of the document: those above, and those that follow from models."""
    task = Task.model_json_schema(ref_template=REF.replace("{name}", "{model}"))
    results: dict[str, Shape] = msgspec.json.schema_components([IngestResult, CorrectionResult], ref_template=REF)[1]
    parts: dict[str, Shape] = task.pop("$defs", {})
    given = {**task, "required": [name for name in task["required"] if name != "name"]}
    return SHAPES | parts | {"Task": task, "GivenTask": given} | results
