"""The errors of the store."""

from datetime import datetime

from contracts.errors import Conflict, MorrowError, Unavailable
from contracts.failure import Failure


class StoreOutage(Unavailable):
    """PostgreSQL cannot do it now; a retry may succeed."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.reason)


class Locked(StoreOutage):
    """Another session of the database holds a lock that this needs: pg_stat_activity lists open transactions."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        Unavailable.__init__(self)


class RowUnreadable(Unavailable):
    """Rows of a ledger hold what no release of Morrow writes: the sentence names them."""


class SpecUnreadable(Unavailable):
    """The stored spec of a task is not one that this release understands."""

    def __init__(self, task: str, revision: int) -> None:
        self.task = task
        self.revision = revision
        super().__init__(
            f"Revision {revision} of the task {task!r} cannot be read by this release: a newer one has stored it, or "
            f"it was changed by hand. Run the newer release, or define the task again with PUT /tasks/{task}."
        )


class ChoiceUnreadable(SpecUnreadable):
    """The stored recipe that was chosen for a task is not one that this release understands."""

    def __init__(self, task: str, revision: int, task_id: int, recipe: str) -> None:
        super().__init__(task, revision)
        Unavailable.__init__(
            self,
            f"The recipe that was chosen for the task {task!r} cannot be read: the row of the table choices with "
            f"task_id = {task_id} and recipe = '{recipe}' was written past the API. Delete it: the next cycle "
            "chooses again.",
        )


class ObjectStoreAway(Unavailable):
    """The object store does not answer."""


class ObjectLost(MorrowError):
    """The object store does not have this object as it was written."""


class SealedRowsUnreadable(Unavailable):
    """A file of sealed events cannot be read: the sentence names the file, the reason and the remedy."""


class CutoffReleased(Conflict):
    """A cutoff that a release has trained already, begun at `began`, was asked for without the wish to train it again.

    `newer` are sentences about rows that came since.
    """

    def __init__(self, version: str, began: datetime, newer: str = "") -> None:
        self.version = version
        self.began = began
        super().__init__(
            f"{newer}This cutoff has been released already, as version {version}. To train it once more, run "
            'morrow cycle with --again, or send "again": true.'
        )
