"""A set of the paper, cut into domains: what all kinds of rows have in common.

Domains follow each other in time and need not be equally long: years are not. Their edges are fixed here and are never
taken from rows. Model time goes by each row's own time, while windows are numbered by domain.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.splits import Metric, Split, withheld_targets
from contracts.clock import Clock
from contracts.task import Calendar, Task, Training, read_training
from trainer.data.encoder import Encoded
from trainer.data.labels import PLAIN, LabelUnit
from trainer.network.network import Build, Network
from trainer.tuning.space import Space

DAY = 86_400_000_000
_WITHOUT_CALENDAR = read_training({"calendar": ()})


@dataclass(frozen=True)
class Encoding:
    """What a network reads of known rows and, after them, unseen ones, with constants of the known ones alone.

    dense, codes and targets as in `trainer.data.encoder.Encoded`; answers and the other fields as in `Split`. The
    caller that hands them on withholds the targets of the unseen.
    """

    dense: NDArray[np.float32]
    codes: NDArray[np.int64]
    targets: NDArray[np.int64] | NDArray[np.float32]
    answers: NDArray[np.float64]
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int
    label_unit: LabelUnit = PLAIN


class Contents(Protocol):
    """Rows in the order of `at`, before anything is learned from them."""

    @property
    def at(self) -> NDArray[np.int64]:
        """Moments `(n,)` in microseconds, not decreasing."""

    @property
    def task(self) -> Task | None:
        """The service's task for this set; None for rows that it cannot hold."""

    @property
    def metric(self) -> Metric: ...

    @property
    def build(self) -> Build[Network]:
        """The network that reads such rows."""

    def encode(self, known: slice, unseen: slice, training: Training, /) -> Encoding:
        """Encode `unseen`, which begins where `known` ends, by what is learned from `known`.

        Of the recipe, only the calendar and the forms of numbers and labels count, if the rows have any.
        """


@dataclass(frozen=True)
class PaperSet:
    """A set's rows, and the edges of its domains in microseconds, one more than there are domains.

    The paper tests on the domain `test_origin`. `calendars` are the phases that mean something because times are real.
    `space` holds the values of settings that a recipe is chosen from, if the service's own do not suit.
    """

    name: str
    title: str
    contents: Contents
    edges: tuple[int, ...]
    clock: Clock
    test_origin: int
    files: tuple[str, ...] = ()
    calendars: tuple[Calendar, ...] = ()
    space: Space = field(default_factory=dict)

    @property
    def num_domains(self) -> int:
        return len(self.edges) - 1

    @property
    def metric(self) -> Metric:
        return self.contents.metric

    @property
    def task(self) -> Task | None:
        return self.contents.task

    @property
    def domain_sizes(self) -> tuple[int, ...]:
        """Rows of each domain."""
        return tuple(np.diff(self._places()).tolist())

    def split(self, origin: int, training: Training = _WITHOUT_CALENDAR) -> Split:
        """Domains 0 to origin − 1 as known rows, domain `origin` as unseen ones.

        The clock's unit is the set's, 0 at the domain's edge; row windows are `domain · clock.window`, so `origin ·
        clock.window` is the cutoff among them. `training` must be the recipe which reads the split. Raises ValueError
        for an origin without domains on both sides, and for a phase of its calendar that the set does not have.
        """
        if not 1 <= origin < self.num_domains:
            raise ValueError(f"{self.name} has origins 1 to {self.num_domains - 1}, not {origin}")
        if not set(training.calendar) <= set(self.calendars):
            raise ValueError(f"{self.name} knows the phases {self.calendars}, not all of {training.calendar}")
        places = self._places()[: origin + 2]
        first, middle, end = places[0], places[origin], places[-1]
        encoding = self.contents.encode(slice(first, middle), slice(middle, end), training)
        u = self.clock.model_time(self.contents.at[first:end], self.edges[origin])
        windows = np.repeat(np.arange(origin + 1) * self.clock.window, np.diff(places))

        def part(rows: slice) -> Encoded:
            return Encoded(encoding.dense[rows], encoding.codes[rows], u[rows], encoding.targets[rows], windows[rows])

        num_known = middle - first
        return Split(
            origin=origin,
            clock=self.clock,
            known=part(slice(num_known)),
            unseen=withheld_targets(part(slice(num_known, None))),
            answers=encoding.answers[num_known:],
            vocabulary_sizes=encoding.vocabulary_sizes,
            num_outputs=encoding.num_outputs,
            metric=self.metric,
            label_unit=encoding.label_unit,
            build=self.contents.build,
        )

    def _places(self) -> NDArray[np.intp]:
        """Position of the first row of each domain, and of the first after them all."""
        return np.searchsorted(self.contents.at, np.array(self.edges))


def even_edges(first: int, window: int, num_domains: int) -> tuple[int, ...]:
    """Edges of domains that are all one window long."""
    return tuple(first + window * number for number in range(num_domains + 1))


def clock_of(window: int, num_domains: int) -> Clock:
    """A clock whose unit of model time is the whole set."""
    return Clock(window=window, offset=0, span=num_domains * window)
