"""The answers of /predict: what is encoded, and what the OpenAPI document describes."""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.models.class_change import NUM_MOMENTS
from service.validation.json_types import Moment

_PREDICTION = "the likeliest class, or the mean"
_LEAD = "ISO 8601 duration since trained_until, with a sign before it"
_EXPECTED_ERROR = "mean error at this age; null up to the newest row of the fit"
_COVERAGE = "of `interval` or `prediction_set`; 0.9 if not asked for"
_INTERVAL = "of a regression, low and high; null if too few scored rows support 0.9"
_PREDICTION_SET = "of a classification, if `coverage` is asked for: the likeliest class first"
_RATE = "if asked for: change per second of each probability, or of `mean` and `scale`, with features and calendar held"
_FLIPS_AT = (
    "with `rate`, of a classification: the first moment up to valid_until at which the prediction changes, features "
    f"held, to the second; null if it does not at any of {NUM_MOMENTS} moments"
)
_UNSEEN = (
    "if there are any: category features whose value is in fewer than five rows of this version's fit; the answer is "
    "that of any other such value"
)
_WEIGHTS = (
    "if the answers of several experts are averaged: the weight of each, of the network (such as `gi`) and of LightGBM "
    "(`gbdt`)"
)

_ID = "names this answer, in `/predictions/{id}`; ids sort by the time of the answer"


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Regression has `mean`, `scale` and `interval`; classification has `probabilities` and `prediction_set`."""

    task: str
    prediction: Annotated[str | float, Meta(description=_PREDICTION)]
    probabilities: dict[str, float] | UnsetType
    mean: float | UnsetType
    scale: float | UnsetType
    at: Moment
    lead: Annotated[str, Meta(description=_LEAD)]
    expected_error: Annotated[float | None, Meta(description=_EXPECTED_ERROR)]
    error_name: str
    version: str
    trained_until: Moment
    valid_until: Moment
    coverage: Annotated[float | UnsetType, Meta(description=_COVERAGE)] = UNSET
    interval: Annotated[
        Annotated[list[float], Meta(min_length=2, max_length=2)] | UnsetType | None, Meta(description=_INTERVAL)
    ] = UNSET
    prediction_set: Annotated[list[str] | UnsetType, Meta(description=_PREDICTION_SET)] = UNSET
    rate: Annotated[dict[str, float] | UnsetType, Meta(description=_RATE)] = UNSET
    flips_at: Annotated[Moment | UnsetType | None, Meta(description=_FLIPS_AT)] = UNSET
    unseen: Annotated[list[str] | UnsetType, Meta(description=_UNSEEN)] = UNSET
    weights: Annotated[dict[str, float] | UnsetType, Meta(description=_WEIGHTS)] = UNSET
    id: Annotated[str, Meta(description=_ID, extra_json_schema={"format": "uuid"})] = ""


class Answers(msgspec.Struct, frozen=True, gc=False):
    """The answers to POST /predict, in the order of its rows."""

    answers: list[Answer]


# How an encoded answer ends before it gets its id.
NO_ID = b',"id":""}'


def join_answers(encoded: Iterable[bytes]) -> bytes:
    """The encoded `Answers` of these encoded answers."""
    return b'{"answers":[%b]}' % b",".join(encoded)
