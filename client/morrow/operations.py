"""The operations of both clients, as exchanges. Their docstrings are those of the clients' methods."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any
from urllib.parse import quote

import msgspec

from morrow.answers import (
    UNLABELLED,
    Answer,
    Answers,
    Corrected,
    Event,
    JoinedLabels,
    Label,
    Stored,
    StoredEvent,
    StoredLabels,
    TaskStatus,
    Upload,
)
from morrow.errors import ApiError, MorrowError, NaiveMoment, UploadInterrupted
from morrow.exchanges import Exchange, Request, ask
from morrow.values import (
    Row,
    add_columns,
    chunked,
    encode,
    is_missing,
    plain,
    require_room,
    to_features,
    to_id,
    to_moment,
    to_rows,
)

# One batch of questions, and one chunk of an upload, stay well below the API's limit of a body.
MOST_ROWS = 1000
MOST_BYTES = 4 * 2**20
_JSON = {"content-type": "application/json"}
# What `predict_frame` adds to every frame.
_COLUMNS = ("prediction", "expected_error", "valid_until", "version")


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
    at: str | None = "at",
    coverage: float | None = None,
    rate: bool = False,
) -> Exchange[list[Answer]]:
    """Ask for a prediction for each row of a frame (pandas, polars, Arrow) or of an iterable of mappings, in order.

    `at` names the column that holds the moments; None asks about now. All other columns are features. If the API
    refuses a row, nothing is answered: the error's `faults` name it as `rows[NUMBER]`, from 0. Raises as `predict`
    does, KeyError without the column of moments, and ValueError or TypeError for a row that cannot be sent.
    """
    answers: list[Answer] = []
    encoded = (
        _encode_question(row, number, at=at, timezone=settings.timezone) for number, row in enumerate(to_rows(rows))
    )
    for chunk in chunked(encoded, 100 if rate else MOST_ROWS, MOST_BYTES):
        try:
            answers += yield from _ask_rows(settings, task, chunk, coverage, rate)
        except ApiError as error:
            raise error.count_rows_from(len(answers)) from error.__cause__
    return answers


def predict_frame(
    settings: Settings, task: str, frame: Any, *, at: str | None = "at", coverage: float | None = None
) -> Exchange[Any]:
    """The frame (pandas or polars) with columns added: `prediction`, `expected_error`, `valid_until` and `version`.

    A classification adds `probability`, that of the prediction, and `unseen` lists each row's category features with an
    unseen value, if any row has one. Neither is added if the frame has a column of this name.
    With `coverage` also `low` and `high` of a regression, or `prediction_set` of a classification. Raises as
    `predict_many` does, and ValueError if the frame has such a column already.
    """
    require_room(frame, [*_COLUMNS, *(() if coverage is None else ("prediction_set", "low", "high"))])
    answers = yield from predict_many(settings, task, frame, at=at, coverage=coverage)
    columns: dict[str, list[Any]] = {name: [getattr(one, name) for one in answers] for name in _COLUMNS}
    if "probability" not in frame.columns and any(one.probabilities for one in answers):
        columns["probability"] = [(one.probabilities or {}).get(str(one.prediction)) for one in answers]
    if "unseen" not in frame.columns and any(one.unseen for one in answers):
        columns["unseen"] = [one.unseen for one in answers]
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
    """Store events, a thousand at a time. Events that are stored already count as duplicates.

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


def store_labels(settings: Settings, task: str, labels: Iterable[Label]) -> Exchange[JoinedLabels]:
    """Store labels that come apart from their events, a thousand at a time. They may be sent again at any time.

    Raises ApiError and Unreachable, ValueError or TypeError for a label that cannot be sent.
    """
    report = JoinedLabels()
    path = f"/tasks/{_in_path(task)}/labels"
    encoded = (_encode_label(label, settings.timezone) for label in labels)
    for chunk in chunked(encoded, MOST_ROWS, MOST_BYTES):
        found = yield from ask(Request("POST", path, {}, _JSON, _array(chunk)), StoredLabels, settings.patience)
        refused = [one for one in found.results if one.status in ("conflict", "erased", "rejected")]
        report = JoinedLabels(
            report.joined + found.joined,
            report.waiting + found.waiting,
            report.duplicates + found.duplicates,
            [*report.refused, *refused],
        )
    return report


def find_event(settings: Settings, task: str, event_id: str) -> Exchange[StoredEvent]:
    """The present revision of an event. Raises NotFound."""
    request = Request("GET", f"/events/{_in_path(event_id)}", {"task": task})
    return (yield from ask(request, StoredEvent, settings.patience))


def correct(settings: Settings, task: str, event: Event, *, revision: int | None = None) -> Exchange[bool]:
    """Replace a stored event; returns whether that changed it.

    With `revision`, only if the stored event still has this one. Raises PreconditionFailed or NotFound.
    """
    headers = _JSON if revision is None else {**_JSON, "if-match": f'"{revision}"'}
    path = f"/events/{_in_path(event.event_id)}"
    body = encode(_describe_event(event, settings.timezone))
    # Sent again after a lost answer, a correction that names a revision would contradict itself.
    request = Request("PUT", path, {"task": task}, headers, body, repeats=revision is None)
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
    rows: Any,
    *,
    event_id: str = "event_id",
    at: str = "at",
    label: str | None = "label",
    known_at: str | None = None,
    unlabelled: bool = False,
) -> Iterator[Event]:
    """Events from a frame (pandas, polars, Arrow) or an iterable of mappings, by the names of their columns.

    All other columns are features. Ids are texts or whole numbers. With `label=None` no event has a label; with
    `unlabelled`, those have none whose label is missing. Raises KeyError with the name of a column that is
    missing, and TypeError for an id that is none.
    """
    named = [event_id, at, *(name for name in (label, known_at) if name is not None)]
    for number, row in enumerate(to_rows(rows)):
        features = {name: value for name, value in row.items() if name not in named}
        known = None if known_at is None or is_missing(row[known_at]) else row[known_at]
        with _naming(f"row {number}"):
            made_id = to_id(row[event_id])
        is_labelled = label is not None and not (unlabelled and is_missing(row[label]))
        given = row[label] if label is not None and is_labelled else UNLABELLED
        yield Event(event_id=made_id, at=row[at], features=features, label=given, known_at=known)


def _ask_rows(
    settings: Settings, task: str, rows: list[bytes], coverage: float | None, rate: bool
) -> Exchange[list[Answer]]:
    params = (
        {"task": task} | ({} if coverage is None else {"coverage": str(coverage)}) | ({"rate": "true"} if rate else {})
    )
    body = b'{"rows":' + _array(rows) + b"}"
    found = yield from ask(Request("POST", "/predict", params, _JSON, body), Answers, settings.patience)
    return found.answers


def _encode_question(row: Row, number: int, *, at: str | None, timezone: tzinfo | None) -> bytes:
    if at is not None and at not in row:
        raise KeyError(f"row {number} has no {at}: name the column of moments by at=, or ask about now by at=None")
    with _naming(f"row {number}"):
        question: dict[str, Any] = {"features": to_features({name: value for name, value in row.items() if name != at})}
        if at is not None:
            question["at"] = to_moment(row[at], timezone)
        return encode(question)


def _encode_event(event: Event, timezone: tzinfo | None) -> bytes:
    if not isinstance(event, Event):
        raise TypeError(f"{event!r} is no Event: to_events makes events of a frame or of mappings")
    with _naming(f"event {event.event_id}"):
        return encode({"event_id": event.event_id, **_describe_event(event, timezone)})


def _describe_event(event: Event, timezone: tzinfo | None) -> dict[str, Any]:
    known = {} if event.known_at is None else {"known_at": to_moment(event.known_at, timezone)}
    moment, features = to_moment(event.at, timezone), to_features(event.features)
    label = {} if event.label is UNLABELLED else {"label": plain(event.label)}
    return {"at": moment, "features": features, **label, **known}


def _encode_label(label: Label, timezone: tzinfo | None) -> bytes:
    ids = {"event_id": label.event_id, "prediction_id": label.prediction_id}
    given = {name: value for name, value in ids.items() if value is not None}
    with _naming(f"label of {next(iter(given.values()), 'no event')}"):
        known = {} if label.known_at is None else {"known_at": to_moment(label.known_at, timezone)}
        return encode({**given, "label": plain(label.label), **known})


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Let errors of a value say where it stands."""
    try:
        yield
    except NaiveMoment as error:
        raise NaiveMoment(f"{place}: {error.moment}") from None
    except TypeError as error:
        raise TypeError(f"{place}: {error}") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{place}: {error}") from None


def _array(rows: list[bytes]) -> bytes:
    return b"[" + b",".join(rows) + b"]"


def _in_path(name: str) -> str:
    """A name as one segment of a path, in which dots alone would mean another folder."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
