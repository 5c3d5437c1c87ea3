"""The quick way to accept events: whole bodies decoded into structs and laid out as columns.

As in `service.structs`, a body is accepted here only where nothing about it is doubtful; in any doubt the answer is
None, and `service.rows` judges it value by value and finds the words.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from contracts.batches import EventBatch
from contracts.clock import MICROSECOND
from contracts.task import Feature, Task
from service.literals import EXACT_INTEGER, LAST_MICRO, are_texts
from service.moments import parse_moments
from service.structs import DOUBTFUL, Doubt, Field, compile_features, count_quotes

_Texts = TypeVar("_Texts", bound=Collection[str])


@dataclass(frozen=True)
class EventStructs:
    """Decoders of one task's events, and what is needed to lay their structs out as columns."""

    num_numbers: int
    label_delay: int
    classes: frozenset[str] | None
    has_text_label: bool
    one: msgspec.json.Decoder[Any]
    many: msgspec.json.Decoder[Any]

    def accept_body(self, body: bytes) -> EventBatch | None:
        """The events of an object or array; None where the body must be judged."""
        if body.lstrip()[:1] == b"[":
            return self._accept(lambda: self.many.decode(body), [body])
        return self.accept_lines([body])

    def accept_lines(self, lines: Sequence[bytes]) -> EventBatch | None:
        """The events that objects are; None where any of them must be judged."""
        return self._accept(lambda: [self.one.decode(line) for line in lines], lines)

    def _accept(self, decode: Callable[[], list[Any]], bodies: Sequence[bytes]) -> EventBatch | None:
        try:
            batch, quotes = self._lay_out(decode())
        except DOUBTFUL:
            return None
        return batch if quotes == sum(map(count_quotes, bodies)) else None

    def _lay_out(self, given: Sequence[Any]) -> tuple[EventBatch, int]:
        """The columns of structs, and how many quotation marks their names and texts take."""
        if not given:
            raise Doubt
        event_ids = _require_texts([one.event_id for one in given])
        at = parse_moments([one.at for one in given])
        known_at, says_known_at, quotes_of_known_at = self._lay_out_known_at([one.known_at for one in given], at)
        values = [msgspec.structs.astuple(one.features) for one in given]
        numbers, num_names = _lay_out_numbers([one[: self.num_numbers] for one in values])
        categories, quotes_of_categories = _lay_out_categories([one[self.num_numbers :] for one in values])
        labels = self._lay_out_labels([one.label for one in given])
        # Four names and the texts of the first two; then those of each part.
        quotes = (12 + 2 * self.has_text_label) * len(given) + quotes_of_known_at + 2 * num_names + quotes_of_categories
        return EventBatch(event_ids, at, known_at, says_known_at, numbers, categories, labels), quotes

    def _lay_out_known_at(
        self, given: Sequence[str | UnsetType | None], at: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
        known_at, says = at + self.label_delay, np.zeros(len(given), np.bool_)
        num_named = len(given) - given.count(UNSET)
        said = [moment for moment in given if isinstance(moment, str)] if num_named else []
        if said:
            says[:] = [isinstance(moment, str) for moment in given]
            known_at[says] = parse_moments(said)
        if (known_at < at).any() or known_at.max() > LAST_MICRO:
            raise Doubt
        return known_at, says, 2 * num_named + 2 * len(said)

    def _lay_out_labels(self, given: Sequence[Any]) -> Sequence[str]:
        if not self.has_text_label:
            _require_exact(np.array(given))
            return [repr(label + 0.0) for label in given]
        classes = _require_texts({*given})
        if self.classes is not None and not self.classes.issuperset(classes):
            raise Doubt
        return given


def _lay_out_numbers(rows: Sequence[Sequence[float | None]]) -> tuple[NDArray[np.float64], int]:
    """Numbers `(n, p)`, NaN where null or absent, and how many of them are named."""
    flat = list(chain.from_iterable(rows))
    numbers = _require_exact(np.array(flat, np.float64)).reshape(len(rows), -1)
    num_missing = int(np.isnan(numbers).sum())
    return numbers, len(flat) - num_missing + (flat.count(None) if num_missing else 0)


def _lay_out_categories(rows: Sequence[Sequence[str | UnsetType | None]]) -> tuple[Sequence[str], int]:
    """Categories row after row, "" where null or absent, and the quotation marks of their names and texts."""
    flat = list(chain.from_iterable(rows))
    present = [text for text in flat if isinstance(text, str)]
    _require_texts({*present})
    quotes = 2 * (len(flat) - flat.count(UNSET)) + 2 * len(present)
    return present if len(present) == len(flat) else [text if isinstance(text, str) else "" for text in flat], quotes


def _require_texts(texts: _Texts) -> _Texts:
    if not are_texts(texts):
        raise Doubt
    return texts


def _require_exact(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers without minus zero. What may have been a large integer, rounded already, is in doubt."""
    if (np.abs(numbers) >= EXACT_INTEGER).any():
        raise Doubt
    return numbers + 0.0


def compile_event_structs(task: Task) -> EventStructs:
    """Structs and decoders for the events of a task."""
    event = msgspec.defstruct(
        "GivenEvent",
        [
            ("event_id", str),
            ("at", str),
            ("features", compile_features(task, _field)),
            ("label", str if task.is_classification else float),
            ("known_at", str | None | UnsetType, UNSET),
        ],
        forbid_unknown_fields=True,
        gc=False,
    )
    return EventStructs(
        num_numbers=len(task.numbers),
        label_delay=task.label_delay // MICROSECOND,
        classes=None if task.target.classes is None else frozenset(task.target.classes),
        has_text_label=task.is_classification,
        one=msgspec.json.Decoder(event),
        many=msgspec.json.Decoder(list[event]),  # type: ignore[valid-type]
    )


def _field(name: str, feature: Feature) -> Field:
    """No JSON is NaN, so a number that is NaN was absent."""
    if feature.kind == "number":
        return (name, float | None, math.nan) if feature.optional else (name, float)
    return (name, str | None | UnsetType, UNSET) if feature.optional else (name, str)
