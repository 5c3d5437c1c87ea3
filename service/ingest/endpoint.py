"""POST /events and PUT /events/{event_id}: labelled rows in, one transaction, acknowledged only after commit.

Every row gets its result. A refused row is kept with its reason and payload, so that its producer can mend and
resend it; the valid rows beside it are stored, unless `atomic` asks for all or nothing. A correction is judged like any
other row. While a version of an earlier schema answers, rows may come in its form too
(`service.ingest.schema_versions`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal, get_args

import msgspec
from fastapi import APIRouter, Depends, Path, Query
from msgspec import UNSET, UnsetType
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.errors import Conflict, Fault, InvalidInput, Unavailable
from service.database import Store
from service.ingest.group_commit import Waiting, Writer, rejection_of
from service.ingest.schema_versions import Judged, append, find_schemas, judge, judge_one
from service.metrics import Metrics
from service.models.follower import Follower
from service.settings import ServiceSettings
from service.validation.names import printable
from service.validation.rules import Refusal
from service.web.bodies import NDJSON, content_type, read_body, read_chunks
from service.web.error_responses import problem_of
from service.web.json_schema import text
from service.web.parameters import takes_only
from store.catalog import Schema
from store.events import Correction, correct_event, record_rejections

Status = Literal["created", "duplicate", "conflict", "rejected", "erased"]
Counts = Mapping[Status, int]
# The schemas whose rows a request may hold, read inside its transaction.
Find = Callable[[Connection], Sequence[Schema]]
STATUSES: tuple[Status, ...] = get_args(Status)
MAX_RESULTS = 1000


class RowResult(msgspec.Struct, frozen=True, gc=False):
    """What became of one row, in the order of the body."""

    event_id: str | None
    status: Status
    errors: Sequence[Fault] | UnsetType = UNSET
    line: int | UnsetType = UNSET


class IngestResult(msgspec.Struct, frozen=True):
    """The answer of POST /events: counts, and a result for each row; `erased` where events were that are erased."""

    created: int
    duplicates: int
    conflicts: int
    rejected: int
    results: list[RowResult]
    erased: int | UnsetType = UNSET


class CorrectionResult(msgspec.Struct, frozen=True):
    """The answer of PUT /events/{event_id}."""

    event_id: str
    status: Correction


TaskName = Annotated[str | None, Query(description="may be left out while there is one task")]


def events_router(
    store: Store, follower: Follower, writer: Writer, settings: ServiceSettings, metrics: Metrics
) -> APIRouter:
    """The routes of POST /events and PUT /events/{event_id}."""
    router = APIRouter(tags=["events"])

    def find(connection: Connection, task: str | None) -> list[Schema]:
        return find_schemas(connection, follower, task)

    @router.post(
        "/events",
        summary="Store labelled events",
        response_class=Response,
        dependencies=[Depends(takes_only("task", "atomic"))],
        responses={
            200: {"description": "A result for each row", "content": {"application/json": {}}},
            409: {"description": "The one event, or with atomic any, contradicts what is stored, or is erased"},
            422: {"description": "The one event, or with atomic any, breaks a rule"},
            503: {"description": "The database does not answer: nothing was stored, send it again"},
        },
    )
    async def post_events(
        request: Request,
        task: TaskName = None,
        atomic: Annotated[bool, Query(description="store all rows or none")] = False,
    ) -> Response:
        """One event object, or an array of them, which is answered 200 with a result for each row. A body of
        `application/x-ndjson` holds one event a line and may be of any length: it is stored piece by piece, and
        answered with counts and the results of lines that were not created, the first thousand. Any body may come
        with `Content-Encoding: gzip`."""
        if content_type(request) == NDJSON:
            if atomic:
                raise InvalidInput([Fault("atomic", "does not go with NDJSON, which is stored piece by piece")])
            results, answer = await _ingest_lines(store, partial(find, task=task), request, settings)
        else:
            body = await read_body(request, settings)
            if body.lstrip()[:1] == b"[":
                results, answer = await store.run(
                    _ingest(partial(find, task=task), body, settings.max_rows, atomic, datetime.now(UTC))
                )
            else:
                results, answer = answer_one(await writer.write(task, body))
        for status in STATUSES:
            metrics.events.labels(status).inc(results.get(status, 0))
        return answer

    @router.put(
        "/events/{event_id:path}",
        summary="Correct an event",
        response_class=Response,
        dependencies=[Depends(takes_only("task"))],
        responses={
            200: {"description": "The correction is stored, or says what is stored already"},
            404: {"description": "There is no such event"},
            409: {"description": "The event is erased"},
            422: {"description": "The correction breaks a rule"},
            503: {"description": "The database does not answer: nothing was stored, send it again"},
        },
    )
    async def put_event(
        event_id: Annotated[str, Path(description="id of an event that is stored", json_schema_extra=text())],
        request: Request,
        task: TaskName = None,
    ) -> Response:
        """The whole event as it should be; `event_id` may be left out. It becomes a new revision, and counts from the
        moment on at which it is received, whatever its `known_at`: what was trained before can still be rebuilt. One
        that breaks a rule is kept beside its reason, unless it is of another id than the path: that is nobody's row."""
        body = await read_body(request, settings)
        received_at = datetime.now(UTC)
        status, answer = await store.run(_correct(partial(find, task=task), event_id, body, received_at))
        metrics.events.labels(status).inc()
        return answer

    return router


def _correct(
    find: Find, event_id: str, body: bytes, received_at: datetime
) -> Callable[[Connection], tuple[Correction | Literal["rejected"], Response]]:
    """The work of one correction inside its transaction; the rejection it keeps outlives the refusal."""

    def work(connection: Connection) -> tuple[Correction | Literal["rejected"], Response]:
        schema, row = judge_one(find(connection), lambda rules: [rules.read_correction(body, event_id)])
        if isinstance(row, Refusal):
            record_rejections(connection, schema.task_id, [rejection_of(row)], received_at)
            return "rejected", problem_of(InvalidInput(row.faults))
        outcome = correct_event(connection, schema, row, received_at)
        answer = msgspec.json.encode(CorrectionResult(row.event_id, outcome))
        return outcome, Response(answer, media_type="application/json")

    return work


def answer_one(one: Waiting) -> tuple[Counts, Response]:
    """The answer to a body of one event that was written, and what to count."""
    match one.outcome:
        case Refusal(faults=faults):
            return {"rejected": 1}, problem_of(InvalidInput(faults))
        case "conflict":
            return {"conflict": 1}, problem_of(_conflict([one.event_id]))
        case "erased":
            return {"erased": 1}, problem_of(_erased([one.event_id]))
        case outcome:
            assert outcome in ("created", "duplicate")
            return {outcome: 1}, _answer({outcome: 1}, [RowResult(one.event_id, outcome)])


def _ingest(
    find: Find, body: bytes, max_rows: int, atomic: bool, received_at: datetime
) -> Callable[[Connection], tuple[Counts, Response]]:
    """The work of one array inside its transaction; the rejections it keeps outlive a refusal."""

    def work(connection: Connection) -> tuple[Counts, Response]:
        schemas = find(connection)
        judged = judge(schemas, lambda rules: rules.read_events(body, max_rows))
        refused = judged.refused
        record_rejections(connection, schemas[0].task_id, [*map(rejection_of, refused.values())], received_at)
        if atomic and refused:
            return {"rejected": len(refused)}, problem_of(InvalidInput(_locate(refused)))
        results = _append(connection, judged, received_at, atomic)
        counts = Counter([result.status for result in results])
        for status, problem in _WHOLE.items():
            if atomic and counts[status]:
                against = [result.event_id for result in results if result.status == status]
                return {status: counts[status]}, problem_of(problem(against))
        return counts, _answer(counts, results)

    return work


async def _ingest_lines(
    store: Store, find: Find, request: Request, settings: ServiceSettings
) -> tuple[Counts, Response]:
    """Each piece of a stream in a transaction of its own. Raises Unavailable, which says how much is stored."""
    counts: Counter[Status] = Counter()
    shown: list[RowResult] = []
    async for chunk in read_chunks(request, settings):
        try:
            results = await store.run(_append_lines(find, chunk, datetime.now(UTC)))
        except Unavailable as error:
            reason = f"{error} {counts.total()} lines before line {chunk[0][0]} are stored: send all of them again."
            raise Unavailable(reason) from error
        counts.update(result.status for result in results)
        shown += [result for result in results if result.status != "created"][: MAX_RESULTS - len(shown)]
    return counts, _answer(counts, shown)


def _append_lines(
    find: Find, chunk: Sequence[tuple[int, bytes]], received_at: datetime
) -> Callable[[Connection], list[RowResult]]:
    def work(connection: Connection) -> list[RowResult]:
        schemas = find(connection)
        judged = judge(schemas, lambda rules: rules.read_lines([line for _, line in chunk]))
        record_rejections(connection, schemas[0].task_id, [*map(rejection_of, judged.refused.values())], received_at)
        results = _append(connection, judged, received_at, False)
        return [
            msgspec.structs.replace(result, line=number) for (number, _), result in zip(chunk, results, strict=True)
        ]

    return work


def _append(connection: Connection, judged: Judged, received_at: datetime, whole: bool) -> list[RowResult]:
    """Store the valid rows; where `whole` and any is in conflict or erased, none of them."""
    savepoint = connection.begin_nested() if whole else None
    stored = append(connection, judged, received_at)
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


# What of a whole batch keeps all of it from being stored, and what is then said.
_WHOLE: dict[Status, Callable[[Sequence[str | None]], Conflict]] = {"conflict": _conflict, "erased": _erased}


def _locate(refused: Mapping[int, Refusal]) -> list[Fault]:
    """Faults of all refused rows of an array, each with its row's place."""
    return [
        Fault(f"events[{place}].{fault.field}", fault.reason) for place, row in refused.items() for fault in row.faults
    ]


def _answer(counts: Counts, results: list[RowResult]) -> Response:
    created, duplicates, conflicts, rejected, erased = (counts.get(status, 0) for status in STATUSES)
    answer = IngestResult(created, duplicates, conflicts, rejected, results, erased or UNSET)
    return Response(msgspec.json.encode(answer), media_type="application/json")
