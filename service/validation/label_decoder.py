"""Bodies and lines of labels that come apart from their events, decoded by the rules of their task.

Nothing else accepts such labels. `service.validation.explainer` says what is wrong with a refused one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from contracts.clock import parse_moment
from service.validation.columns import REFUSALS, require_printable, require_strings
from service.validation.event_decoder import EventDecoder
from service.validation.lossless_json import cut_array
from service.validation.values import Number, Text
from store.labels.late_labels import Label
from store.predictions.ids import read_id

# The name of the id and that of the label.
_NAMES = 2


@dataclass(frozen=True)
class LabelDecoder:
    """Decodes labels of one task; `events` holds them to the rules of labels of events."""

    events: EventDecoder
    one: msgspec.json.Decoder[Any]
    many: msgspec.json.Decoder[list[Any]]

    def decode(self, body: bytes) -> list[Label] | None:
        """The labels of an object or an array; None if one breaks a rule, or if there is none."""
        if body.lstrip()[:1] == b"[":
            return self._accept([body], lambda: [row for part in cut_array(body) for row in self.many.decode(part)])
        return self.decode_lines([body])

    def decode_lines(self, lines: Sequence[bytes]) -> list[Label] | None:
        """The labels of lines that hold one each; None as above."""
        return self._accept(lines, lambda: [self.one.decode(line) for line in lines])

    def _accept(self, bodies: Sequence[bytes], decode: Callable[[], list[Any]]) -> list[Label] | None:
        try:
            found, num_strings = self._check(decode())
            require_strings(bodies, num_strings)
        except REFUSALS:
            return None
        return found

    def _check(self, given: Sequence[Any]) -> tuple[list[Label], int]:
        """The labels, and the number of their names and texts in JSON."""
        if not given:
            raise ValueError
        ids = require_printable([_find_id(one) for one in given])
        labels, num_strings = self.events.lay_out_labels([one.label for one in given])
        num_strings += (_NAMES + 1) * len(given)
        known_ats: list[int | None] = []
        for one in given:
            num_strings += (one.known_at is not UNSET) + isinstance(one.known_at, str)
            known_ats.append(parse_moment(one.known_at) if isinstance(one.known_at, str) else None)
        return [Label(*one) for one in zip(ids, labels, known_ats, strict=True)], num_strings


def _find_id(given: Any) -> str:
    """The id of the event. Raises ValueError unless the label names either its event or its prediction."""
    if (given.event_id is UNSET) == (given.prediction_id is UNSET):
        raise ValueError
    if given.prediction_id is UNSET:
        event_id: str = given.event_id
        return event_id
    prediction_id = read_id(given.prediction_id)
    if prediction_id is None:
        raise ValueError
    return str(prediction_id)


def compile_label_decoder(events: EventDecoder) -> LabelDecoder:
    """The decoder of the labels of a task, whose events this one decodes."""
    label = msgspec.defstruct(
        "GivenLabel",
        [
            ("label", Text | bool if events.is_classification else Number),
            ("event_id", Text | UnsetType, UNSET),
            ("prediction_id", Text | UnsetType, UNSET),
            ("known_at", str | None | UnsetType, UNSET),
        ],
        forbid_unknown_fields=True,
        gc=False,
        kw_only=True,
    )
    return LabelDecoder(
        events=events,
        one=msgspec.json.Decoder(label),
        many=msgspec.json.Decoder(list[label]),  # type: ignore[valid-type]  # the struct is made at run time
    )
