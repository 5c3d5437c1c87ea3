"""Group commit: single events that wait at the same time are written by one statement and one commit.

There is no timer and no task of its own. The first request writes the events that have queued up; meanwhile others
queue up, and the next request writes those. An event is acknowledged only after the commit that holds it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import anyio
from sqlalchemy import Connection

from contracts.errors import MorrowError, Unavailable
from service.database import Store
from service.ingest.schema_versions import append, group_by_schema, validate_one
from service.validation.rules import Refusal, RowRules, compile_rules
from service.web.keys.task_access import require_task
from store.errors import Locked
from store.events.batches import Event, EventBatch
from store.events.writes import Rejection, record_rejections
from store.labels.unlabelled import Stored, append_rows
from store.tasks.catalog import Schema

MAX_GROUP = 500
# How long a group may be written one by one if many of its events wait for a lock; the others are answered 503.
_LONGEST_SPLIT_SECONDS = 3.0

# The id of a body's event, "" if none was accepted, and its outcome.
_Found = tuple[str, Stored | Refusal | Exception | None]


@dataclass
class QueuedEvent:
    """One body that should be one event, and its outcome, which is None until it is known.

    `allowed` are the ids of the tasks that its sender may use; None for all.
    """

    task: str | None
    body: bytes
    allowed: frozenset[int] | None = None
    outcome: Stored | Refusal | Exception | None = None
    event_id: str = ""


class GroupCommit:
    """The queue of one process; `find_schemas` reads, inside the transaction, the schemas whose rows a task accepts."""

    def __init__(
        self,
        store: Store,
        queue_size: int,
        find_schemas: Callable[[Connection, str | None], Sequence[Schema]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._queue_size = queue_size
        self._find_schemas = find_schemas
        self._clock = clock
        self._queue: list[QueuedEvent] = []
        self._turn = asyncio.Lock()  # half the price of anyio's, and every event passes it

    async def write(self, task: str | None, body: bytes, allowed: frozenset[int] | None = None) -> QueuedEvent:
        """The event with its outcome, after the commit. Raises Unavailable, and any error of its body or task."""
        if len(self._queue) >= self._queue_size:
            raise Unavailable("Too many events wait to be written.")
        one = QueuedEvent(task, body, allowed)
        self._queue.append(one)
        async with self._turn:
            if one.outcome is None:
                group, self._queue = self._queue[:MAX_GROUP], self._queue[MAX_GROUP:]
                with anyio.CancelScope(shield=True):  # a client that disconnects must not cancel others' events
                    await self._write(group)
        if isinstance(one.outcome, Exception):
            raise one.outcome
        return one

    async def _write(self, group: Sequence[QueuedEvent], *, briefly: bool = False) -> None:
        """Write a group; if it fails by one of its events or by a lock, write the events of each task, then each event.

        So no event can fail the others, and no session that holds the row of one event or task. With `briefly`, waits
        for locks are brief.
        """
        found: Sequence[_Found]
        tasks = _part_by_task(group)
        if len(tasks) > 1 and (held := [name for name in tasks if self._store.waits_briefly(name)]):
            for part in ([one for one in group if (one.task or "") not in held], *(tasks[name] for name in held)):
                if part:
                    await self._write(part)
            return
        try:
            found = await self._store.run(
                lambda connection: self._append(connection, group), list(tasks), briefly=briefly
            )
        except Exception as error:  # noqa: BLE001 each request of the group raises it
            is_locked = isinstance(error, Locked)
            if len(group) > 1 and (is_locked or not isinstance(error, Unavailable)):
                until = time.monotonic() + _LONGEST_SPLIT_SECONDS
                for part in tasks.values() if len(tasks) > 1 else [[one] for one in group]:
                    if is_locked and time.monotonic() > until:
                        for one in part:
                            one.outcome = error
                    else:
                        await self._write(part, briefly=is_locked)
                return
            found = [("", error)] * len(group)
        # Set only here, after the commit: an abandoned thread may still be running.
        for one, (event_id, outcome) in zip(group, found, strict=True):
            one.event_id, one.outcome = event_id, outcome

    def _append(self, connection: Connection, group: Sequence[QueuedEvent]) -> list[_Found]:
        """The id and the outcome of each event of a group."""
        now = self._clock()
        known: dict[tuple[str | None, frozenset[int] | None], Sequence[Schema]] = {}
        asked: dict[int, tuple[Sequence[Schema], list[int]]] = {}
        found: dict[int, _Found] = {}
        for place, one in enumerate(group):
            try:
                if (asked_as := (one.task, one.allowed)) not in known:
                    if one.allowed is not None:
                        require_task(connection, one.task or "", one.allowed)
                    known[asked_as] = self._find_schemas(connection, one.task)
                schemas = known[asked_as]
            except MorrowError as error:
                found[place] = ("", error)
                continue
            asked.setdefault(schemas[0].task_id, (schemas, []))[1].append(place)
        # Tasks in one order, so that two processes can wait for each other but not deadlock.
        for _, (schemas, places) in sorted(asked.items()):
            bodies = [group[place].body for place in places]
            found.update(zip(places, _append_bodies(connection, schemas, bodies, now), strict=True))
        return [found[place] for place in range(len(group))]


def _part_by_task(group: Sequence[QueuedEvent]) -> dict[str, list[QueuedEvent]]:
    """The events of each task by the name that they were sent for, "" without one."""
    parts: dict[str, list[QueuedEvent]] = {}
    for one in group:
        parts.setdefault(one.task or "", []).append(one)
    return parts


def _append_bodies(
    connection: Connection, schemas: Sequence[Schema], bodies: Sequence[bytes], received_at: datetime
) -> list[_Found]:
    """Store bodies of one task: all at once if the fast path decodes them, otherwise each is validated by itself."""
    batch = compile_rules(schemas[0].task).events.decode_lines(bodies)
    if batch is not None:
        return [*zip(batch.event_ids, append_rows(connection, schemas[0], batch, received_at), strict=True)]
    found: dict[int, _Found] = {}
    rows: dict[int, tuple[Schema, Event | Refusal]] = {}
    for place, body in enumerate(bodies):
        try:
            rows[place] = validate_one(schemas, partial(_read_event, body))
        except MorrowError as error:
            found[place] = ("", error)
    validated = group_by_schema([*rows.values()])
    record_rejections(connection, schemas[0].task_id, [*map(rejection_of, validated.refused.values())], received_at)
    for place, one in zip(rows, append(connection, validated, received_at), strict=True):
        found[place] = ("", one) if isinstance(one, Refusal) else one
    return [found[place] for place in range(len(bodies))]


def _read_event(body: bytes, rules: RowRules) -> EventBatch | list[Event | Refusal]:
    return rules.read_events(body, 1)


def rejection_of(row: Refusal) -> Rejection:
    """The stored form of a refused row."""
    reason = "; ".join(f"{fault.field}: {fault.reason}" for fault in row.faults)
    return Rejection(row.event_id, reason, row.payload)
