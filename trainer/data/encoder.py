"""Encode events as a network's inputs, with constants from the rows of one fit alone.

An `Encoder` is fitted on exactly the rows that its fit may use, so nothing that happened or became known later can
reach a weight. Its numbers are robust: one absurd value in a window neither overflows nor flattens its feature.
`trainer.export.input_graph` writes the same encoding into the released graph, so change both together.

Columns of dense, d = p + l·p + o + 2c:

    p   numbers in task order, as in `trainer.data.numbers`, within ±10, or positions among pieces if `has_pieces`; the
        fit's median if missing
    l·p differences of numbers from their levels in the same form, level by level, as in `trainer.data.levels`
    o   1.0 if an optional number is missing, else 0.0; one column per optional number, in task order
    2c  sine and cosine of each calendar phase, in the order of `training.calendar`
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.clock import Clock
from contracts.errors import CycleError
from contracts.task import Calendar, Task, View
from store.events.reading.columns import EventColumns
from trainer.data.labels import PLAIN, LabelUnit, find_usual_range, fit_label_unit
from trainer.data.levels import Levels, fit_levels
from trainer.data.numbers import Number, fit_number, num_pieces

# A category value seen less often in a fit falls into the unseen bucket; so that bucket has rows to train on.
MIN_SEEN = 5
UNSEEN = 0
UNKNOWN_CLASS = -1
_ROWS_PER_PIECE = 65_536

DAY = 86_400_000_000
PERIODS: dict[Calendar, int] = {"day": DAY, "week": 7 * DAY, "year": 31_556_952_000_000}  # 365.2425 days, microseconds


@dataclass(frozen=True)
class Encoder:
    """The constants of one fit. `cutoff` in microseconds; `classes` is empty for regression.

    If `has_pieces`, numbers are positions among pieces, which the network tells apart. A category's code is 1 + its
    position in its vocabulary, 0 for every other value. `label_unit` is for regression. `views` are those that the
    members of a cohort read in turn; each of them that is not plain has its levels.
    """

    cutoff: int
    clock: Clock
    calendar: tuple[Calendar, ...]
    numbers: tuple[Number, ...]
    vocabularies: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...]
    label_unit: LabelUnit
    has_pieces: bool = False
    views: tuple[View, ...] = ("plain",)
    levels: Mapping[View, Levels] = field(default_factory=dict)

    @property
    def is_classification(self) -> bool:
        return bool(self.classes)

    @property
    def num_outputs(self) -> int:
        """Number of a network's outputs: one logit per class, or (mean, log-scale)."""
        return len(self.classes) or 2

    @property
    def vocabulary_sizes(self) -> tuple[int, ...]:
        """Number of codes of each category feature, the unseen bucket included."""
        return tuple(1 + len(vocabulary) for vocabulary in self.vocabularies)

    @property
    def num_calendar(self) -> int:
        return 2 * len(self.calendar)

    @property
    def num_positions(self) -> int:
        """How many of the first columns of dense are positions among pieces."""
        return len(self.amounts) if self.has_pieces else 0

    @property
    def amounts(self) -> tuple[Number, ...]:
        """The constants of the numbers and of their differences, in the order of the columns of dense."""
        differences = (number for levels in self.levels.values() for number in levels.differences)
        return (*self.numbers, *differences)

    @property
    def num_dense(self) -> int:
        return len(self.amounts) + sum(number.is_optional for number in self.numbers) + self.num_calendar

    @property
    def unread(self) -> tuple[tuple[int, ...], ...]:
        """Columns of dense that the members with each view do not read: the differences of other views."""
        count = len(self.numbers)
        block = {view: range(count * place, count * (place + 1)) for place, view in enumerate(self.levels, start=1)}
        return tuple(
            tuple(column for other, columns in block.items() if other != view for column in columns)
            for view in self.views
        )


@dataclass(frozen=True)
class Encoded:
    """A network's inputs, one row per event in the order of the events, which is that of `at`.

    dense    (n, d)  float32  columns as in the module's docstring
    codes    (n, q)  int64    one code per category feature, 0 for unseen
    u        (n,)    float32  model time, 0 at the cutoff
    targets  (n,)    int64 class index, -1 for a class that the encoder does not know; or float32 standardised label
    windows  (n,)    int64    start of each row's window, microseconds

    The first `num_positions` columns of dense are positions among pieces, as in `trainer.data.numbers`.
    """

    dense: NDArray[np.float32]
    codes: NDArray[np.int64]
    u: NDArray[np.float32]
    targets: NDArray[np.int64] | NDArray[np.float32]
    windows: NDArray[np.int64]
    num_positions: int = 0

    def __len__(self) -> int:
        return len(self.u)

    @property
    def num_dense(self) -> int:
        return int(self.dense.shape[1])

    @property
    def num_codes(self) -> int:
        return int(self.codes.shape[1])

    @property
    def has_classes(self) -> bool:
        return np.issubdtype(self.targets.dtype, np.integer)

    def take(self, which: NDArray[np.integer[Any] | np.bool_] | slice) -> "Encoded":
        """The rows with these numbers, or of this mask or slice."""
        return Encoded(
            dense=self.dense[which],
            codes=self.codes[which],
            u=self.u[which],
            targets=self.targets[which],
            windows=self.windows[which],
            num_positions=self.num_positions,
        )


@dataclass(frozen=True)
class EncodedOnDemand:
    """The same rows, encoded whenever some of them are taken: slower than `Encoded`, but without its memory."""

    encoder: Encoder
    rows: EventColumns

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_dense(self) -> int:
        return self.encoder.num_dense

    @property
    def num_positions(self) -> int:
        return self.encoder.num_positions

    @property
    def num_codes(self) -> int:
        return len(self.encoder.vocabularies)

    @property
    def has_classes(self) -> bool:
        return self.encoder.is_classification

    @property
    def windows(self) -> NDArray[np.int64]:
        """As of `Encoded`, computed each time."""
        return self.encoder.clock.window_starts(self.rows.at)

    def take(self, numbers: NDArray[np.integer[Any]]) -> Encoded:
        """The rows with these numbers, encoded: bit by bit those of `Encoded`."""
        return encode(self.encoder, self.rows.select(numbers))


FitRows = Encoded | EncodedOnDemand


def prepare(fits: Sequence[tuple[Encoder, EventColumns]], encoded_mib: int) -> list[FitRows]:
    """The rows of fits that are trained side by side: encoded, or on demand if that would take more than these MiB."""
    num_bytes = sum(len(rows) * _bytes_per_row(encoder) for encoder, rows in fits)
    if num_bytes > encoded_mib * 2**20:
        return [EncodedOnDemand(encoder, rows) for encoder, rows in fits]
    return [encode(encoder, rows) for encoder, rows in fits]


def _bytes_per_row(encoder: Encoder) -> int:
    target = 8 if encoder.is_classification else 4
    return 4 * encoder.num_dense + 8 * len(encoder.vocabularies) + 4 + target + 8


def fit_encoder(task: Task, rows: EventColumns, cutoff: int, which: NDArray[np.bool_] | None = None) -> Encoder:
    """Fit the constants on these rows; `which` masks the rows that this fit may use, all if None.

    Columns are processed one by one, so a fit on nearly all rows of a large reading never copies all columns at once.

    Raises CycleError if the classes are not listed and the rows have fewer than two, or if
    `trainer.data.labels.fit_label_unit` does.
    """

    def taken(column: NDArray[Any]) -> NDArray[Any]:
        return column if which is None else column[which]

    labels = taken(rows.labels)
    classes = _classes(task, labels, rows.classes) if task.is_classification else ()
    unit = PLAIN
    if not task.is_classification:
        usual = find_usual_range(task, rows, which)
        unit = fit_label_unit(task.target.name, labels, task.training.label_form, usual)
    form, leveled = task.training.number_form, [view for view in dict.fromkeys(task.training.views) if view != "plain"]
    chosen = rows if which is None else rows.select(which)
    max_pieces = num_pieces(len(task.numbers) * (1 + len(leveled)))
    numbers = tuple(
        fit_number(taken(rows.number(j)), feature.optional, form, max_pieces) for j, feature in enumerate(task.numbers)
    )
    return Encoder(
        cutoff=cutoff,
        clock=task.clock,
        calendar=task.training.calendar,
        numbers=numbers,
        vocabularies=tuple(
            _fit_vocabulary(taken(rows.category(j)), known) for j, known in enumerate(rows.vocabularies)
        ),
        classes=classes,
        label_unit=unit,
        has_pieces=form == "piecewise",
        views=task.training.views,
        levels={
            view: fit_levels(task, view, numbers, chosen, cutoff=cutoff, max_pieces=max_pieces)
            for view in leveled
            if numbers
        },
    )


def encode(encoder: Encoder, rows: EventColumns, which: NDArray[np.bool_] | None = None) -> Encoded:
    """Encode rows of any time; `which` masks the rows to encode, all if None.

    Targets of -1 are left to the caller. Besides the result, this takes the memory of some thousands of rows.
    """
    num_rows = len(rows) if which is None else int(np.count_nonzero(which))
    encoded = Encoded(
        dense=np.empty((num_rows, encoder.num_dense), np.float32),
        codes=np.empty((num_rows, len(encoder.vocabularies)), np.int64),
        u=np.empty(num_rows, np.float32),
        targets=np.empty(num_rows, np.int64) if encoder.is_classification else np.empty(num_rows, np.float32),
        windows=np.empty(num_rows, np.int64),
        num_positions=encoder.num_positions,
    )
    codes_of = [_codes(*both) for both in zip(encoder.vocabularies, rows.vocabularies, strict=True)]
    end = 0
    for first in range(0, len(rows), _ROWS_PER_PIECE):
        here = slice(first, first + _ROWS_PER_PIECE)
        piece = rows.select(here) if which is None else rows.select(here).select(which[here])
        start, end = end, end + len(piece)
        _fill_dense(encoded.dense[start:end], encoder, piece)
        for j, codes in enumerate(codes_of):
            encoded.codes[start:end, j] = codes[piece.categories[:, j]]
        encoded.u[start:end] = encoder.clock.model_time(piece.at, encoder.cutoff)
        encoded.targets[start:end] = _targets(encoder, piece)
        encoded.windows[start:end] = encoder.clock.window_starts(piece.at)
    return encoded


def phase(at: NDArray[np.int64], name: Calendar) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sine and cosine `(n,)` of the elapsed part of a day, week or year; the year is the mean Gregorian one."""
    angle = (at % PERIODS[name]) * (2 * math.pi / PERIODS[name])
    return np.sin(angle), np.cos(angle)


def class_positions(classes: Sequence[str], rows: EventColumns) -> NDArray[np.int64]:
    """Position `(n,)` of each row's class among those of a fit; −1 for a class that the fit never saw."""
    position = {name: k for k, name in enumerate(classes)}
    return np.array([position.get(name, UNKNOWN_CLASS) for name in rows.classes], np.int64)[rows.labels.astype(np.intp)]


def _classes(task: Task, labels: NDArray[Any], known: Sequence[str]) -> tuple[str, ...]:
    if task.target.classes is not None:
        return task.target.classes
    seen = tuple(sorted(known[k] for k in np.flatnonzero(np.bincount(labels.astype(np.intp))).tolist()))
    if len(seen) < 2:
        raise CycleError(f"{task.target.name} has {len(seen)} class in the rows of this fit; at least two are needed.")
    return seen


def _fit_vocabulary(positions: NDArray[np.integer[Any]], known: Sequence[str]) -> tuple[str, ...]:
    counts = np.bincount(positions, minlength=len(known))
    return tuple(sorted(known[int(k)] for k in np.flatnonzero(counts >= MIN_SEEN)))


def _fill_dense(dense: NDArray[np.float32], encoder: Encoder, rows: EventColumns) -> None:
    num_numbers = len(encoder.numbers)
    for block, levels in enumerate(encoder.levels.values(), start=1):
        levels.encode(rows.numbers, rows.at, out=dense[:, num_numbers * block : num_numbers * (block + 1)])
    indicator = len(encoder.amounts)
    for j, number in enumerate(encoder.numbers):
        dense[:, j] = number.encode(rows.numbers[:, j])
        if number.is_optional:
            dense[:, indicator] = np.isnan(rows.numbers[:, j])
            indicator += 1
    for j, name in enumerate(encoder.calendar):
        dense[:, indicator + 2 * j], dense[:, indicator + 2 * j + 1] = phase(rows.at, name)


def _codes(vocabulary: Sequence[str], known: Sequence[str]) -> NDArray[np.int64]:
    """The code of each of the known values."""
    code_of = {value: code for code, value in enumerate(vocabulary, start=1)}
    return np.array([code_of.get(value, UNSEEN) for value in known], np.int64)


def _targets(encoder: Encoder, rows: EventColumns) -> NDArray[np.int64] | NDArray[np.float32]:
    if encoder.is_classification:
        return class_positions(encoder.classes, rows)
    return encoder.label_unit.targets(rows.labels)
