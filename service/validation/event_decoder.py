"""Bodies and lines of events: decoded into structs that are compiled from a task, and laid out as columns.

Nothing else accepts events. `service.validation.explainer` says what is wrong with a refused row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from contracts.clock import MICROSECOND
from contracts.task import Target, Task
from contracts.truth import spell_truth
from service.validation.columns import (
    REFUSALS,
    FeatureLayout,
    compile_features,
    lay_out_moments,
    require_printable,
    require_strings,
    spell_codes,
)
from service.validation.lossless_json import cut_array
from service.validation.timestamps import parse_moments
from service.validation.values import LAST_MICRO, Number, Text, json_text
from store.events.batches import UNLABELLED, EventBatch


@dataclass(frozen=True)
class EventDecoder:
    """Decodes events of one task; `label_delay` in microseconds, `bounds` of labels if the target has any."""

    features: FeatureLayout
    label_delay: int
    is_classification: bool
    classes: frozenset[str] | None
    bounds: tuple[float, float] | None
    one: msgspec.json.Decoder[Any]
    many: msgspec.json.Decoder[list[Any]]
    correction: msgspec.json.Decoder[Any]

    def decode(self, body: bytes) -> EventBatch | None:
        """The events of an object or an array; None if one breaks a rule, or if there is none."""
        if body.lstrip()[:1] == b"[":
            return self._accept([body], lambda: [row for part in cut_array(body) for row in self.many.decode(part)])
        return self.decode_lines([body])

    def decode_lines(self, lines: Sequence[bytes]) -> EventBatch | None:
        """The events of lines that hold one each; None as above."""
        return self._accept(lines, lambda: [self.one.decode(line) for line in lines])

    def try_each(self, lines: Sequence[bytes]) -> list[bool]:
        """Whether each line decodes. A line that does may still break a rule; one that does not breaks one."""
        return [self._is_decoded(line) for line in lines]

    def decode_correction(self, body: bytes, event_id: str) -> EventBatch | None:
        """The event `event_id`, whose id the body may leave out; None if it breaks a rule or has another id."""
        try:
            given = self.correction.decode(body)
            names_its_id = given.event_id is not UNSET
            if names_its_id and given.event_id != event_id:
                return None
            given.event_id = json_text(event_id)
            batch, num_strings = self._lay_out([given])
            require_strings([body], num_strings - 2 * (not names_its_id))
        except REFUSALS:
            return None
        return batch

    def _is_decoded(self, line: bytes) -> bool:
        try:
            self.one.decode(line)
        except REFUSALS:
            return False
        return True

    def _accept(self, bodies: Sequence[bytes], decode: Callable[[], list[Any]]) -> EventBatch | None:
        try:
            batch, num_strings = self._lay_out(decode())
            require_strings(bodies, num_strings)
        except REFUSALS:
            return None
        return batch

    def _lay_out(self, given: Sequence[Any]) -> tuple[EventBatch, int]:
        """The columns of one row or more, and the number of their names and texts in JSON."""
        if not given:
            raise ValueError
        event_ids = require_printable([one.event_id for one in given])
        labels, num_classes = self.lay_out_labels([one.label for one in given])
        at = parse_moments([one.at for one in given])
        said, says_known_at, num_strings_of_known_at = lay_out_moments([one.known_at for one in given])
        known_at = np.where(says_known_at, said, at + self.label_delay)
        if (known_at < at).any() or known_at.max() > LAST_MICRO:
            raise ValueError
        if UNLABELLED in labels:
            is_unlabelled = np.array([label == UNLABELLED for label in labels])
            if (is_unlabelled & says_known_at).any():
                raise ValueError
            num_classes -= int(is_unlabelled.sum())
        columns = self.features.lay_out([one.features for one in given])
        # Four names, three without a label, and the texts of event_id, at and a class.
        num_strings = 6 * len(given) + num_classes + num_strings_of_known_at + columns.num_strings
        return EventBatch(
            event_ids, at, known_at, says_known_at, columns.numbers, columns.categories, labels
        ), num_strings

    def lay_out_labels(self, given: Sequence[Any]) -> tuple[Sequence[str], int]:
        """The labels as they are stored, and how many of them are texts in JSON. Raises ValueError."""
        if UNSET in given:
            labels, num_classes = self.lay_out_labels([label for label in given if label is not UNSET])
            known = iter(labels)
            return [UNLABELLED if label is UNSET else next(known) for label in given], num_classes
        if not given:
            return [], 0
        if not self.is_classification:
            if self.bounds is not None and not self.bounds[0] <= min(given) <= max(given) <= self.bounds[1]:
                raise ValueError
            return [repr(label + 0.0) for label in given], 0
        distinct = {*given}
        labels, num_booleans = spell_codes(given, distinct)
        classes = require_printable({*map(spell_truth, distinct)} if num_booleans else distinct)
        if self.classes is not None and not self.classes.issuperset(classes):
            raise ValueError
        return labels, len(labels) - num_booleans


def _find_bounds(target: Target) -> tuple[float, float] | None:
    if not target.has_bounds:
        return None
    return (
        -math.inf if target.minimum is None else target.minimum,
        math.inf if target.maximum is None else target.maximum,
    )


def compile_event_decoder(task: Task) -> EventDecoder:
    """The decoder of a task's events."""
    features = compile_features(task)
    event_id: tuple[str, Any] = ("event_id", Text)
    rest: list[Any] = [
        ("at", str),
        ("features", features.struct),
        ("label", (Text | bool if task.is_classification else Number) | UnsetType, UNSET),
        ("known_at", str | None | UnsetType, UNSET),
    ]
    event = msgspec.defstruct("GivenEvent", [event_id, *rest], forbid_unknown_fields=True, gc=False, kw_only=True)
    correction = msgspec.defstruct(
        "GivenCorrection",
        [("event_id", str | UnsetType, UNSET), *rest],
        forbid_unknown_fields=True,
        gc=False,
        kw_only=True,
    )
    return EventDecoder(
        features=features,
        label_delay=task.label_delay // MICROSECOND,
        is_classification=task.is_classification,
        classes=None if task.target.classes is None else frozenset(task.target.classes),
        bounds=_find_bounds(task.target),
        one=msgspec.json.Decoder(event),
        many=msgspec.json.Decoder(list[event]),  # type: ignore[valid-type]  # the struct is made at run time
        correction=msgspec.json.Decoder(correction),
    )
