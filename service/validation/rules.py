"""The one validation of rows, compiled from a task, for all three entrances: GET and POST /predict, and /events.

Quick ways come first (`service.validation.fast_bodies`, `service.validation.fast_query`,
`service.validation.fast_events`); where they have a doubt,
every value is judged by itself and all faults of a row are reported at once, each with its field. A feature's field is
`features.<name>` in every entrance; rows of a batch carry their place: `rows[3].features.distance`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

from starlette.exceptions import HTTPException

from contracts.clock import MICROSECOND
from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from service.validation.fast_bodies import (
    AT_OF_MANY,
    AT_OF_ROW,
    Questions,
    Row,
    RowStructs,
    compile_structs,
    lay_out_rows,
)
from service.validation.fast_events import EventStructs, compile_event_structs
from service.validation.fast_query import QueryStructs, compile_query_structs
from service.validation.lossless_json import JsonObject, decode_json, decode_rows, decode_text, limit_values
from service.validation.names import MAX_FAULTS_PER_ROW, judge_body_names, judge_names
from service.validation.values import NumberLiteral, is_in_calendar, json_moment, json_number, json_text
from store.batches import Event, EventBatch

# Values that a row may hold beside its features on average, its faults included; a small body may hold more.
_MORE_VALUES_PER_ROW = 8
_ALWAYS_READ = 10_000
T = TypeVar("T")

_EVENT_FIELDS = ("event_id", "at", "features", "label")


@dataclass(frozen=True)
class Refusal:
    """A row that breaks rules: all of them, and the row as it was sent."""

    event_id: str | None
    faults: tuple[Fault, ...]
    payload: str


@dataclass(frozen=True)
class RowRules:
    """What a task asks of its rows."""

    task: Task
    structs: RowStructs
    queries: QueryStructs
    events: EventStructs
    kinds: Mapping[str, Literal["number", "category"]]

    def read_query(self, pairs: Iterable[tuple[str, str]], found: Sequence[Fault] = ()) -> Row:
        """One row from `at` and the features. Raises InvalidInput with every fault, those found before included."""
        faults = [*found]
        at, given = None, JsonObject()
        repeated: dict[str, None] = {}
        for name, value in pairs:
            if name in given or (name == "at" and at is not None):
                repeated[name] = None
            elif name == "at":
                at = value
            else:
                given[name] = NumberLiteral(value) if self.kinds.get(name) == "number" else value
        if "at" in repeated:
            faults.append(Fault("at", "is given more than once"))
            del repeated["at"]
        given.repeated = tuple(repeated)
        micros = None if at is None else _judge(json_moment, at, "at", faults)
        numbers, categories = self._judge_features(given, "", faults)
        _raise_any(faults)
        return Row(micros, numbers, categories)

    def read_events(self, body: bytes, max_rows: int) -> EventBatch | list[Event | Refusal]:
        """The events of an object or an array: columns where none is doubtful, else each row in its order.

        Raises HTTPException: 400 where the body is not JSON at all, 413 for more than `max_rows` or their values.
        """
        self._limit_values(body, max_rows)
        batch = self.events.accept_body(body)
        if batch is not None:
            _limit_rows(len(batch), max_rows)
            return batch
        rows = decode_rows(decode_text(body))
        _limit_rows(len(rows), max_rows)
        return [self._judge_event(value, payload) for value, payload in rows]

    def read_lines(self, lines: Sequence[bytes]) -> EventBatch | list[Event | Refusal]:
        """The same of the lines of a stream; one that is not JSON is refused like any other."""
        batch = self.events.accept_lines(lines)
        if batch is not None:
            return batch
        if len(lines) == 1:
            return [self._judge_line(lines[0])]
        half = len(lines) // 2  # the one that is free of doubt goes the quick way
        return [*each(self.read_lines(lines[:half])), *each(self.read_lines(lines[half:]))]

    def read_correction(self, body: bytes, event_id: str) -> Event | Refusal:
        """One event, judged as `read_events` does; its `event_id` may be left out, or is this one.

        Raises HTTPException as `read_events`, and InvalidInput where it is of another id: nobody can say of which of
        the two events it tells, so it is no row of either.
        """
        self._limit_values(body, 1)
        text = decode_text(body)
        given = decode_json(text)
        if isinstance(given, JsonObject) and given.setdefault("event_id", event_id) != event_id:
            raise InvalidInput([Fault("event_id", "differs from the id in the path")])
        judged = self._judge_event(given, text)
        return replace(judged, event_id=event_id) if isinstance(judged, Refusal) else judged

    def read_questions(self, body: bytes, max_rows: int, found: Sequence[Fault] = ()) -> Questions:
        """The questions of a body of /predict: `{"rows": [{"at", "features"}]}`, or one row and many `at`.

        Raises InvalidInput with every fault, those that were found before included, HTTPException as `read_events`.
        """
        self._limit_values(body, max_rows)
        questions = self.structs.accept_questions(body)
        if questions is None:
            questions = self._judge_questions(decode_json(decode_text(body)), max_rows, found)
        _raise_any(found)
        _limit_rows(len(questions), max_rows)
        if not len(questions):
            raise InvalidInput([Fault("rows", "holds no row")])
        return questions

    def _judge_line(self, line: bytes) -> Event | Refusal:
        payload = line.decode("utf-8", "backslashreplace")
        try:
            self._limit_values(line, 1)
            return self._judge_event(decode_json(decode_text(line)), payload)
        except HTTPException as error:
            return Refusal(None, (Fault("event", error.detail),), payload)

    def _limit_values(self, body: bytes, max_rows: int) -> None:
        limit_values(body, max(_ALWAYS_READ, max_rows * (len(self.kinds) + _MORE_VALUES_PER_ROW)))

    def _judge_event(self, given: Any, payload: str) -> Event | Refusal:
        if not isinstance(given, JsonObject):
            return Refusal(None, (Fault("event", "is not a JSON object"),), payload)
        faults = judge_names(given, _EVENT_FIELDS, ("known_at",), "the fields of an event")
        event_id = _judge_field(json_text, given, "event_id", faults)
        at = _judge_field(json_moment, given, "at", faults)
        known_at = self._judge_known_at(given.get("known_at"), at, faults)
        label = _judge_field(self._judge_label, given, "label", faults)
        numbers, categories = self._judge_features(given.get("features", JsonObject()), "", faults)
        if faults or event_id is None or at is None or known_at is None or label is None:
            sent_id = given.get("event_id")
            return Refusal(sent_id if isinstance(sent_id, str) else None, _cap(faults), payload)
        says_known_at = given.get("known_at") is not None
        return Event(event_id, at, known_at, numbers, categories, label, says_known_at)

    def _judge_known_at(self, given: object, at: int | None, faults: list[Fault]) -> int | None:
        if given is not None:
            known_at = _judge(json_moment, given, "known_at", faults)
        elif at is None:
            return None
        else:
            known_at = at + self.task.label_delay // MICROSECOND
            if not is_in_calendar(known_at):
                faults.append(Fault("at", "plus the task's label_delay is beyond the year 9999"))
        if known_at is not None and at is not None and known_at < at:
            faults.append(Fault("known_at", "is before at"))
        return known_at

    def _judge_label(self, given: object) -> str:
        if not self.task.is_classification:
            return repr(json_number(given))
        label = json_text(given)
        if self.task.target.classes is not None and label not in self.task.target.classes:
            raise ValueError("is not one of the task's classes")
        return label

    def _judge_features(
        self, given: object, prefix: str, faults: list[Fault]
    ) -> tuple[tuple[float, ...], tuple[str, ...]]:
        """Numbers and categories in the task's order; where there are faults, of no use but for finding more."""
        if not isinstance(given, JsonObject):
            faults.append(Fault(f"{prefix}features", "is not a JSON object"))
            return (), ()
        features = f"{prefix}features."
        if given.repeated or not given.keys() <= self.kinds.keys():
            faults += judge_names(given, (), self.kinds, "this task's features", features)
        numbers: list[float] = []
        categories: list[str] = []
        for feature in self.task.features:
            name = feature.name
            value = given.get(name)
            if value is None:
                if not feature.optional:
                    faults.append(Fault(features + name, "is null" if name in given else "is required"))
                elif feature.kind == "number":
                    numbers.append(math.nan)
                else:
                    categories.append("")
            elif feature.kind == "number":
                number = _judge(json_number, value, features + name, faults)
                if number is not None:
                    numbers.append(number)
            else:
                category = _judge(json_text, value, features + name, faults)
                if category is not None:
                    categories.append(category)
        return tuple(numbers), tuple(categories)

    def _judge_questions(self, given: Any, max_rows: int, found: Sequence[Fault]) -> Questions:
        if not isinstance(given, JsonObject):
            raise InvalidInput([*found, Fault("body", "is not a JSON object")])
        if "rows" in given:
            faults = [*found, *judge_body_names(given, ("rows",), "the fields of a body with rows")]
            rows = given["rows"]
            if not isinstance(rows, list):
                raise InvalidInput([*faults, Fault("rows", "is not an array")])
            _limit_rows(len(rows), max_rows)
            judged = [self._judge_question(row, f"rows[{place}].", faults) for place, row in enumerate(rows)]
            at_field = AT_OF_ROW
        else:
            faults = [*found, *judge_body_names(given, ("features", "at"), "the fields of a body with one row")]
            moments = given.get("at", [])
            if not isinstance(moments, list):
                faults.append(Fault("at", "is not an array of moments"))
                moments = []
            _limit_rows(len(moments), max_rows)
            numbers, categories = self._judge_features(given.get("features", JsonObject()), "", faults)
            micros = [
                _judge(json_moment, moment, AT_OF_MANY.format(place), faults) for place, moment in enumerate(moments)
            ]
            judged, at_field = [Row(moment, numbers, categories) for moment in micros], AT_OF_MANY
        _raise_any(faults)
        return lay_out_rows(judged, at_field)

    def _judge_question(self, given: Any, prefix: str, faults: list[Fault]) -> Row:
        if not isinstance(given, JsonObject):
            faults.append(Fault(prefix.removesuffix("."), "is not a JSON object"))
            return Row(None, (), ())
        own = judge_names(given, ("features",), ("at",), "the fields of a row", prefix)
        at = None if given.get("at") is None else _judge(json_moment, given["at"], f"{prefix}at", own)
        numbers, categories = self._judge_features(given.get("features", JsonObject()), prefix, own)
        faults.extend(_cap(own))
        return Row(at, numbers, categories)


@lru_cache(maxsize=64)
def compile_rules(task: Task) -> RowRules:
    """The rules of a task's rows; compiled once for equal tasks."""
    kinds = {feature.name: feature.kind for feature in task.features}
    return RowRules(task, compile_structs(task), compile_query_structs(task), compile_event_structs(task), kinds)


def each(rows: EventBatch | Sequence[Event | Refusal]) -> Sequence[Event | Refusal]:
    """Events, as columns or not, one by one."""
    return rows.rows() if isinstance(rows, EventBatch) else rows


def _judge(judge: Callable[[object], T], value: object, field: str, faults: list[Fault]) -> T | None:
    try:
        return judge(value)
    except ValueError as error:
        faults.append(Fault(field, str(error)))
        return None


def _judge_field(judge: Callable[[object], T], given: JsonObject, name: str, faults: list[Fault]) -> T | None:
    """None without a fault where the field is absent: `judge_names` says so."""
    return _judge(judge, given[name], name, faults) if name in given else None


def _cap(faults: list[Fault]) -> tuple[Fault, ...]:
    if len(faults) <= MAX_FAULTS_PER_ROW:
        return tuple(faults)
    more = Fault("row", f"breaks {len(faults) - MAX_FAULTS_PER_ROW} more rules")
    return (*faults[:MAX_FAULTS_PER_ROW], more)


def _raise_any(faults: Sequence[Fault]) -> None:
    if faults:
        raise InvalidInput(faults)


def _limit_rows(num_rows: int, max_rows: int) -> None:
    if num_rows > max_rows:
        raise HTTPException(413, f"The body holds {num_rows} rows; at most {max_rows} are taken at once.")
