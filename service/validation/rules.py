"""The rules of a task's rows, compiled once for GET and POST /predict and for /events.

Decoders accept rows. A row that they refuse is explained, with all of its faults at once, and a refusal of one row of
many leaves the others accepted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from service.errors import TooLarge, UnreadableRequest
from service.validation.event_decoder import EventDecoder, compile_event_decoder
from service.validation.explainer import Explainer
from service.validation.label_decoder import LabelDecoder, compile_label_decoder
from service.validation.lossless_json import (
    JsonObject,
    cut_rows,
    decode_json,
    decode_text,
    limit_values,
    without_mark,
)
from service.validation.query_decoder import QueryDecoder, compile_query_decoder
from service.validation.question_decoder import AT_OF_MANY, QuestionDecoder, Questions, Row, compile_question_decoder
from store.events.batches import Event, EventBatch
from store.labels.late_labels import Label
from store.tasks.task_cache import TaskCache

# Values that a row may hold in addition to its features, on average; a small body may hold more.
_MORE_VALUES_PER_ROW = 8
_ALWAYS_READ = 10_000
_NO_ROW = Fault("rows", "holds no row")
_NO_MOMENT = Fault("at", "is an empty list: name one moment at least, or leave it out to ask about now")
# Lines that are decoded together if all of them together hold one that is refused.
_GROUP = 16


@dataclass(frozen=True)
class Refusal:
    """A row that breaks rules: all of its faults, and the row as it was sent."""

    event_id: str | None
    faults: tuple[Fault, ...]
    payload: str


@dataclass(frozen=True)
class RowRules:
    """The decoders of one task's rows, and what explains their refusals."""

    task: Task
    questions: QuestionDecoder
    queries: QueryDecoder
    events: EventDecoder
    labels: LabelDecoder
    explainer: Explainer

    def read_query(self, pairs: Sequence[tuple[str, str]], found: Sequence[Fault] = ()) -> Row:
        """One row from `at` and the features. Raises InvalidInput with every fault, those found before included."""
        row = self.queries.decode(pairs)
        if row is None:
            raise InvalidInput([*found, *self.explainer.explain_query(pairs)])
        _raise_any(found)
        return row

    def read_questions(self, body: bytes, max_rows: int, found: Sequence[Fault] = ()) -> Questions:
        """The questions of a body of /predict: `{"rows": [{"at", "features"}]}`, or one row and one or many `at`.

        Raises InvalidInput with every fault, those found before included, Malformed and TooLarge.
        """
        body = without_mark(body)
        self.limit_values(body, max_rows)
        questions = self.questions.decode(body)
        if questions is None:
            given = decode_json(decode_text(body))
            _limit_rows(_count_questions(given), max_rows)
            raise InvalidInput([*found, *self.explainer.explain_questions(given)])
        _raise_any(found)
        _limit_rows(len(questions), max_rows)
        if not len(questions):
            raise InvalidInput([_NO_MOMENT if questions.at_field == AT_OF_MANY else _NO_ROW])
        return questions

    def read_events(self, body: bytes, max_rows: int) -> EventBatch | list[Event | Refusal]:
        """The events of an object or an array: columns if all are accepted, else each row in its order.

        Raises Malformed if the body is not JSON at all, TooLarge for more than `max_rows` or their values.
        """
        body = without_mark(body)
        self.limit_values(body, max_rows)
        batch = self.events.decode(body)
        if batch is not None:
            _limit_rows(len(batch), max_rows)
            return batch
        rows = cut_rows(decode_text(body))
        _limit_rows(len(rows), max_rows)
        return self._sort([row.encode() for row in rows], max_rows)

    def read_lines(self, lines: Sequence[bytes]) -> EventBatch | list[Event | Refusal]:
        """The same for lines of a stream, of which one that is not JSON is refused like any other."""
        batch = self.events.decode_lines(lines)
        return self._sort([*map(without_mark, lines)], 1) if batch is None else batch

    def read_correction(self, body: bytes, event_id: str) -> Event | Refusal:
        """One event, as `read_events` reads it; its `event_id` may be left out, or is this one.

        Raises as `read_events`, and InvalidInput if the body has another id: it is then unknown which
        of the two events it corrects, so it is kept as a row of neither.
        """
        body = without_mark(body)
        self.limit_values(body, 1)
        batch = self.events.decode_correction(body, event_id)
        if batch is not None:
            return batch.row(0)
        text = decode_text(body)
        given = decode_json(text)
        if isinstance(given, JsonObject) and given.setdefault("event_id", event_id) != event_id:
            raise InvalidInput([Fault("event_id", "differs from the id in the path")])
        return Refusal(event_id, tuple(self.explainer.explain_event(given)), text)

    def read_labels(self, body: bytes, max_rows: int) -> list[Label | Refusal]:
        """The labels of an object or an array. Raises as `read_events`."""
        body = without_mark(body)
        self.limit_values(body, max_rows)
        labels = self.labels.decode(body)
        if labels is not None:
            _limit_rows(len(labels), max_rows)
            return [*labels]
        rows = cut_rows(decode_text(body))
        _limit_rows(len(rows), max_rows)
        return self.read_label_lines([row.encode() for row in rows])

    def read_label_lines(self, lines: Sequence[bytes]) -> list[Label | Refusal]:
        """The same for lines of a stream, of which one that is not JSON is refused like any other."""
        labels = self.labels.decode_lines(lines)
        if labels is not None:
            return [*labels]
        return [self._read_label_line(without_mark(line)) for line in lines]

    def _read_label_line(self, line: bytes) -> Label | Refusal:
        labels = self.labels.decode_lines([line])
        return self._refuse(line, 1, self.explainer.explain_label) if labels is None else labels[0]

    def _sort(self, lines: Sequence[bytes], max_rows: int) -> list[Event | Refusal]:
        """Each of many lines as its event or its refusal; one line may hold the values of `max_rows`.

        Most bad lines do not even decode: without them the others are laid out at once.
        """
        tried = [*zip(lines, self.events.try_each(lines), strict=True)]
        others = iter(self._sort_groups([line for line, is_decoded in tried if is_decoded], max_rows))
        return [next(others) if is_decoded else self._explain_line(line, max_rows) for line, is_decoded in tried]

    def _sort_groups(self, lines: Sequence[bytes], max_rows: int) -> Sequence[Event | Refusal]:
        batch = self.events.decode_lines(lines)
        if batch is not None:
            return batch.rows()
        if len(lines) <= _GROUP:
            return [self._read_line(line, max_rows) for line in lines]
        groups = (lines[start : start + _GROUP] for start in range(0, len(lines), _GROUP))
        return [row for group in groups for row in self._sort_groups(group, max_rows)]

    def _read_line(self, line: bytes, max_rows: int) -> Event | Refusal:
        batch = self.events.decode_lines([line])
        return self._explain_line(line, max_rows) if batch is None else batch.row(0)

    def _explain_line(self, line: bytes, max_rows: int) -> Refusal:
        return self._refuse(line, max_rows, self.explainer.explain_event)

    def _refuse(self, line: bytes, max_rows: int, explain: Callable[[Any], Sequence[Fault]]) -> Refusal:
        payload = line.decode("utf-8", "backslashreplace")
        try:
            self.limit_values(line, max_rows)
            given = decode_json(decode_text(line))
        except UnreadableRequest as error:
            return Refusal(None, (Fault("event", str(error)),), payload)
        event_id = given.get("event_id") if isinstance(given, JsonObject) else None
        faults = tuple(explain(given))
        return Refusal(event_id if isinstance(event_id, str) else None, faults, payload)

    def limit_values(self, body: bytes, max_rows: int) -> None:
        """Refuse a body of more values than `max_rows` rows can hold. Raises TooLarge."""
        limit_values(body, max(_ALWAYS_READ, max_rows * (len(self.task.features) + _MORE_VALUES_PER_ROW)))


def _compile(task: Task) -> RowRules:
    kinds = {feature.name: feature.kind for feature in task.features}
    events = compile_event_decoder(task)
    return RowRules(
        task,
        compile_question_decoder(task),
        compile_query_decoder(task),
        events,
        compile_label_decoder(events),
        Explainer(task, kinds),
    )


# The rules of a task's rows, compiled once for equal tasks: that takes as long as reading fifty events.
compile_rules = TaskCache(_compile)


def list_rows(rows: EventBatch | Sequence[Event | Refusal]) -> Sequence[Event | Refusal]:
    """Rows one by one, whether or not they are columns."""
    return rows.rows() if isinstance(rows, EventBatch) else rows


def _count_questions(given: Any) -> int:
    asked = given.get("rows", given.get("at")) if isinstance(given, JsonObject) else None
    return len(asked) if isinstance(asked, list) else 0


def _raise_any(faults: Sequence[Fault]) -> None:
    if faults:
        raise InvalidInput(faults)


def _limit_rows(num_rows: int, max_rows: int) -> None:
    if num_rows > max_rows:
        raise TooLarge(f"The body holds {num_rows} rows; at most {max_rows} are taken at once.")
