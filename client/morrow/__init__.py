"""A client of Morrow's API: predictions inside a validated horizon, and labelled events.

`Client` blocks and `AsyncClient` is awaited; both have the same methods. Everything that an API refuses is an
`ApiError`, with one class for each problem that a program acts on, such as `OutsideHorizon`.
"""

from morrow.answers import (
    UNLABELLED,
    Answer,
    Champion,
    Event,
    Fault,
    NextStep,
    Problem,
    RowResult,
    StoredEvent,
    TaskStatus,
    Upload,
)
from morrow.client import AsyncClient, Client
from morrow.errors import (
    ApiError,
    Conflict,
    CoverageUnsupported,
    Forbidden,
    InvalidInput,
    ModelExpired,
    MorrowError,
    NaiveMoment,
    NoModel,
    NotFound,
    OutsideHorizon,
    PreconditionFailed,
    TaskArchived,
    TaskRenamed,
    Throttled,
    Unauthenticated,
    Unavailable,
    Unreachable,
    UploadInterrupted,
)
from morrow.operations import to_events

__all__ = [
    "UNLABELLED",
    "Answer",
    "ApiError",
    "AsyncClient",
    "Champion",
    "Client",
    "Conflict",
    "CoverageUnsupported",
    "Event",
    "Fault",
    "Forbidden",
    "InvalidInput",
    "ModelExpired",
    "MorrowError",
    "NaiveMoment",
    "NextStep",
    "NoModel",
    "NotFound",
    "OutsideHorizon",
    "PreconditionFailed",
    "Problem",
    "RowResult",
    "StoredEvent",
    "TaskArchived",
    "TaskRenamed",
    "TaskStatus",
    "Throttled",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "Upload",
    "UploadInterrupted",
    "to_events",
]
