"""/tasks/{task}/labels: labels that come apart from their events, acknowledged only after commit.

One label, an array, or lines. A label joins an event without one, or a logged prediction; otherwise it waits. Every
label gets its result, and a refused one is kept with its reason.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import Connection
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope

from contracts.errors import Conflict, Fault, InvalidInput, Unavailable
from contracts.shown import say_count
from service.database import Store
from service.ingest.group_commit import rejection_of
from service.ingest.quota import find_open_schemas
from service.metrics import Metrics
from service.models.follower import Follower
from service.settings import ServiceSettings
from service.validation.lossless_json import without_mark
from service.validation.names import printable
from service.validation.rules import Refusal, RowRules, compile_rules
from service.web.bodies import NDJSON, RequestBody
from service.web.encoded_answer import EncodedAnswer
from service.web.error_responses import problem_of
from service.web.keys.task_access import require_task, tasks_of
from service.web.parameters import check_parameters
from service.web.preconditions import refuse_preconditions
from store.events.writes import record_rejections
from store.labels.late_labels import Label, append_labels
from store.tasks.catalog import Schema

PATH = re.compile(r"/tasks/([^/]+)/labels")
Status = Literal["joined", "waiting", "duplicate", "conflict", "erased", "rejected"]
STATUSES: tuple[Status, ...] = get_args(Status)
MAX_RESULTS = 1000
_UNLOGGED = Fault("prediction_id", "was logged without its features, or with other ones: send the whole event")


class LabelResult(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one label; results are in the order of the body."""

    event_id: str | None
    status: Status
    errors: Sequence[Fault] | UnsetType = UNSET
    line: int | UnsetType = UNSET


class LabelsResult(msgspec.Struct, frozen=True):
    """The answer of POST /tasks/{task}/labels: counts, and a result for each label."""

    joined: int
    waiting: int
    duplicates: int
    conflicts: int
    erased: int
    rejected: int
    results: list[LabelResult]


class LabelsEndpoint:
    """The handler behind /tasks/{task}/labels."""

    def __init__(self, store: Store, follower: Follower, settings: ServiceSettings, metrics: Metrics) -> None:
        self._store, self._follower, self._settings = store, follower, settings
        self._counters = {status: metrics.labels.labels(status) for status in STATUSES}

    async def post(self, scope: Scope, receive: Receive) -> Response:
        """Store one label, an array of labels, or lines of them; answer after the commit."""
        found = PATH.fullmatch(scope["path"])
        assert found is not None
        task = found.group(1)
        check_parameters(QueryParams(scope["query_string"]), ())
        refuse_preconditions(scope)
        sent = RequestBody(scope, receive, self._settings)
        if sent.media_type == NDJSON:
            counts, results = await self._store_lines(scope, sent, task)
        else:
            body = without_mark(await sent.read())
            read = partial(_read_body, body=body, max_rows=self._settings.max_rows)
            results = await self._store.run(self._append(scope, task, read), [task])
            counts = Counter(one.status for one in results)
            if body.lstrip()[:1] != b"[":
                self._counters[results[0].status].inc()
                return _answer_one(results[0])
        for status, count in counts.items():
            self._counters[status].inc(count)
        return _answer(counts, results)

    async def _store_lines(
        self, scope: Scope, sent: RequestBody, task: str
    ) -> tuple[Mapping[Status, int], list[LabelResult]]:
        """Store each chunk of a stream in a transaction of its own. Raises Unavailable, which says what is stored."""
        counts: Counter[Status] = Counter()
        shown: list[LabelResult] = []
        first = 1
        try:
            async for chunk in sent.read_chunks():
                first = chunk[0][0]
                read = partial(_read_lines, lines=[line for _, line in chunk])
                results = await self._store.run(self._append(scope, task, read), [task])
                first = chunk[-1][0] + 1
                counts.update(one.status for one in results)
                numbered = (
                    msgspec.structs.replace(one, line=number)
                    for (number, _), one in zip(chunk, results, strict=True)
                    if one.status != "joined"
                )
                shown += islice(numbered, MAX_RESULTS - len(shown))
        except Unavailable as error:
            stored = f"{say_count(counts.total(), 'line')} before line {first} are stored"
            raise Unavailable(f"{error} {stored}, and perhaps later ones: send all of them again.") from error
        return counts, shown

    def _append(
        self, scope: Scope, task: str, read: Callable[[RowRules], list[Label | Refusal]]
    ) -> Callable[[Connection], list[LabelResult]]:
        allowed = tasks_of(scope)

        def work(connection: Connection) -> list[LabelResult]:
            if allowed is not None:
                require_task(connection, task, allowed)
            schemas = find_open_schemas(self._follower, None, connection, task)
            return _store(connection, schemas, read(compile_rules(schemas[0].task)), datetime.now(UTC))

        return work


def _read_body(rules: RowRules, body: bytes, max_rows: int) -> list[Label | Refusal]:
    return rules.read_labels(body, max_rows)


def _read_lines(rules: RowRules, lines: Sequence[bytes]) -> list[Label | Refusal]:
    return rules.read_label_lines(lines)


def _store(
    connection: Connection, schemas: Sequence[Schema], rows: Sequence[Label | Refusal], received_at: datetime
) -> list[LabelResult]:
    refused = [row for row in rows if isinstance(row, Refusal)]
    record_rejections(connection, schemas[0].task_id, [*map(rejection_of, refused)], received_at)
    labels = [row for row in rows if isinstance(row, Label)]
    outcomes = iter(append_labels(connection, schemas, labels, received_at))
    results: list[LabelResult] = []
    for row in rows:
        if isinstance(row, Refusal):
            event_id = None if row.event_id is None else printable(row.event_id)
            results.append(LabelResult(event_id, "rejected", row.faults))
            continue
        outcome = next(outcomes)
        if outcome == "unlogged":
            results.append(LabelResult(row.event_id, "rejected", [_UNLOGGED]))
        else:
            results.append(LabelResult(row.event_id, outcome))
    return results


def _answer_one(result: LabelResult) -> Response:
    """The answer to a body that is one label."""
    if result.status == "rejected":
        return problem_of(InvalidInput([] if result.errors is UNSET else result.errors))
    if result.status == "conflict":
        return problem_of(
            Conflict(
                f"{result.event_id!r} has another label, or its event was sent for another target. "
                "A correction goes to PUT /events/{event_id}."
            )
        )
    if result.status == "erased":
        return problem_of(Conflict(f"Erased on request, and not stored again: {result.event_id!r}."))
    return _answer({result.status: 1}, [result])


def _answer(counts: Mapping[Status, int], results: list[LabelResult]) -> Response:
    joined, waiting, duplicates, conflicts, erased, rejected = (counts.get(status, 0) for status in STATUSES)
    answer = LabelsResult(joined, waiting, duplicates, conflicts, erased, rejected, results)
    return EncodedAnswer(msgspec.json.encode(answer))
