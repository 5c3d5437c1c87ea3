"""Checked rows on their way into the store: single ones, or as columns, so that Python does no work per row."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

# The label of a row that has none yet. No class is empty.
UNLABELLED = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One checked row. Moments in microseconds; a missing number is NaN, a missing category is "".

    `says_known_at` is whether the sender gave `known_at`; otherwise it is `at` plus the task's `label_delay`. A row
    without a label has `UNLABELLED`.
    """

    event_id: str
    at: int
    known_at: int
    numbers: tuple[float, ...]
    categories: tuple[str, ...]
    label: str
    says_known_at: bool = True

    def is_told_by(self, stored: "Event") -> bool:
        """Whether another row of the event holds every value of this one; NaN equals NaN, as in PostgreSQL."""
        said = self.at, self.numbers, self.categories
        if repr(said) != repr((stored.at, stored.numbers, stored.categories)):
            return False
        if self.label not in (UNLABELLED, stored.label):
            return False
        return not self.says_known_at or self.known_at == stored.known_at


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Checked rows as columns.

    event_ids, labels                      n texts
    at, known_at    (n,)    int64          microseconds
    says_known_at   (n,)    bool
    numbers         (n, p)  float64        NaN if missing
    categories                             n·q texts, row after row, "" if missing
    """

    event_ids: Sequence[str]
    at: NDArray[np.int64]
    known_at: NDArray[np.int64]
    says_known_at: NDArray[np.bool_]
    numbers: NDArray[np.float64]
    categories: Sequence[str]
    labels: Sequence[str]

    @staticmethod
    def of(rows: Sequence[Event]) -> "EventBatch":
        """The columns of at least one row."""
        return EventBatch(
            [row.event_id for row in rows],
            np.array([row.at for row in rows], np.int64),
            np.array([row.known_at for row in rows], np.int64),
            np.array([row.says_known_at for row in rows], np.bool_),
            np.array([row.numbers for row in rows], np.float64),
            list(chain.from_iterable(row.categories for row in rows)),
            [row.label for row in rows],
        )

    def __len__(self) -> int:
        return len(self.event_ids)

    def row(self, place: int) -> Event:
        """One of the rows."""
        return Event(
            self.event_ids[place],
            int(self.at[place]),
            int(self.known_at[place]),
            tuple(self.numbers[place].tolist()),
            tuple(self._categories_of(place)),
            self.labels[place],
            bool(self.says_known_at[place]),
        )

    def rows(self) -> list[Event]:
        """All of them."""
        values = zip(
            self.event_ids,
            self.at.tolist(),
            self.known_at.tolist(),
            map(tuple, self.numbers.tolist()),
            [tuple(self._categories_of(place)) for place in range(len(self))],
            self.labels,
            self.says_known_at.tolist(),
            strict=True,
        )
        return [Event(*row) for row in values]

    @property
    def unlabelled(self) -> list[int]:
        """The places of rows without a label."""
        if UNLABELLED not in self.labels:
            return []
        return [place for place, label in enumerate(self.labels) if label == UNLABELLED]

    def select(self, places: Sequence[int]) -> "EventBatch":
        """The rows at these places."""
        return EventBatch(
            [self.event_ids[place] for place in places],
            self.at[places],
            self.known_at[places],
            self.says_known_at[places],
            self.numbers[places],
            list(chain.from_iterable(self._categories_of(place) for place in places)),
            [self.labels[place] for place in places],
        )

    def _categories_of(self, place: int) -> Sequence[str]:
        width = len(self.categories) // len(self)
        return self.categories[place * width : (place + 1) * width]
