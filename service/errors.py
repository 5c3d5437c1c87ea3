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
