"""What bodies and answers look like, as JSON schemas: the components of the OpenAPI document.

The laws of single values are those of `service.validation.values` as far as a schema can say them. What depends on
more than one value is in the words of a description: the task's own features and classes, the order of two moments, the
horizon of a version.
"""

import msgspec

from contracts.task import Task
from service.ingest.endpoint import CorrectionResult, IngestResult
from service.models.class_change import NUM_MOMENTS
from service.web.fields import MAX_ACTOR, MAX_IDS, MAX_REASON
from service.web.json_schema import (
    COUNT,
    FLAG,
    FREE,
    GIVEN_MOMENT,
    MOMENT,
    NUMBER,
    REF,
    STRING,
    Shape,
    closed,
    many,
    nullable,
    ref,
    text,
)

FEATURES: Shape = {
    "type": "object",
    "description": "by name: those of the task and no other; only what is declared optional may be left out or null",
    "additionalProperties": {"anyOf": [NUMBER, text(), {"type": "null"}]},
}
_REST_OF_EVENT = {
    "at": GIVEN_MOMENT,
    "features": ref("Features"),
    "label": {"anyOf": [NUMBER, text()], "description": "a class, or a number where the task is a regression"},
}
_KNOWN_AT = {"known_at": nullable(GIVEN_MOMENT) | {"description": "not before at; at + label_delay where absent"}}
# A query string has no null: what is missing is left out.
FEATURES_IN_QUERY: Shape = FEATURES | {"additionalProperties": {"anyOf": [NUMBER, text()]}}
_ROW = closed({"features": ref("Features")}, {"at": nullable(GIVEN_MOMENT) | {"description": "now where absent"}})

_ANSWER = closed(
    {
        "task": STRING,
        "prediction": {"type": ["string", "number"], "description": "the likeliest class, or the mean"},
        "at": MOMENT,
        "lead": {"type": "string", "description": "ISO 8601 duration since trained_until, with a sign before it"},
        "expected_error": {"type": ["number", "null"], "description": "mean error at this age; null before the cutoff"},
        "error_name": STRING,
        "version": STRING,
        "trained_until": MOMENT,
        "valid_until": MOMENT,
    },
    {
        "probabilities": {"type": "object", "additionalProperties": NUMBER},
        "mean": NUMBER,
        "scale": NUMBER,
        "coverage": {"type": "number", "description": "of `interval` or `prediction_set`; 0.9 where not asked for"},
        "interval": {
            "type": ["array", "null"],
            "items": NUMBER,
            "minItems": 2,
            "maxItems": 2,
            "description": "of a regression, low and high; null where too few scored rows support 0.9",
        },
        "prediction_set": many(
            STRING, description="of a classification, where `coverage` is asked for: the likeliest class first"
        ),
        "rate": {
            "type": "object",
            "additionalProperties": NUMBER,
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
_FAULT = closed({"field": STRING, "reason": STRING})
_PROBLEM = closed(
    {
        "type": {"type": "string", "pattern": "^/problems/[a-z-]+$", "description": "stable: what programs compare"},
        "title": STRING,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": STRING,
    },
    {
        "errors": many(_FAULT, description="the first faults, each with its field"),
        "num_errors": COUNT | {"description": "of all faults"},
        "side": {"enum": ["before", "beyond"], "description": "outside the horizon: on which side of it"},
        "valid_from": MOMENT,
        "valid_until": MOMENT,
        "version": STRING,
    },
)
_CYCLE = closed(
    {
        "id": COUNT,
        "cutoff": MOMENT,
        "attempt": COUNT,
        "state": {"enum": ["requested", "running", "released", "held", "skipped", "failed"]},
        "step": nullable(STRING),
        "version": nullable(STRING),
        "num_rows": nullable(COUNT),
        "reason": nullable(STRING),
        "verdict": nullable(FREE),
        "override": nullable(closed({"actor": STRING, "reason": nullable(STRING)})),
        "run_id": nullable(STRING),
        "requested_at": nullable(MOMENT),
        "started_at": nullable(MOMENT),
        "ended_at": nullable(MOMENT),
    }
)
_RELEASE = closed(
    {
        "action": {"enum": ["release", "rollback", "calibrate", "close", "reopen", "override"]},
        "version": STRING,
        "valid_until": MOMENT,
        "actor": STRING,
        "reason": STRING,
        "at": MOMENT,
        "verdict": nullable(FREE),
    }
)
_ERASURE = {
    "id": COUNT,
    "at": MOMENT,
    "actor": STRING,
    "reason": STRING,
    "num_events": COUNT | {"description": "that were erased now"},
    "num_revisions": COUNT,
    "num_rejected": COUNT | {"description": "refused rows with these ids that were kept"},
}
_ERASED = _ERASURE | {
    "versions": many(STRING, description="released versions that were trained on any of the events"),
    "results": many(closed({"event_id": STRING, "status": {"enum": ["erased", "erased_before", "unknown"]}})),
}
_BAND = {"low": nullable(NUMBER), "high": nullable(NUMBER), "limit": nullable(NUMBER)}
_CHAMPION = {
    "version": STRING,
    "trained_from": MOMENT,
    "trained_until": MOMENT,
    "valid_until": MOMENT,
    "horizon": COUNT,
    "batch_size": COUNT | {"description": "rows of a minibatch of its fit"},
    "error_name": STRING,
    "errors": many(closed({"age": COUNT, "mean": NUMBER, "num_windows": COUNT} | _BAND)),
}
_LIVE_ERROR = closed(
    {"age": COUNT, "window": MOMENT, "expected": nullable(NUMBER), "realised": nullable(NUMBER)}
    | {"num_rows": COUNT, "is_complete": FLAG}
    | _BAND
)
_DEFINED = {"task": STRING, "revision": COUNT, "spec": ref("Task"), "choice": nullable(FREE)}
_STANDING = _DEFINED | {
    "champion": nullable(ref("Champion")),
    "registry": closed({"state": STRING, "reason": nullable(STRING), "champion": nullable(STRING)}),
    "state": {"enum": ["no_model", "valid", "closed", "expired"]},
    "closed": nullable(ref("Release")),
    "override": nullable(ref("Release")),
    "stale": FLAG,
    "stale_reason": nullable(STRING),
    "seconds_since_release": nullable(NUMBER),
    "num_failed": COUNT,
    "better_method": nullable(FREE),
    "rivals": many(FREE),
    "missing_windows": COUNT,
}
_WORKER = closed({"pid": COUNT, "version": nullable(STRING), "is_ready": FLAG, "seen_at": MOMENT})
_STATUS = _STANDING | {
    "workers": many(_WORKER),
    "num_events": COUNT,
    "live_errors": many(_LIVE_ERROR),
    "last_verdict": nullable(FREE),
    "cycles": many(ref("Cycle")),
    "next_cycle": nullable(MOMENT),
    "warnings": many(STRING),
}
_MODEL = _CHAMPION | {
    "task": FREE,
    "recipe": STRING,
    "classes": many(STRING),
    "num_rows": COUNT,
    "rows_digest": STRING,
    "read_at": MOMENT,
    "seeds": many({"type": "integer"}),
    "device": STRING,
    "git_sha": STRING,
    "checksums": {"type": "object", "additionalProperties": STRING},
}
_READINESS = closed(
    {
        "status": {"enum": ["ok", "not ready"]},
        "database": {"enum": ["ok", "unavailable"]},
        "tasks": {
            "type": "object",
            "additionalProperties": closed({"version": nullable(STRING), "registry": STRING}),
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
    "TaskDefined": closed(_DEFINED | {"changed": FLAG, "warnings": many(STRING)}),
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
