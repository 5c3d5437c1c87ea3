"""Errors that only the service raises: leaves of the tree in `contracts.errors`.

`service.web.problems` gives each of them a problem type and a status.
"""

from contracts.errors import Fault, InvalidInput, MorrowError, NotReady


class Unauthenticated(MorrowError):
    """The request has no valid key."""


class Forbidden(MorrowError):
    """The key does not hold the scope that this needs."""


class Throttled(MorrowError):
    """The key has asked too often; `Retry-After` says after how many seconds it may ask again."""

    def __init__(self, rate: float, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"The key may ask {rate:g} times a second.")


class NoKeys(NotReady):
    """No key exists yet: `morrow keys add NAME --scope admin` makes one."""


class UnreadableRequest(MorrowError):
    """The request cannot be taken as it was sent.

    With `has_rest`, a part of its body is unread, so nothing else can follow on its connection.
    """

    def __init__(self, message: str, *, has_rest: bool = False) -> None:
        self.has_rest = has_rest
        super().__init__(message)


class Malformed(UnreadableRequest):
    """The query string or the body is not what it says it is."""


class TooSlow(UnreadableRequest):
    """The rest of the body did not come in time."""


class TooLarge(UnreadableRequest):
    """The body holds more bytes, rows or values than are taken at once."""


class UnsupportedContent(UnreadableRequest):
    """The body has a content type or encoding that is not taken."""


class Overloaded(MorrowError):
    """Too many batches, or questions for rates, wait to be answered."""


class RateRefused(MorrowError):
    """This version cannot say how fast its answers change."""


class AnswerNotFinite(MorrowError):
    """The model gave no finite answer to these rows."""

    def __init__(self, task: str, version: str) -> None:
        self.task, self.version = task, version
        super().__init__(f"Version {version} of {task} gave no finite answer to these rows.")


class CoverageUnsupported(InvalidInput):
    """Too few scored rows stand behind an age for this coverage."""

    def __init__(self, reason: str) -> None:
        super().__init__([Fault("coverage", reason)])
