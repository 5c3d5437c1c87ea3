"""Errors that only commands raise: leaves of the tree in `contracts.errors`."""

from http import HTTPStatus
from pathlib import Path
from typing import Any

from contracts.errors import MorrowError, Unavailable


def cannot_write(path: Path, error: OSError) -> Unavailable:
    """The error of a file that cannot be written, such as on a full disk."""
    return Unavailable(f"{path} cannot be written: {error.strerror}.")


class Refused(MorrowError):
    """The API refused the request; `problem` is its problem document. `advice` is a sentence that only we can say.

    `retry_after` is the number of seconds after which the API wants to be asked again; None if it says nothing.
    """

    def __init__(
        self,
        status: int,
        problem: dict[str, Any],
        advice: str | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        self.status, self.problem, self.retry_after = status, problem, retry_after
        said = [
            "  " + ": ".join(filter(None, (fault["field"], fault["reason"]))) for fault in problem.get("errors", [])
        ]
        # A detail says what is wrong, and so comes first; a title only names the kind of fault.
        first = problem.get("title", "Refused") if said else problem.get("detail") or problem.get("title", "Refused")
        if status == HTTPStatus.UNAUTHORIZED:
            said.append("Commands send the key that MORROW_KEY holds.")
        if advice is not None:
            said.append(advice)
        super().__init__("\n".join([f"{first} ({status})", *said]))


class Unreachable(MorrowError):
    """The API does not answer."""


class PostgresError(MorrowError):
    """Morrow's own PostgreSQL could not be started."""


class StackError(MorrowError):
    """The stack could not be started."""


class ChildDied(MorrowError):
    """A part of the stack ended by itself."""


class RivalsFailed(MorrowError):
    """The process that fits the rivals ended."""


class NotServed(MorrowError):
    """The API did not take up a released version in time."""


class NotStored(MorrowError):
    """The API did not store a flight."""
