"""/events and /events/{event_id}: rows in, one transaction, acknowledged only after commit; one row out.

Every row gets its result. A refused row is kept with its reason and payload, so that its producer can correct and
resend it. The valid rows of the same request are stored, unless `atomic` asks for all or nothing. A correction is
validated like any other row. While a version of an earlier schema answers, rows may come in its form too
(`service.ingest.schema_versions`).
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import lru_cache, partial
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
from service.errors import BodiesFull, QuotaUsed
from service.ingest.group_commit import GroupCommit, QueuedEvent, rejection_of
from service.ingest.quota import find_open_schemas
from service.ingest.schema_versions import Read, ValidatedRows, append, validate, validate_one
from service.ingest.stored_event import answer_event
from service.metrics import Metrics
from service.models.follower import Follower
from service.settings import ServiceSettings
from service.validation.lossless_json import without_mark
from service.validation.names import printable
from service.validation.rules import Refusal, RowRules
from service.web.bodies import NDJSON, RequestBody
from service.web.encoded_answer import EncodedAnswer
from service.web.error_responses import problem_of
from service.web.keys.task_access import require_task, tasks_of
from service.web.parameters import check_parameters, read_flag, read_id
from service.web.preconditions import Preconditions, etag_line, read_preconditions, refuse_preconditions
from store.events.batches import Event, EventBatch
from store.events.imports import require_open
from store.events.stored_event import find_event
from store.events.writes import Correction, record_rejections
from store.labels.unlabelled import correct_row, find_revision
from store.tasks.catalog import Schema

Status = Literal["created", "unlabelled", "duplicate", "conflict", "rejected", "erased"]
Counts = Mapping[Status, int]
# The schemas whose rows a request may hold, read inside its transaction.
Find = Callable[[Connection], Sequence[Schema]]
STATUSES: tuple[Status, ...] = get_args(Status)
MAX_RESULTS = 1000
_LARGE_BYTES = 2**20


class RowResult(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one row; results are in the order of the body."""

    event_id: str | None
    status: Status
    errors: Sequence[Fault] | UnsetType = UNSET
    line: int | UnsetType = UNSET


class IngestResult(msgspec.Struct, frozen=True):
    """The answer of POST /events: counts, and a result for each row.

    `unlabelled`, if any, counts new events that wait for their label, and `erased` rows with erased ids.
    """

    created: int
    duplicates: int
    conflicts: int
    rejected: int
    results: list[RowResult]
    unlabelled: int | UnsetType = UNSET
    erased: int | UnsetType = UNSET


class CorrectionResult(msgspec.Struct, frozen=True):
    """The answer of PUT /events/{event_id}."""

    event_id: str
    status: Correction


class EventsEndpoint:
    """The handlers behind /events and /events/{event_id}."""

    def __init__(
        self, store: Store, follower: Follower, group_commit: GroupCommit, settings: ServiceSettings, metrics: Metrics
    ) -> None:
        self._store = store
        self._follower = follower
        self._group_commit = group_commit
        self._settings = settings
        self._metrics = metrics
        self._reading_large = threading.Lock()
        self._counters = {status: metrics.events.labels(status) for status in STATUSES}

    async def post(self, scope: Scope, receive: Receive) -> Response:
        """Store one event, an array of events, or lines of them; answer after the commit."""
        task, is_atomic, import_id = read_options(scope["query_string"])
        refuse_preconditions(scope)
        sent = RequestBody(scope, receive, self._settings)
        if sent.media_type == NDJSON:
            if is_atomic:
                raise InvalidInput([Fault("atomic", "does not go with NDJSON, which is stored piece by piece")])
            counts, response = await self._store_lines(sent, self._find(scope, task, import_id), task, import_id)
        else:
            body = without_mark(await sent.read())
            if import_id is not None or body.lstrip()[:1] == b"[":
                find = self._find(scope, task, import_id)
                work = _store_array(
                    find, partial(self._read_array, body), is_atomic, datetime.now(UTC), import_id=import_id
                )
                counts, response = await self._store.run(work, [task or ""])
            else:
                counts, response = answer_one(await self._group_commit.write(task, body, tasks_of(scope)))
        for status, count in counts.items():
            self._counters[status].inc(count)
        return response

    async def get(self, scope: Scope, _receive: Receive) -> Response:
        """The present revision of one event."""
        find = self._find(scope, read_task(scope["query_string"]), adds=False)
        event_id = scope["path"].removeprefix("/events/")
        return answer_event(
            await self._store.run(lambda connection: find_event(connection, find(connection)[0].task_id, event_id))
        )

    async def put(self, scope: Scope, receive: Receive) -> Response:
        """Store a correction of one event, if its preconditions hold."""
        task = read_task(scope["query_string"])
        preconditions = read_preconditions(scope)
        event_id = scope["path"].removeprefix("/events/")
        body = await RequestBody(scope, receive, self._settings).read()
        work = _correct(self._find(scope, task, adds=False), event_id, body, preconditions, datetime.now(UTC))
        status, response = await self._store.run(work, [task or ""])
        self._metrics.events.labels(status).inc()
        return response

    async def _store_lines(
        self, sent: RequestBody, find: Find, task: str | None, import_id: int | None
    ) -> tuple[Counts, Response]:
        """Store each chunk of a stream in a transaction of its own.

        Raises Unavailable, BodiesFull and QuotaUsed, which say how much is stored.
        """
        counts: Counter[Status] = Counter()
        shown: list[RowResult] = []
        first = 1
        try:
            async for chunk in sent.read_chunks():
                first = chunk[0][0]
                work = _append_lines(find, chunk, datetime.now(UTC), import_id)
                results = await self._store.run(work, [task or ""])
                first = chunk[-1][0] + 1
                counts.update(result.status for result in results)
                others = (result for result in results if result.status not in ("created", "unlabelled"))
                shown += islice(others, MAX_RESULTS - len(shown))
        except (Unavailable, BodiesFull, QuotaUsed) as error:
            lines, are = say_count(counts.total(), "line"), "is" if counts.total() == 1 else "are"
            stored = f"{lines} before line {first} {are} stored"
            if isinstance(error, QuotaUsed):
                raise QuotaUsed(f"{error} {stored}.", error.seconds) from error
            remedy = f"{stored}: send all of them again."
            if isinstance(error, BodiesFull):
                raise BodiesFull(error.num_bytes, error.budget, remedy) from error
            # The commit of what failed may have reached the database, and others may have stored lines of it before.
            raise Unavailable(
                f"{error} {stored}, and perhaps later ones: send all of "
                "them again. Rows that are stored already count as duplicates."
            ) from error
        return counts, _answer(counts, shown)

    def _read_array(self, body: bytes, rules: RowRules) -> EventBatch | list[Event | Refusal]:
        """The events of an array. Of large ones one is read at a time: several at once would only hold up requests."""
        with self._reading_large if len(body) > _LARGE_BYTES else nullcontext():
            return rules.read_events(body, self._settings.max_rows)

    def _find(self, scope: Scope, task: str | None, import_id: int | None = None, *, adds: bool = True) -> Find:
        """The schemas of a task that the request may use, and of which an import must be open if one is given.

        With `adds`, the task must have room for more events.
        """
        allowed, most_rows = tasks_of(scope), self._settings.rows_per_task if adds else None

        def find(connection: Connection) -> Sequence[Schema]:
            if allowed is not None:
                require_task(connection, task or "", allowed)
            schemas = find_open_schemas(self._follower, most_rows, connection, task)
            if import_id is not None:
                require_open(connection, schemas[0].task_id, import_id)
            return schemas

        return find


@lru_cache(maxsize=64)
def read_options(query: bytes) -> tuple[str | None, bool, int | None]:
    """The task of a POST, whether it is atomic, and its import. Producers repeat their query. Raises InvalidInput."""
    given = QueryParams(query)
    check_parameters(given, ("task", "atomic", "import"))
    import_id = given.get("import")
    return given.get("task"), read_flag(given, "atomic"), None if import_id is None else read_id(import_id, "import")


def read_task(query: bytes) -> str | None:
    """The task of a request for one event. Raises InvalidInput."""
    given = QueryParams(query)
    check_parameters(given, ("task",))
    return given.get("task")


def _correct(
    find: Find, event_id: str, body: bytes, preconditions: Preconditions, received_at: datetime
) -> Callable[[Connection], tuple[Correction | Literal["rejected"], Response]]:
    """The work of one correction inside its transaction; a stored rejection outlives the refusal."""

    def work(connection: Connection) -> tuple[Correction | Literal["rejected"], Response]:
        schema, row = validate_one(find(connection), lambda rules: [rules.read_correction(body, event_id)])
        if isinstance(row, Refusal):
            record_rejections(connection, schema.task_id, [rejection_of(row)], received_at)
            return "rejected", problem_of(InvalidInput(row.faults))
        outcome = correct_row(connection, schema, row, received_at, preconditions.check)
        answer = msgspec.json.encode(CorrectionResult(row.event_id, outcome))
        revision = find_revision(connection, schema.task_id, row.event_id)
        return outcome, EncodedAnswer(answer, head=etag_line(revision))

    return work


def answer_one(one: QueuedEvent) -> tuple[Counts, Response]:
    """The answer to a written body of one event, and the statuses to count."""
    match one.outcome:
        case Refusal(faults=faults):
            return {"rejected": 1}, problem_of(InvalidInput(faults))
        case "conflict":
            return {"conflict": 1}, problem_of(_conflict([one.event_id]))
        case "erased":
            return {"erased": 1}, problem_of(_erased([one.event_id]))
        case outcome:
            assert outcome in ("created", "unlabelled", "duplicate")
            return {outcome: 1}, _answer({outcome: 1}, [RowResult(one.event_id, outcome)])


def _store_array(
    find: Find, read: Read, atomic: bool, received_at: datetime, *, import_id: int | None
) -> Callable[[Connection], tuple[Counts, Response]]:
    """The work of one array inside its transaction; stored rejections outlive a refusal."""

    def work(connection: Connection) -> tuple[Counts, Response]:
        schemas = find(connection)
        validated = validate(schemas, read)
        refused = validated.refused
        rejections = [*map(rejection_of, refused.values())]
        record_rejections(connection, schemas[0].task_id, rejections, received_at, import_id)
        if atomic and refused:
            return {"rejected": len(refused)}, problem_of(InvalidInput(_locate(refused)))
        results = _append(connection, validated, received_at, atomic, import_id)
        counts = Counter([result.status for result in results])
        for status, problem in _WHOLE.items():
            if atomic and counts[status]:
                against = [result.event_id for result in results if result.status == status]
                return {status: counts[status]}, problem_of(problem(against))
        return counts, _answer(counts, results)

    return work


def _append_lines(
    find: Find, chunk: Sequence[tuple[int, bytes]], received_at: datetime, import_id: int | None
) -> Callable[[Connection], list[RowResult]]:
    def work(connection: Connection) -> list[RowResult]:
        schemas = find(connection)
        validated = validate(schemas, lambda rules: rules.read_lines([line for _, line in chunk]))
        rejections = [*map(rejection_of, validated.refused.values())]
        record_rejections(connection, schemas[0].task_id, rejections, received_at, import_id)
        results = _append(connection, validated, received_at, False, import_id)
        return [
            msgspec.structs.replace(result, line=number) for (number, _), result in zip(chunk, results, strict=True)
        ]

    return work


def _append(
    connection: Connection, validated: ValidatedRows, received_at: datetime, whole: bool, import_id: int | None
) -> list[RowResult]:
    """Store the valid rows; with `whole`, store none if any is in conflict or erased."""
    savepoint = connection.begin_nested() if whole else None
    stored = append(connection, validated, received_at, import_id)
    results = [_refused(one) if isinstance(one, Refusal) else RowResult(*one) for one in stored]
    if savepoint is not None and any(result.status in _WHOLE for result in results):
        savepoint.rollback()
    return results


def _refused(row: Refusal) -> RowResult:
    return RowResult(None if row.event_id is None else printable(row.event_id), "rejected", row.faults)


def _conflict(event_ids: Sequence[str | None]) -> Conflict:
    return Conflict(
        f"Stored already with other content: {', '.join(map(repr, event_ids[:20]))}. "
        "A correction goes to PUT /events/{event_id}."
    )


def _erased(event_ids: Sequence[str | None]) -> Conflict:
    return Conflict(f"Erased on request, and not stored again: {', '.join(map(repr, event_ids[:20]))}.")


# Statuses of a row that keep an atomic batch from being stored, each with its error.
_WHOLE: dict[Status, Callable[[Sequence[str | None]], Conflict]] = {"conflict": _conflict, "erased": _erased}


def _locate(refused: Mapping[int, Refusal]) -> list[Fault]:
    """Faults of all refused rows of an array, each with its row's index."""
    return [
        Fault(f"events[{place}].{fault.field}", fault.reason) for place, row in refused.items() for fault in row.faults
    ]


def _answer(counts: Counts, results: list[RowResult]) -> Response:
    created, unlabelled, duplicates, conflicts, rejected, erased = (counts.get(status, 0) for status in STATUSES)
    answer = IngestResult(
        created, duplicates, conflicts, rejected, results, unlabelled=unlabelled or UNSET, erased=erased or UNSET
    )
    return EncodedAnswer(msgspec.json.encode(answer))
