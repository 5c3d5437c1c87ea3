"""Finds what is wrong with a refused row: every fault at once, each with its field.

Only the decoders accept rows (`event_decoder`, `question_decoder`, `query_decoder`). A row that they refuse has at
least one fault here. The field of a feature is `features.<name>` in every query and body; a row of a batch adds its
place: `rows[3].features.distance`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from contracts.clock import MICROSECOND
from contracts.errors import Fault
from contracts.shown import MAX_SHOWN, say_count
from contracts.task import Kind, Target, Task
from contracts.truth import TRUTHS, spell_truth
from service.validation.lossless_json import JsonObject
from service.validation.names import MAX_FAULTS_PER_ROW, explain_body_names, explain_names, suggest_known
from service.validation.question_decoder import AT_OF_MANY, AT_OF_QUERY
from service.validation.values import (
    NEEDS_OPTIONAL,
    NumberLiteral,
    is_in_calendar,
    is_missing,
    json_boolean,
    json_category,
    json_integer,
    json_moment,
    json_number,
    json_text,
)
from store.predictions.ids import read_id

T = TypeVar("T")

_READERS: Mapping[Kind, Callable[[object], object]] = {
    "number": json_number,
    "integer": json_integer,
    "boolean": json_boolean,
    "category": json_category,
}
MAX_CLASSES_SHOWN = 20
MAX_FEATURES_SHOWN = 3
_NULL = "is null, and the task requires it: a feature with optional = true may be missing"
_EVENT_FIELDS, _MORE_EVENT_FIELDS = ("event_id", "at", "features"), ("label", "known_at")
_A_ROW = '{"at": …, "features": {…}}'
_A_LABEL = '{"event_id": …, "label": …}'
_AN_EVENT = '{"event_id": …, "at": …, "label": …, "features": {…}}'


@dataclass(frozen=True)
class Explainer:
    """Finds the faults of one task's rows, given as `lossless_json` decodes them."""

    task: Task
    kinds: Mapping[str, Kind]

    def explain_query(self, pairs: Iterable[tuple[str, str]]) -> list[Fault]:
        """The faults of a query's names and values."""
        faults: list[Fault] = []
        at, given = None, JsonObject()
        repeated: dict[str, None] = {}
        for name, value in pairs:
            if name in given or (name == "at" and at is not None):
                repeated[name] = None
            elif name == "at":
                at = value
            else:
                given[name] = _read_query(value, self.kinds.get(name))
        if "at" in repeated:
            faults.append(Fault("at", "is given more than once"))
            del repeated["at"]
        given.repeated = tuple(repeated)
        if at is not None:
            _read(json_moment, at, "at", faults)
        self._explain_features(given, "", faults)
        return faults

    def explain_event(self, given: Any) -> list[Fault]:
        """The faults of an event: the first `MAX_FAULTS_PER_ROW`, and the number of the others."""
        if not isinstance(given, JsonObject):
            return [Fault("event", f"is not a JSON object: write {_AN_EVENT}")]
        faults = self._place_features(explain_names(given, _EVENT_FIELDS, _MORE_EVENT_FIELDS, "the fields of an event"))
        _read_field(json_text, given, "event_id", faults)
        at = _read_field(json_moment, given, "at", faults)
        self._explain_known_at(given.get("known_at"), at, faults)
        if "label" not in given and given.get("known_at") is not None:
            faults.append(Fault("known_at", "says when the label was known, and there is no label: leave it out"))
        _read_field(self._read_label, given, "label", faults)
        if "features" in given:
            self._explain_features(given["features"], "", faults)
        return _cap(faults)

    def explain_label(self, given: Any) -> list[Fault]:
        """The faults of a label that comes apart from its event."""
        if not isinstance(given, JsonObject):
            return [Fault("label", f"is not a JSON object: write {_A_LABEL}")]
        names = [name for name in ("event_id", "prediction_id") if name in given]
        needed = ("event_id", "label") if not names else ("label",)
        faults = explain_names(given, needed, ("event_id", "prediction_id", "known_at"), "the fields of a label")
        if len(names) > 1:
            faults.append(Fault("prediction_id", "is given next to event_id: one of them names the event"))
        _read_field(json_text, given, "event_id", faults)
        _read_field(_read_prediction_id, given, "prediction_id", faults)
        if given.get("known_at") is not None:
            _read(json_moment, given["known_at"], "known_at", faults)
        _read_field(self._read_label, given, "label", faults)
        return _cap(faults)

    def explain_questions(self, given: Any) -> list[Fault]:
        """The faults of a body of /predict."""
        if not isinstance(given, JsonObject):
            return [Fault("body", f'is not a JSON object: write {{"rows": [{_A_ROW}]}}')]
        if "rows" in given:
            return self._explain_rows(given)
        named = explain_body_names(given, ("features",), "the fields of a body with one row", ("at",))
        faults = self._place_features(named)
        moments = given.get("at")
        if "features" in given:
            self._explain_features(given["features"], "", faults)
        if isinstance(moments, list):
            for place, moment in enumerate(moments):
                _read(json_moment, moment, AT_OF_MANY.format(place), faults)
        elif moments is not None:
            _read(json_moment, moments, AT_OF_QUERY, faults)
        return faults

    def _explain_rows(self, given: JsonObject) -> list[Fault]:
        faults = explain_body_names(given, ("rows",), "the fields of a body with rows")
        rows = given["rows"]
        if not isinstance(rows, list):
            return [*faults, Fault("rows", f"is not an array: write [{_A_ROW}]")]
        for place, row in enumerate(rows):
            faults += _cap(self._explain_row(row, f"rows[{place}]"))
        return faults

    def _explain_row(self, given: Any, field: str) -> list[Fault]:
        if not isinstance(given, JsonObject):
            return [Fault(field, f"is not a JSON object: write {_A_ROW}")]
        named = explain_names(given, ("features",), ("at",), "the fields of a row", f"{field}.")
        faults = self._place_features(named, f"{field}.")
        if given.get("at") is not None:
            _read(json_moment, given["at"], f"{field}.at", faults)
        if "features" in given:
            self._explain_features(given["features"], f"{field}.", faults)
        return faults

    def _place_features(self, faults: Sequence[Fault], prefix: str = "") -> list[Fault]:
        """The same, but a feature that stands outside of `features`, as in a query, is told its place."""
        placed = []
        for fault in faults:
            name = fault.field.removeprefix(prefix)
            is_feature = name in self.kinds and fault.reason.startswith("is not one of")
            placed.append(Fault(fault.field, f'belongs in "features": {{"{name}": …}}') if is_feature else fault)
        return placed

    def _explain_known_at(self, given: object, at: int | None, faults: list[Fault]) -> None:
        if given is not None:
            known_at = _read(json_moment, given, "known_at", faults)
            if known_at is not None and at is not None and known_at < at:
                faults.append(Fault("known_at", "is before at"))
        elif at is not None and not is_in_calendar(at + self.task.label_delay // MICROSECOND):
            faults.append(Fault("at", "plus the task's label_delay is beyond the year 9999"))

    def _read_label(self, given: object) -> object:
        target = self.task.target
        if is_missing(given):
            found = "missing" if given is None else "NaN"
            raise ValueError(f"is {found}; send an event once its label is known, or leave label out")
        if not self.task.is_classification:
            number = json_number(given)
            if target.bound(number) != number:
                raise ValueError(f"is {number:g}, beyond {_say_bounds(target)}")
            return number
        label = json_text(spell_truth(given))
        if target.classes is not None and label not in target.classes:
            raise ValueError(f"is not one of the task's classes: {', '.join(target.classes[:MAX_CLASSES_SHOWN])}")
        return label

    def _explain_features(self, given: object, prefix: str, faults: list[Fault]) -> None:
        if not isinstance(given, JsonObject):
            written = ", ".join(f'"{feature.name}": …' for feature in self.task.features[:MAX_FEATURES_SHOWN])
            faults.append(Fault(f"{prefix}features", f"is not a JSON object: write {{{written}}}"))
            return
        prefix += "features."
        meant: Collection[str | None] = ()  # by other names
        if given.repeated or not given.keys() <= self.kinds.keys():
            faults += explain_names(given, (), self.kinds, "this task's features", prefix)
            meant = suggest_known(given, (*self.kinds,)).values()
        for feature in self.task.features:
            field = prefix + feature.name
            value = given.get(feature.name)
            if value is not None:
                read = _READERS[feature.kind]
                _read(_without_remedy(read) if feature.optional else read, value, field, faults)
            elif not feature.optional and (feature.name in given or feature.name not in meant):
                faults.append(Fault(field, _NULL if feature.name in given else "is required"))


def _read_prediction_id(value: object) -> str:
    given = json_text(value)
    if read_id(given) is None:
        raise ValueError(f"is {given[:MAX_SHOWN]}, which is the id of no answer")
    return given


def _without_remedy(read: Callable[[object], T]) -> Callable[[object], T]:
    """The same for a feature that may be missing already."""

    def read_optional(value: object) -> T:
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(str(error).removesuffix(NEEDS_OPTIONAL)) from None

    return read_optional


def _read_query(value: str, kind: Kind | None) -> object:
    """The value of a parameter, as JSON has it."""
    if kind in ("number", "integer"):
        return NumberLiteral(value)
    return TRUTHS.get(value, value) if kind == "boolean" else value


def _say_bounds(target: Target) -> str:
    bounds = {"minimum": target.minimum, "maximum": target.maximum}
    return " and ".join(f"the target's {name} {bound:g}" for name, bound in bounds.items() if bound is not None)


def _read(read: Callable[[object], T], value: object, field: str, faults: list[Fault]) -> T | None:
    """A value as `read` returns it; None with a fault if it raises ValueError."""
    try:
        return read(value)
    except ValueError as error:
        faults.append(Fault(field, str(error)))
        return None


def _read_field(read: Callable[[object], T], given: JsonObject, name: str, faults: list[Fault]) -> T | None:
    """The same for a field. None without a fault if it is absent: `explain_names` names it."""
    return _read(read, given[name], name, faults) if name in given else None


def _cap(faults: Sequence[Fault]) -> list[Fault]:
    if len(faults) <= MAX_FAULTS_PER_ROW:
        return [*faults]
    more = Fault("row", f"breaks {say_count(len(faults) - MAX_FAULTS_PER_ROW, 'more rule')}")
    return [*faults[:MAX_FAULTS_PER_ROW], more]
