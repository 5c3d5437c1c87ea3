"""How many bytes of request bodies one process holds at once, over all of its connections.

Room is reserved before a body is read, and given back once its request is answered: until then, the body or what was
decoded from it may wait for a thread or the database. A request that finds no room is refused, so that it can be sent
again, to another process perhaps.
"""

from types import TracebackType
from typing import Self

from starlette.types import Scope

from service.errors import BodiesFull

# What the server reads of a body before anybody asks for it. Bodies no longer than that need no room, so that events
# and questions of a usual size are taken while large ones fill the budget.
FREE_BYTES = 2**16
# Where the loan of a request is, in the state of its scope.
_LOAN = "morrow.body"


class BodyBudget:
    """The room for bodies of one process."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.num_lent = 0

    def lend(self, scope: Scope) -> "BodyLoan":
        """The loan of one request, which holds nothing yet."""
        loan = BodyLoan(self)
        scope.setdefault("state", {})[_LOAN] = loan
        return loan


class BodyLoan:
    """The room that one request holds; leave it as a context manager to give it back."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.num_lent -= self._num_bytes
        self._num_bytes = 0

    def hold(self, num_bytes: int) -> None:
        """Hold room for a body of at least this size. Raises BodiesFull."""
        more = num_bytes - self._num_bytes
        if num_bytes <= FREE_BYTES or more <= 0:
            return
        budget = self._budget
        if budget.num_lent + more > budget.num_bytes:
            raise BodiesFull(num_bytes, budget.num_bytes)
        budget.num_lent += more
        self._num_bytes = num_bytes


def loan_of(scope: Scope) -> BodyLoan | None:
    """The loan of a request; None outside a server's app, where nothing is limited."""
    loan: BodyLoan | None = scope.get("state", {}).get(_LOAN)
    return loan
