"""`FakeMorrow`: an API in memory for the tests of an application. It needs no server and no database."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import msgspec

from morrow.client import AsyncClient, Client

Predict = Callable[[Mapping[str, Any], datetime], float | str | Mapping[str, float]]


@dataclass
class FakeTask:
    """A task of the fake: what answers, within which bounds, and the events that were sent, by id.

    `revisions` are those of the events, by id. `asked` has the moment and the features of each answer by its id, and
    `waiting` the labels whose event has not come yet.
    """

    predict: Predict
    valid_from: datetime
    valid_until: datetime
    expected_error: float | None
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    waiting: dict[str, Any] = field(default_factory=dict)


class FakeMorrow:
    """Answers as the API does, with an application's own predictions.

    A task is added with a function of features and moment that returns a number, a class, or probabilities by class.
    Moments outside its bounds are refused. Events are kept in `tasks[name].events`, and labels join them or wait.
    `fail` makes the next requests fail. With `coverage`, an interval or a set holds the prediction alone; rates are 0.
    It checks no feature, label or key.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, FakeTask] = {}
        self._failures: list[httpx.Response | httpx.TransportError] = []

    def add_task(
        self,
        name: str,
        predict: Predict,
        *,
        valid_from: datetime = datetime(1970, 1, 1, tzinfo=UTC),
        valid_until: datetime = datetime(9999, 1, 1, tzinfo=UTC),
        expected_error: float | None = None,
    ) -> FakeTask:
        """Add a task, or replace it."""
        task = self.tasks[name] = FakeTask(predict, valid_from, valid_until, expected_error)
        return task

    def fail(self, problem: str, status: int, *, times: int = 1, retry_after: float | None = None) -> None:
        """Refuse the next requests with this problem, such as "unavailable" with 503."""
        self._failures += [_problem(problem, status, problem, retry_after=retry_after) for _ in range(times)]

    def disconnect(self, *, times: int = 1) -> None:
        """Answer none of the next requests."""
        self._failures += [httpx.ConnectError("the fake is disconnected") for _ in range(times)]

    def client(self, **options: Any) -> Client:
        """A client of this fake."""
        return Client("http://morrow.test", transport=httpx.MockTransport(self._answer), **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """A client of this fake, for asyncio."""
        return AsyncClient("http://morrow.test", transport=httpx.MockTransport(self._answer), **options)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self._failures:
            failure = self._failures.pop(0)
            if isinstance(failure, httpx.TransportError):
                raise failure
            return failure
        first, _, rest = request.url.path.removeprefix("/").partition("/")
        if first == "readyz":
            return httpx.Response(200, json={"status": "ok"})
        if first == "tasks" and not rest:
            return httpx.Response(200, json={"tasks": [{"task": name} for name in sorted(self.tasks)], "next": None})
        rest, _, part = rest.partition("/") if first == "tasks" else (rest, "", "")
        name = rest if first == "tasks" else request.url.params.get("task", "")
        task = self.tasks.get(name)
        if task is None:
            return _problem("not-found", 404, f"task: there is no task {name}")
        show = _join if part == "labels" else _show
        answer = {"predict": _predict, "tasks": show, "events": _one_event if rest else _store}[first]
        return answer(name, task, request)


def _predict(name: str, task: FakeTask, request: httpx.Request) -> httpx.Response:
    answers: list[dict[str, Any]] = []
    params = request.url.params
    for number, row in enumerate(msgspec.json.decode(request.content)["rows"]):
        at = datetime.fromisoformat(row["at"]) if "at" in row else datetime.now(UTC)
        if "at" not in row and at >= task.valid_until:
            return _problem("model-expired", 503, f"Version 1 was valid until {_write(task.valid_until)}")
        if not task.valid_from <= at < task.valid_until:
            side = "before" if at < task.valid_from else "beyond"
            bounds = {"side": side, "valid_from": _write(task.valid_from), "valid_until": _write(task.valid_until)}
            fault = {"field": f"rows[{number}].at", "reason": f"is {side} the horizon"}
            facts = {**bounds, "version": "1", "errors": [fault], "num_errors": 1}
            return _problem("outside-horizon", 422, ": ".join(fault.values()), more=facts)
        found = task.predict(row["features"], at)
        answer: dict[str, Any] = {
            "task": name,
            "at": _write(at),
            "lead": "PT0S",
            "expected_error": task.expected_error,
            "version": "1",
            "trained_until": _write(task.valid_from),
            "valid_until": _write(task.valid_until),
            "id": str(uuid4()),
        }
        if isinstance(found, Mapping | str):
            probabilities = (
                {found: 1.0} if isinstance(found, str) else {name: float(one) for name, one in found.items()}
            )
            best = max(probabilities, key=probabilities.__getitem__)
            answer |= {"prediction": best, "probabilities": probabilities, "error_name": "log_loss"}
            covering: dict[str, Any] = {"prediction_set": [best]}
            rate = dict.fromkeys(probabilities, 0.0)
        else:
            number_found = float(found)
            answer |= {"prediction": number_found, "mean": number_found, "scale": 0.0, "error_name": "mae"}
            covering = {"interval": [number_found, number_found]}
            rate = {"mean": 0.0, "scale": 0.0}
        if "coverage" in params:
            answer |= {"coverage": float(params["coverage"]), **covering}
        if "rate" in params:
            answer |= {"rate": rate}
        answers.append(answer)
        task.asked[answer["id"]] = {"at": answer["at"], "features": row["features"]}
    return httpx.Response(200, json={"answers": answers})


def _store(_name: str, task: FakeTask, request: httpx.Request) -> httpx.Response:
    results = []
    for event in msgspec.json.decode(request.content):
        event_id = event["event_id"]
        stored = task.events.get(event_id)
        waiting = task.waiting.pop(event_id, None)
        if waiting is not None and "label" not in event:
            event["label"] = waiting
        if stored is None or ("label" in event and "label" not in stored):  # a whole event replaces one without a label
            task.events[event_id], task.revisions[event_id] = event, int("label" in event)
            status = "created" if "label" in event else "unlabelled"
        elif "label" not in event:
            status = "duplicate" if event.items() <= stored.items() else "conflict"
        else:
            status = "duplicate" if stored == event else "conflict"
        results.append({"event_id": event["event_id"], "status": status})
    counts = Counter(one["status"] for one in results)
    shown = {"created": counts["created"], "duplicates": counts["duplicate"], "conflicts": counts["conflict"]}
    shown["unlabelled"] = counts["unlabelled"]
    return httpx.Response(200, json={**shown, "rejected": 0, "results": results})


def _join(_name: str, task: FakeTask, request: httpx.Request) -> httpx.Response:
    results = []
    for given in msgspec.json.decode(request.content):
        label, event_id = given["label"], given.get("event_id") or given["prediction_id"]
        asked = task.asked.get(event_id) if "prediction_id" in given else None
        stored = task.events.get(event_id, None if asked is None else {"event_id": event_id, **asked})
        if stored is None:
            is_known, known = event_id in task.waiting, task.waiting.setdefault(event_id, label)
        else:
            is_known, known = "label" in stored, stored.get("label")
            if not is_known:
                task.events[event_id], task.revisions[event_id] = {**stored, "label": label}, 1
        status = (
            ("duplicate" if known == label else "conflict") if is_known else "waiting" if stored is None else "joined"
        )
        results.append({"event_id": event_id, "status": status})
    counts = Counter(one["status"] for one in results)
    shown = {"joined": counts["joined"], "waiting": counts["waiting"], "duplicates": counts["duplicate"]}
    return httpx.Response(200, json={**shown, "conflicts": counts["conflict"], "results": results})


def _one_event(_name: str, task: FakeTask, request: httpx.Request) -> httpx.Response:
    event_id = request.url.path.removeprefix("/events/")
    if event_id not in task.events:
        return _problem("not-found", 404, f"event_id: there is no event {event_id}")
    revision = task.revisions.setdefault(event_id, 1)
    if request.method == "PUT":
        if request.headers.get("if-match", f'"{revision}"') != f'"{revision}"':
            return _problem("precondition-failed", 412, f"event_id: {event_id} has revision {revision}")
        changed = {"event_id": event_id, **msgspec.json.decode(request.content)}
        is_same = task.events[event_id] == changed
        if "label" in task.events[event_id] and "label" not in changed:
            return _problem("invalid-input", 422, "label: is required, because the event has one")
        if not is_same:
            task.revisions[event_id] = max(revision, 0) + 1 if "label" in changed else revision - 1
        task.events[event_id] = changed
        return httpx.Response(200, json={"event_id": event_id, "status": "duplicate" if is_same else "corrected"})
    found = {"event": task.events[event_id], "revision": revision, "received_at": _write(datetime.now(UTC))}
    return httpx.Response(200, json=found)


def _show(name: str, task: FakeTask, _request: httpx.Request) -> httpx.Response:
    is_valid = datetime.now(UTC) < task.valid_until
    found = {
        "task": name,
        "state": "valid" if is_valid else "expired",
        "lifecycle": "active",
        "stale": not is_valid,
        "champion": {
            "version": "1",
            "trained_from": _write(task.valid_from),
            "trained_until": _write(task.valid_from),
            "valid_until": _write(task.valid_until),
            "horizon": 1,
            "error_name": "log_loss",
        },
        "num_events": len(task.events),
        "next_step": {"text": "Nothing to do.", "is_needed": False},
    }
    return httpx.Response(200, json=found)


def _problem(
    kind: str, status: int, detail: str, *, more: Mapping[str, Any] | None = None, retry_after: float | None = None
) -> httpx.Response:
    problem = {"type": f"/problems/{kind}", "title": kind, "status": status, "detail": detail, **(more or {})}
    headers = {"content-type": "application/problem+json"}
    if retry_after is not None:
        headers["retry-after"] = str(retry_after)
    return httpx.Response(status, content=msgspec.json.encode(problem), headers=headers)


def _write(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
