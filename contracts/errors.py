"""The one tree of errors. The docstring of a class is its message if none is given.

    MorrowError
    ├── InvalidInput                a request, row, file or task that breaks a rule; names the field
    │   ├── OutsideHorizon          a moment that the answering version does not cover
    │   └── CoverageUnsupported     too few scored rows for a coverage              (service)
    ├── NotFound                    no such task, version, event or prediction
    │   └── TaskRenamed             the task has another name now
    ├── Conflict                    the request contradicts what is stored
    │   ├── TaskPaused              a task that is not retrained for now
    │   ├── TaskArchived            a task that takes no events and no questions
    │   ├── CutoffReleased          a cutoff that a release has trained already     (store)
    │   └── TaskLeaving             a name whose former task is still being deleted or renamed
    ├── NotReady                    nothing can answer yet; a later try may succeed
    │   ├── NoModel
    │   ├── NotLoaded
    │   ├── ModelExpired
    │   └── NoKeys                                                                  (service)
    ├── Unavailable                 a store we depend on does not answer
    │   ├── StoreOutage             PostgreSQL, and why                             (store)
    │   │   └── Locked              a lock that another session holds               (store)
    │   ├── RowUnreadable           rows of a ledger that no release has written    (store)
    │   ├── SealedRowsUnreadable    a file of sealed events                         (store)
    │   ├── ObjectStoreAway         the object store                                (store)
    │   ├── SpecUnreadable          a stored task that this release cannot read     (store)
    │   │   └── ChoiceUnreadable    the recipe that was chosen for one              (store)
    │   ├── RegistryRefusal         MLflow, of one request
    │   └── RegistryUnreachable     MLflow                                          (trainer.tracking)
    ├── UnreadableRequest           a request that cannot be taken as it was sent   (service)
    │   ├── Malformed
    │   ├── TooSlow
    │   ├── TooLarge
    │   └── UnsupportedContent
    │       └── UnsupportedEncoding
    ├── PreconditionFailed          an If-Match that does not hold                  (service)
    ├── Overloaded                  more is asked than can be answered              (service)
    │   └── BodiesFull              no room for one more request body               (service)
    ├── RateRefused                 a version that cannot give rates                (service)
    ├── AnswerNotFinite             a graph that answers NaN or infinity            (service)
    ├── Unauthenticated             no valid key                                    (service)
    ├── Forbidden                   a valid key without the scope                   (service)
    ├── Throttled                   a key that asks too often                       (service)
    ├── QuotaUsed                   a task with all the cycles or rows it may have  (service)
    ├── CycleError                  a retraining that must not release
    │   ├── LeaseLost
    │   ├── ArtefactRefused
    │   ├── Missing                 nothing of that name in MLflow                  (trainer.tracking)
    │   └── TakenName               another installation's task in the same MLflow  (trainer.tracking)
    ├── ObjectLost                  an object that its store has lost               (store)
    ├── Refused                     an answer of the API that is an error           (cli)
    ├── Unreachable                 an API that does not answer                     (cli)
    ├── PostgresError               the embedded PostgreSQL                         (cli)
    ├── StackError                  a part of `morrow up` that does not start       (cli)
    ├── ChildDied                   a part of `morrow up` that has ended            (cli)
    ├── RivalsFailed                the demo's rivals                               (cli)
    ├── NotServed                   a released version that does not answer         (cli)
    ├── NotStored                   an event of the demo that is refused            (cli)
    ├── LoadFailed                                                                  (benchmarks)
    ├── NotReleased                                                                 (benchmarks)
    ├── NotSwapped                                                                  (benchmarks)
    ├── PgbenchFailed                                                               (benchmarks)
    ├── ServerSilent                                                                (benchmarks)
    └── Stuck                                                                       (benchmarks)

An error that only one package raises is in the `errors` module of that package. No error knows HTTP:
`service.web.problems` gives each its problem type and status.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal


class MorrowError(Exception):
    """Morrow could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


@dataclass(frozen=True)
class Fault:
    """One broken rule: the field, and what is wrong with it in a sentence for the sender."""

    field: str
    reason: str


class InvalidInput(MorrowError):
    """The input breaks a rule of the task."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.reason}" for fault in self.faults))


class OutsideHorizon(InvalidInput):
    """The moment lies outside the range that the answering version has validated, or in a gap of its rows.

    `side` says for programs on which side of that range: `before` or `beyond`, or `between` for a `gap`.
    """

    def __init__(
        self,
        at: int,
        valid_from: int,
        valid_until: int,
        version: str,
        *,
        task: str,
        bounds: tuple[str, str],
        gaps: Sequence[tuple[int, int]] = (),
        say: Callable[[int], str] = str,
    ) -> None:
        """All moments in microseconds; a gap is its begin and its end. `bounds` are both ends of the range in words.

        `say` writes a moment in words.
        """
        self.at, self.valid_from, self.valid_until, self.version = at, valid_from, valid_until, version
        self._task, self._bounds, self._gaps, self._say = task, bounds, gaps, say
        self.gap = self._find_gap(at)
        self.side: Literal["before", "beyond", "between"] = (
            "before" if at < valid_from else "beyond" if self.gap is None else "between"
        )
        super().__init__([Fault("at", self.reason(at))])

    def reason(self, at: int) -> str:
        """What is wrong with a moment outside the range, in words, and what can be done."""
        first, last = self._bounds
        if at < self.valid_from:
            side = f"before the first row of training of version {self.version}, which is of {first}"
            remedy = "ask for a later moment, or import earlier events"
        elif (gap := self._find_gap(at)) is None:
            side = f"beyond the validated horizon of version {self.version}, which ends at {last}"
            remedy = "ask for an earlier moment, or store newer events"
        else:
            side = f"in a long gap between the rows of training of version {self.version}"
            begin, end = map(self._say, gap)
            outside = f"ask for a moment outside of it, before {begin} or from {end} on"
            remedy = f"{outside}, or import events of that time"
        return f"is {side}: {remedy} and run `morrow cycle {self._task}`"

    def _find_gap(self, at: int) -> tuple[int, int] | None:
        return next((gap for gap in self._gaps if gap[0] <= at < gap[1]), None)


class NotFound(MorrowError):
    """There is no such thing."""


class TaskRenamed(NotFound):
    """The task has another name now."""

    def __init__(self, name: str, new_name: str) -> None:
        self.new_name = new_name
        super().__init__(f"The task {name!r} was renamed: use the name {new_name!r} instead.")


class Conflict(MorrowError):
    """What is asked contradicts what is stored."""


class TaskPaused(Conflict):
    """The task is paused: no cycle of it begins until it is resumed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The task {name!r} is paused, so no cycle of it can begin: resume it with `morrow task resume {name}` "
            f"or POST /tasks/{name}/resume."
        )


class TaskArchived(Conflict):
    """The task is archived: it takes no events, questions or cycles until it is unarchived."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The task {name!r} is archived: it takes no events, questions, changes or cycles. Take it back with "
            f"`morrow task unarchive {name}` or POST /tasks/{name}/unarchive."
        )


class TaskLeaving(Conflict):
    """A task that had this name is still being deleted or renamed: it is free once the trainer is done in MLflow."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"A task that had the name {name!r} is still being deleted or renamed. The name is free once the trainer "
            "is done with it in MLflow: try again then, and see the trainer's log if that takes long."
        )


class NotReady(MorrowError):
    """Nothing can answer yet."""


class NoModel(NotReady):
    """No version of this task had been released when this process looked last."""


class NotLoaded(NotReady):
    """A version is released, and this process has not loaded it yet."""


class ModelExpired(NotReady):
    """The released version is past its horizon and no newer one is there."""


class Unavailable(MorrowError):
    """A store that this needs does not answer."""


class RegistryRefusal(Unavailable):
    """MLflow answers, and refuses this request until someone changes something."""


class CycleError(MorrowError):
    """The cycle must not release."""


class LeaseLost(CycleError):
    """Another trainer holds this cycle now, or its lease ran out."""


class ArtefactRefused(CycleError):
    """The artefact is not what its manifest promises."""
