"""What one answer of /predict holds, and why there may be none."""

import msgspec
from msgspec import UNSET, UnsetType


class Answer(msgspec.Struct, frozen=True, gc=False):
    """`mean`, `scale` and `interval` belong to regression, `probabilities` and `prediction_set` to classification.

    What does not belong to an answer or was not asked for is unset, and so left out of its JSON.
    """

    task: str
    prediction: str | float
    probabilities: dict[str, float] | UnsetType
    mean: float | UnsetType
    scale: float | UnsetType
    at: str
    lead: str
    expected_error: float | None
    error_name: str
    version: str
    trained_until: str
    valid_until: str
    coverage: float | UnsetType = UNSET
    interval: list[float] | UnsetType | None = UNSET
    prediction_set: list[str] | UnsetType = UNSET
    rate: dict[str, float] | UnsetType = UNSET
    flips_at: str | UnsetType | None = UNSET


class Answers(msgspec.Struct, frozen=True, gc=False):
    """The answer of POST /predict, in the order of its rows."""

    answers: list[Answer]
