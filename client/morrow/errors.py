"""What can go wrong: the API is not reached, or it refuses with a problem document (RFC 9457)."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

import msgspec

from morrow.answers import Fault, Problem, Upload

_ROW = re.compile(r"\brows\[(\d+)\]")


class NaiveMoment(ValueError):
    """A moment without a time zone, from a client that has none to read it in."""

    def __init__(self, moment: object) -> None:
        super().__init__(f"{moment} has no time zone: give it one, or open the client with timezone=")
        self.moment = moment

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.moment,)


class MorrowError(Exception):
    """Any failure of a call to Morrow."""


class Unreachable(MorrowError):
    """Nothing answered, or something other than Morrow did, until the client's patience ended."""


class UploadInterrupted(MorrowError):
    """An upload ended early. `report` tells what is stored; to go on, send the same events again.

    The cause is the exception's `__cause__`.
    """

    def __init__(self, report: Upload, cause: MorrowError) -> None:
        super().__init__(f"The upload ended after {report.sent} events: {cause}")
        self.report = report
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report, self.__cause__)


class ApiError(MorrowError):
    """The API refused a request.

    `retry_after` is the number of seconds after which the API wants to be asked again; None if it says nothing.
    """

    type: ClassVar[str] = ""

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.detail or problem.title} ({problem.status})")
        self.problem = problem
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.retry_after)

    def count_rows_from(self, first: int) -> "ApiError":
        """The same refusal of a batch whose rows are numbered from `first`."""

        def renumber(text: str) -> str:
            return _ROW.sub(lambda found: f"rows[{int(found[1]) + first}]", text)

        errors = [Fault(renumber(fault.field), fault.reason) for fault in self.problem.errors]
        problem = msgspec.structs.replace(self.problem, detail=renumber(self.problem.detail), errors=errors)
        return type(self)(problem, self.retry_after)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

    @property
    def request_id(self) -> str | None:
        """The id of the request, by which the API's log has its record; None from an older API."""
        return self.problem.request_id

    @property
    def faults(self) -> list[Fault]:
        """The first hundred faults of the request."""
        return self.problem.errors


class Unauthenticated(ApiError):
    """The request needs a valid key."""

    type = "/problems/unauthenticated"


class Forbidden(ApiError):
    """The key does not allow this."""

    type = "/problems/forbidden"


class NotFound(ApiError):
    """There is no such task, version or event."""

    type = "/problems/not-found"


class TaskRenamed(ApiError):
    """The task has another name now: `new_name`."""

    type = "/problems/task-renamed"

    @property
    def new_name(self) -> str | None:
        """The present name of the task."""
        return self.problem.task


class TaskArchived(ApiError):
    """The task is archived, so it takes no events and no questions."""

    type = "/problems/task-archived"


class Conflict(ApiError):
    """The present state does not allow this, such as an event that contradicts the stored one."""

    type = "/problems/conflict"


class PreconditionFailed(ApiError):
    """The event has another revision than the one named: somebody has corrected it meanwhile."""

    type = "/problems/precondition-failed"


class InvalidInput(ApiError):
    """The input breaks a rule; `faults` names each field."""

    type = "/problems/invalid-input"


class OutsideHorizon(ApiError):
    """The version is not validated for this moment.

    `side` is "before" the first row of training, "beyond" the horizon, or "between" the ends of a long gap in the rows.
    """

    type = "/problems/outside-horizon"

    @property
    def side(self) -> Literal["before", "between", "beyond"] | None:
        """Where the moment lies."""
        return self.problem.side

    @property
    def valid_from(self) -> datetime | None:
        """The first moment that is answered."""
        return self.problem.valid_from

    @property
    def valid_until(self) -> datetime | None:
        """The end of the horizon."""
        return self.problem.valid_until

    @property
    def gap(self) -> tuple[datetime, datetime] | None:
        """The two ends of the gap that holds the moment; None if it lies in none."""
        start, end = self.problem.gap_from, self.problem.gap_until
        return None if start is None or end is None else (start, end)


class CoverageUnsupported(ApiError):
    """Too few scored rows support the coverage."""

    type = "/problems/coverage-unsupported"


class Throttled(ApiError):
    """The key has sent too many requests."""

    type = "/problems/throttled"


class NoModel(ApiError):
    """No version has been released yet."""

    type = "/problems/no-model"


class ModelExpired(ApiError):
    """The version is past its horizon, and the request names no moment."""

    type = "/problems/model-expired"


class Unavailable(ApiError):
    """The API could not carry out the request until the client's patience ended; `problem.type` says why."""

    type = "/problems/unavailable"


# What the same request can succeed with after a pause. All others need another request, or another model.
PASSING = {
    Throttled.type,
    Unavailable.type,
    "/problems/overloaded",
    "/problems/not-loaded",
    "/problems/not-ready",
    "/problems/task-leaving",
}
_CLASSES: Mapping[str, type[ApiError]] = {
    **dict.fromkeys(PASSING, Unavailable),
    **{one.type: one for one in ApiError.__subclasses__()},
}


def make_error(problem: Problem, retry_after: float | None) -> ApiError:
    """The error of the class that this problem has; an ApiError if it has none of its own."""
    return _CLASSES.get(problem.type, ApiError)(problem, retry_after)
