"""What can go wrong: the API is not reached, or it refuses with a problem document (RFC 9457)."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal

from morrow.answers import Fault, Problem, Upload


class NaiveMoment(ValueError):
    """A moment without a time zone, from a client that has none to read it in."""

    def __init__(self, moment: object) -> None:
        super().__init__(f"{moment} has no time zone: give it one, or open the client with timezone=")


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


class ApiError(MorrowError):
    """The API refused a request.

    `retry_after` is the number of seconds after which the API wants to be asked again; None if it says nothing.
    """

    type: ClassVar[str] = ""

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.detail or problem.title} ({problem.status})")
        self.problem = problem
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

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
    """A store, or a thread, did not become available until the client's patience ended."""

    type = "/problems/unavailable"


_CLASSES: Mapping[str, type[ApiError]] = {one.type: one for one in ApiError.__subclasses__()}


def make_error(problem: Problem, retry_after: float | None) -> ApiError:
    """The error of the class that this problem has; an ApiError if it has none of its own."""
    return _CLASSES.get(problem.type, ApiError)(problem, retry_after)
