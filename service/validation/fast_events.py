"""The quick way to accept events: whole bodies decoded into structs and laid out as columns.

As in `service.validation.fast_bodies`, a body is accepted here only where nothing about it is doubtful; in any doubt
the answer is None, and `service.validation.rules` judges it value by value and finds the words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from contracts.clock import MICROSECOND
from contracts.task import Task
from service.validation.fast_bodies import (
    DOUBTFUL,
    Doubt,
    compile_features,
    count_quotes,
    lay_out_features,
    lay_out_moments,
    require_exact,
    require_texts,
)
from service.validation.timestamps import parse_moments
from service.validation.values import LAST_MICRO
from store.batches import EventBatch


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
        event_ids = require_texts([one.event_id for one in given])
        at = parse_moments([one.at for one in given])
        said, says_known_at, quotes_of_known_at = lay_out_moments([one.known_at for one in given])
        known_at = np.where(says_known_at, said, at + self.label_delay)
        if (known_at < at).any() or known_at.max() > LAST_MICRO:
            raise Doubt
        numbers, categories, quotes_of_features = lay_out_features([one.features for one in given], self.num_numbers)
        labels = self._lay_out_labels([one.label for one in given])
        # Four names and the texts of the first two; then those of each part.
        quotes = (12 + 2 * self.has_text_label) * len(given) + quotes_of_known_at + quotes_of_features
        return EventBatch(event_ids, at, known_at, says_known_at, numbers, categories, labels), quotes

    def _lay_out_labels(self, given: Sequence[Any]) -> Sequence[str]:
        if not self.has_text_label:
            require_exact(np.array(given))
            return [repr(label + 0.0) for label in given]
        classes = require_texts({*given})
        if self.classes is not None and not self.classes.issuperset(classes):
            raise Doubt
        return given


def compile_event_structs(task: Task) -> EventStructs:
    """Structs and decoders for the events of a task."""
    event = msgspec.defstruct(
        "GivenEvent",
        [
            ("event_id", str),
            ("at", str),
            ("features", compile_features(task)),
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
