"""What the API answers, as types. Fields that a newer API adds are ignored, so an older client goes on working."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """One fault of a request: the field, by its name, and what is wrong with it."""

    field: str
    reason: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document. `type` is stable; compare it, not the text."""

    type: str
    title: str = ""
    status: int = 0
    detail: str = ""
    errors: list[Fault] = []
    num_errors: int = 0
    side: Literal["before", "between", "beyond"] | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    gap_from: datetime | None = None
    gap_until: datetime | None = None
    version: str | None = None
    task: str | None = None
    request_id: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction for one moment, with the version that made it and the end of that version's horizon.

    A classification has `probabilities` and, if `coverage` was asked for, `prediction_set`, the likeliest class first.
    A regression has `mean`, `scale` and `interval` (low, high). `expected_error` is the mean error at this age, in the
    unit that `error_name` says; it is None up to the newest row of the fit, and where only an override allows the
    moment. `unseen` names the category features whose value the version's fit has hardly seen. `weights` has the weight
    of each expert whose answers are averaged; it is empty if the network answers alone. `rate` and `flips_at` come
    with `rate=True`. `id` names the answer in the log of predictions; it is empty if an older API sends none.
    """

    task: str
    prediction: float | str
    at: datetime
    lead: str
    expected_error: float | None
    error_name: str
    version: str
    trained_until: datetime
    valid_until: datetime
    probabilities: dict[str, float] | None = None
    mean: float | None = None
    scale: float | None = None
    coverage: float | None = None
    interval: tuple[float, float] | None = None
    prediction_set: list[str] | None = None
    rate: dict[str, float] | None = None
    flips_at: datetime | None = None
    unseen: list[str] = []
    weights: dict[str, float] = {}
    id: str = ""


class Answers(msgspec.Struct, frozen=True):
    """The body of the answer to POST /predict."""

    answers: list[Answer]


# The label of an event that has none yet.
UNLABELLED = msgspec.UNSET


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row with its label, which may come later: without one it is `UNLABELLED`.

    `known_at` is when its label became known; None for `at` plus the task's label delay.
    """

    event_id: str
    at: datetime
    features: Mapping[str, Any]
    label: bool | float | str | msgspec.UnsetType = UNLABELLED
    known_at: datetime | None = None


class StoredEvent(msgspec.Struct, frozen=True):
    """An event as it is stored. `revision` is 1 at first, and each correction adds 1.

    Without a label it is 0, and each correction takes 1 away.
    """

    event: Event
    revision: int
    received_at: datetime


class Corrected(msgspec.Struct, frozen=True):
    """The outcome of a correction."""

    event_id: str
    status: str


class RowResult(msgspec.Struct, frozen=True):
    """What became of one event of an upload; `errors` say why it was rejected."""

    event_id: str | None
    status: Literal["created", "unlabelled", "duplicate", "conflict", "rejected", "erased"]
    errors: list[Fault] = []


class Stored(msgspec.Struct, frozen=True):
    """The answer to one chunk of events."""

    created: int
    duplicates: int
    conflicts: int
    rejected: int
    results: list[RowResult] = []
    erased: int = 0
    unlabelled: int = 0


class Upload(msgspec.Struct, frozen=True):
    """The report of an upload: how many events were sent, and what became of them.

    A duplicate was stored before with the same content. `unlabelled` events wait for their label. `refused` holds every
    event that was not stored: rejected, in conflict with the stored one, or erased before.
    """

    sent: int = 0
    created: int = 0
    duplicates: int = 0
    refused: Sequence[RowResult] = ()
    unlabelled: int = 0

    def add(self, chunk: Stored, sent: int) -> "Upload":
        """The report with one more chunk."""
        refused = [one for one in chunk.results if one.status not in ("created", "unlabelled", "duplicate")]
        return Upload(
            self.sent + sent,
            self.created + chunk.created,
            self.duplicates + chunk.duplicates,
            [*self.refused, *refused],
            self.unlabelled + chunk.unlabelled,
        )


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A label that comes apart from its event. `event_id` names the event, or else `prediction_id` the answer."""

    label: bool | float | str
    event_id: str | None = None
    prediction_id: str | None = None
    known_at: datetime | None = None


class LabelResult(msgspec.Struct, frozen=True):
    """What became of one label; `errors` say why it was rejected."""

    event_id: str | None
    status: Literal["joined", "waiting", "duplicate", "conflict", "erased", "rejected"]
    errors: list[Fault] = []


class JoinedLabels(msgspec.Struct, frozen=True):
    """What became of labels: `waiting` ones join as soon as their event arrives; `refused` were not stored."""

    joined: int = 0
    waiting: int = 0
    duplicates: int = 0
    refused: Sequence[LabelResult] = ()


class StoredLabels(msgspec.Struct, frozen=True):
    """The answer to one chunk of labels."""

    joined: int
    waiting: int
    duplicates: int
    results: list[LabelResult]


class Champion(msgspec.Struct, frozen=True):
    """The version that answers. It answers moments from `trained_from` until `valid_until`."""

    version: str
    trained_from: datetime
    trained_until: datetime
    valid_until: datetime
    horizon: int
    error_name: str


class NextStep(msgspec.Struct, frozen=True):
    """What an operator should do next, and whether it is needed now; `command` does it."""

    text: str
    is_needed: bool
    command: str | None = None


class TaskStatus(msgspec.Struct, frozen=True):
    """What an application needs to know of a task. `champion` is None until a version is released."""

    task: str
    state: Literal["closed", "expired", "no_model", "valid"]
    lifecycle: Literal["active", "archived", "paused"]
    stale: bool
    champion: Champion | None
    num_events: int
    next_step: NextStep
    warnings: list[str] = []
