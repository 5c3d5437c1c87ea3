"""Errors that only the service raises: leaves of the tree in `contracts.errors`.

`service.web.problems` gives each of them a problem type and a status.
"""

from collections.abc import Sequence

from contracts.errors import Fault, InvalidInput, MorrowError, NotReady


class Unauthenticated(MorrowError):
    """The request has no valid key."""


class Forbidden(MorrowError):
    """The key lacks the scope that this request needs."""


class Throttled(MorrowError):
    """The key has sent too many requests; `Retry-After` is the number of seconds to wait."""

    def __init__(self, rate: float, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"The key may send {rate:g} requests a second.")


class QuotaUsed(MorrowError):
    """A task has used what its quota allows; `Retry-After` is the number of seconds to wait."""

    def __init__(self, message: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(message)


class NoKeys(NotReady):
    """No key exists yet: `morrow keys add NAME --scope admin` makes one."""


class PreconditionFailed(MorrowError):
    """A precondition of the request does not hold, or is not one that this request takes.

    `etag` is the current entity tag, if there is one.
    """

    def __init__(self, message: str, etag: str | None = None) -> None:
        self.etag = etag
        super().__init__(message)


class UnreadableRequest(MorrowError):
    """The request cannot be accepted as sent.

    With `has_rest`, a part of its body is unread, so no other request can follow on its connection.
    """

    def __init__(self, message: str, *, has_rest: bool = False) -> None:
        self.has_rest = has_rest
        super().__init__(message)


class Malformed(UnreadableRequest):
    """The query string or the body is not in the format that it claims to have."""


class TooSlow(UnreadableRequest):
    """The rest of the body did not arrive in time."""


class TooLarge(UnreadableRequest):
    """The body holds more bytes, rows or values than one request may have."""


class UnsupportedContent(UnreadableRequest):
    """The body has a content type or encoding that is not supported."""


class UnsupportedEncoding(UnsupportedContent):
    """The body has an encoding other than gzip, or several; it is not read."""

    def __init__(self, codings: Sequence[str]) -> None:
        super().__init__(
            f"The body has Content-Encoding: {', '.join(codings)}. Send it plain, or once with gzip.", has_rest=True
        )


class Overloaded(MorrowError):
    """Too many batches, or requests for rates, are waiting."""


class BodiesFull(Overloaded):
    """The bodies of other requests leave no room for this one, a part of which is unread."""

    def __init__(self, num_bytes: int, budget: int, remedy: str = "Send it again, or send smaller ones.") -> None:
        self.num_bytes, self.budget = num_bytes, budget
        super().__init__(
            f"Bodies of other requests leave no room for {num_bytes} bytes of this one: this process holds at most "
            f"{budget} at once (MORROW_BODY_BUDGET_BYTES). {remedy}"
        )


class RateRefused(MorrowError):
    """This version cannot say how fast its answers change."""


class AnswerNotFinite(MorrowError):
    """The model gave no finite answer to these rows."""

    def __init__(self, task: str, version: str) -> None:
        self.task, self.version = task, version
        super().__init__(f"Version {version} of {task} gave no finite answer to these rows.")


class CoverageUnsupported(InvalidInput):
    """Too few scored rows of this age support the coverage."""

    def __init__(self, reason: str) -> None:
        super().__init__([Fault("coverage", reason)])
