"""What OpenAPI says of /predict, a raw route of which FastAPI knows nothing."""

from typing import Any

from service.flips import NUM_MOMENTS

MOMENT = {"type": "string", "format": "date-time"}


def predict_path_item() -> dict[str, Any]:
    """What OpenAPI says of /predict."""
    problems = {
        "404": {"description": "There is no such task"},
        "422": {
            "description": "A parameter breaks a rule, `at` is outside the horizon (`side` says whether "
            "before the first row of training or beyond what is validated), or too few scored rows support the "
            "coverage: see `type`"
        },
        "503": {
            "description": "No version has been released, `at` was left out and the version has expired, or this "
            "version cannot give rates"
        },
    }
    features = {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}
    row = {"type": "object", "required": ["features"], "properties": {"at": MOMENT, "features": features}}
    one_answer = {"description": "The answer", "content": {"application/json": {"schema": _ANSWER}}}
    answers = {"type": "object", "properties": {"answers": {"type": "array", "items": _ANSWER}}}
    return {
        "get": {
            "tags": ["predict"],
            "summary": "One answer",
            "description": "Each feature is a parameter of its own name. An offset's + is written %2B.",
            "parameters": [
                *_PARAMETERS,
                {"name": "at", "in": "query", "schema": MOMENT, "description": "moment asked for; now where absent"},
                {"name": "features", "in": "query", "schema": features, "style": "form", "explode": True},
            ],
            "responses": {"200": one_answer, **problems},
        },
        "post": {
            "tags": ["predict"],
            "summary": "Many answers",
            "description": "Rows, each with its `at` (now where absent), or one row's features and many `at`; "
            "at most 100 with `rate`.",
            "parameters": _PARAMETERS,
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
                                    "properties": {"features": features, "at": {"type": "array", "items": MOMENT}},
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


_PARAMETERS = [
    {
        "name": "task",
        "in": "query",
        "schema": {"type": "string"},
        "description": "may be left out while there is one task",
    },
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

_ANSWER = {
    "type": "object",
    "properties": {
        "task": {"type": "string"},
        "prediction": {"type": ["string", "number"], "description": "the likeliest class, or the mean"},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
        "mean": {"type": "number"},
        "scale": {"type": "number"},
        "at": MOMENT,
        "lead": {"type": "string", "description": "ISO 8601 duration since trained_until"},
        "expected_error": {"type": ["number", "null"], "description": "mean error at this age; null before the cutoff"},
        "error_name": {"type": "string"},
        "version": {"type": "string"},
        "trained_until": MOMENT,
        "valid_until": MOMENT,
        "coverage": {"type": "number", "description": "of `interval` or `prediction_set`; 0.9 where not asked for"},
        "interval": {
            "type": ["array", "null"],
            "items": {"type": "number"},
            "minItems": 2,
            "maxItems": 2,
            "description": "of a regression, low and high; null where too few scored rows support 0.9",
        },
        "prediction_set": {
            "type": "array",
            "items": {"type": "string"},
            "description": "of a classification, where `coverage` is asked for: the likeliest class first",
        },
        "rate": {
            "type": "object",
            "additionalProperties": {"type": "number"},
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
}
