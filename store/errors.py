"""The errors of the store."""

from contracts.errors import Unavailable
from contracts.failure import Failure


class StoreOutage(Unavailable):
    """PostgreSQL cannot do it now; a retry may succeed."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.reason)
