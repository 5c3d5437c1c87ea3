"""The operations of both clients, as exchanges. Their docstrings are those of the clients' methods."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any
from urllib.parse import quote

import msgspec

from morrow.answers import Answer, Answers, Corrected, Event, Stored, StoredEvent, TaskStatus, Upload
from morrow.errors import MorrowError, UploadInterrupted
from morrow.exchanges import Exchange, Request, ask
from morrow.values import Row, add_columns, chunked, encode, plain, to_features, to_moment, to_rows

# One batch of questions, and one chunk of an upload, stay well below the API's limit of a body.
MOST_ROWS = 1000
MOST_BYTES = 4 * 2**20
_JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Settings:
    """What all calls of a client share: the seconds that retries may wait, and the zone of moments that have none."""

    patience: float
    timezone: tzinfo | None


def predict(
    settings: Settings,
    task: str,
    features: Row,
    at: datetime | str | None = None,
    *,
    coverage: float | None = None,
    rate: bool = False,
) -> Exchange[Answer]:
    """Ask for one prediction; `at` is now if left out.

    `coverage` (0 to 1) asks for a set of classes, or an interval, that holds the truth that often. `rate` asks how fast
    the prediction changes. Raises OutsideHorizon, NoModel, InvalidInput and other MorrowErrors.
    """
    row = {"features": to_features(features)} | ({} if at is None else {"at": to_moment(at, settings.timezone)})
    (answer,) = yield from _ask_rows(settings, task, [encode(row)], coverage, rate)
    return answer


def predict_many(
    settings: Settings,
    task: str,
    rows: Any,
    *,
    at: str = "at",
    coverage: float | None = None,
    rate: bool = False,
) -> Exchange[list[Answer]]:
    """Ask for a prediction for each row of a frame (pandas, polars, Arrow) or of an iterable of mappings, in order.

    `at` names the column that holds the moments; without such a column, all rows are asked about now. All others are
    features. If the API refuses a row, nothing is answered: the error's `faults` name it. Raises as `predict` does.
    """
    answers: list[Answer] = []
    encoded = (_encode_question(row, at, settings.timezone) for row in to_rows(rows))
    for chunk in chunked(encoded, 100 if rate else MOST_ROWS, MOST_BYTES):
        answers += yield from _ask_rows(settings, task, chunk, coverage, rate)
    return answers


def predict_frame(
    settings: Settings, task: str, frame: Any, *, at: str = "at", coverage: float | None = None
) -> Exchange[Any]:
    """The frame (pandas or polars) with columns added: `prediction`, `expected_error`, `valid_until` and `version`.

    With `coverage` also `low` and `high` of a regression, or `prediction_set` of a classification. Raises as
    `predict` does.
    """
    answers = yield from predict_many(settings, task, frame, at=at, coverage=coverage)
    names = ["prediction", "expected_error", "valid_until", "version"]
    columns: dict[str, list[Any]] = {name: [getattr(one, name) for one in answers] for name in names}
    if coverage is not None and any(one.prediction_set is not None for one in answers):
        columns["prediction_set"] = [one.prediction_set for one in answers]
    elif coverage is not None:
        columns |= {
            name: [one.interval and one.interval[k] for one in answers] for k, name in enumerate(("low", "high"))
        }
    return add_columns(frame, columns)


def upload(
    settings: Settings,
    task: str,
    events: Iterable[Event],
    *,
    on_progress: Callable[[Upload], object] = lambda _: None,
) -> Exchange[Upload]:
    """Store labelled events, a thousand at a time. Events that are stored already count as duplicates.

    `on_progress` gets the report after each chunk. Events that break a rule are in the report's `refused`; the others
    are stored. Raises UploadInterrupted, and then the same events may be sent again; ValueError or TypeError for an
    event that cannot be sent.
    """
    report = Upload()
    encoded = (_encode_event(event, settings.timezone) for event in events)
    for chunk in chunked(encoded, MOST_ROWS, MOST_BYTES):
        request = Request("POST", "/events", {"task": task}, _JSON, _array(chunk))
        try:
            stored = yield from ask(request, Stored, settings.patience)
        except MorrowError as error:
            raise UploadInterrupted(report, error) from error
        report = report.add(stored, len(chunk))
        on_progress(report)
    return report


def find_event(settings: Settings, task: str, event_id: str) -> Exchange[StoredEvent]:
    """The present revision of an event. Raises NotFound."""
    request = Request("GET", f"/events/{_in_path(event_id)}", {"task": task})
    return (yield from ask(request, StoredEvent, settings.patience))


def correct(settings: Settings, task: str, event: Event, *, revision: int | None = None) -> Exchange[bool]:
    """Replace a stored event; returns whether that changed it.

    With `revision`, only if the stored event still has this one. Raises PreconditionFailed or NotFound.
    """
    known = {} if event.known_at is None else {"known_at": to_moment(event.known_at, settings.timezone)}
    content = {
        "at": to_moment(event.at, settings.timezone),
        "features": to_features(event.features),
        "label": plain(event.label),
        **known,
    }
    headers = _JSON if revision is None else {**_JSON, "if-match": f'"{revision}"'}
    path = f"/events/{_in_path(event.event_id)}"
    # Sent again after a lost answer, a correction that names a revision would contradict itself.
    request = Request("PUT", path, {"task": task}, headers, encode(content), repeats=revision is None)
    corrected = yield from ask(request, Corrected, settings.patience)
    return corrected.status == "corrected"


def find_task(settings: Settings, task: str) -> Exchange[TaskStatus]:
    """The state of a task, its version, and what to do next. Raises NotFound, or TaskRenamed with the new name."""
    return (yield from ask(Request("GET", f"/tasks/{_in_path(task)}"), TaskStatus, settings.patience))


class _Page(msgspec.Struct):
    tasks: list["_Listed"]
    next: str | None = None


class _Listed(msgspec.Struct):
    task: str


def list_tasks(settings: Settings) -> Exchange[list[str]]:
    """The names of all tasks, in order."""
    names: list[str] = []
    after: Mapping[str, str] = {}
    while True:
        page = yield from ask(Request("GET", "/tasks", {"limit": "1000", **after}), _Page, settings.patience)
        names += [one.task for one in page.tasks]
        if page.next is None:
            return names
        after = {"after": page.next}


def is_ready(_settings: Settings) -> Exchange[bool]:
    """Whether the API can answer; False also if nothing answers at all."""
    try:
        yield from ask(Request("GET", "/readyz"), dict, patience=0)
    except MorrowError:
        return False
    return True


def to_events(
    rows: Any, *, event_id: str = "event_id", at: str = "at", label: str = "label", known_at: str | None = None
) -> Iterator[Event]:
    """Events from a frame (pandas, polars, Arrow) or an iterable of mappings, by the names of their columns.

    All other columns are features. Raises KeyError with the name of a column that is missing.
    """
    named = [event_id, at, label, *([] if known_at is None else [known_at])]
    for row in to_rows(rows):
        features = {name: value for name, value in row.items() if name not in named}
        known = None if known_at is None else row[known_at]
        yield Event(event_id=str(row[event_id]), at=row[at], features=features, label=row[label], known_at=known)


def _ask_rows(
    settings: Settings, task: str, rows: list[bytes], coverage: float | None, rate: bool
) -> Exchange[list[Answer]]:
    params = (
        {"task": task} | ({} if coverage is None else {"coverage": str(coverage)}) | ({"rate": "true"} if rate else {})
    )
    body = b'{"rows":' + _array(rows) + b"}"
    found = yield from ask(Request("POST", "/predict", params, _JSON, body), Answers, settings.patience)
    return found.answers


def _encode_question(row: Row, at: str, timezone: tzinfo | None) -> bytes:
    question: dict[str, Any] = {"features": to_features({name: value for name, value in row.items() if name != at})}
    if row.get(at) is not None:
        question["at"] = to_moment(row[at], timezone)
    return encode(question)


def _encode_event(event: Event, timezone: tzinfo | None) -> bytes:
    try:
        content = {
            "event_id": event.event_id,
            "at": to_moment(event.at, timezone),
            "features": to_features(event.features),
            "label": plain(event.label),
        }
        if event.known_at is not None:
            content["known_at"] = to_moment(event.known_at, timezone)
    except (TypeError, ValueError) as error:
        raise type(error)(f"event {event.event_id}: {error}") from None
    return encode(content)


def _array(rows: list[bytes]) -> bytes:
    return b"[" + b",".join(rows) + b"]"


def _in_path(name: str) -> str:
    return quote(name, safe="")
