"""Imports: rows that came together, and can be retracted together if they were a mistake.

A retraction leaves tombstones under ids that no event can have, so that the same ids can be imported again. That is
the difference from an erasure, which bars them. Events that were corrected since, or erased, stay as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, text, update

from contracts.clock import from_micros, to_micros
from contracts.errors import Conflict, NotFound
from store.database import erasures, imports, tasks
from store.events.lookups import OF_TASK
from store.events.sealed.imported import count_sealed_imports, find_newest_sealed_import, read_sealed_import
from store.events.sealed.returning import bring_back_import
from store.events.tombstones import BLANK_CONTENT, window_grid
from store.tasks.catalog import Schema

# Most events that one transaction retracts.
MAX_RETRACTED = 20_000
# Most events of a window that are searched for the newest import.
_MAX_SEARCHED = 50_000


@dataclass(frozen=True)
class Import:
    """One import: who sent what when, and who retracted how many of its events when and why.

    `retracted_at` is when the last of them went. `digest` is one of the content of its file, and `options` say how it
    was read, if its sender gave them.
    """

    import_id: int
    at: datetime
    actor: str
    source: str
    digest: str | None
    retracted_at: datetime | None
    retraction_actor: str | None
    retraction_reason: str | None
    num_retracted: int
    options: Mapping[str, Any] | None


@dataclass(frozen=True)
class ImportedEvents:
    """What is left of an import: events as they came, and events that were corrected since, which a retraction keeps.

    Events without a label count as well. `versions` are the released ones that were trained on any of the former,
    oldest cutoff first.
    """

    num_events: int
    num_corrected: int
    versions: Sequence[str]


@dataclass(frozen=True)
class Retraction:
    """Events that were retracted together: when, and where the first and last of them were dated; microseconds.

    The moments of the events are known as the starts of their windows.
    """

    at: int
    first: int
    last: int

    def voids(self, trained_from: int | None, origin: int, read_at: int) -> bool:
        """Whether a fit of `origin` has read one of the events: of rows from `trained_from` on, read at `read_at`."""
        return read_at <= self.at and self.first < origin and (trained_from is None or trained_from <= self.last)


def add_import(
    connection: Connection,
    task_id: int,
    *,
    actor: str,
    source: str,
    now: datetime,
    digest: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Import:
    """Begin an import."""
    given = None if options is None else dict(options)
    values = {"task_id": task_id, "at": now, "actor": actor, "source": source, "digest": digest, "options": given}
    return _make_import(connection.execute(insert(imports).values(values).returning(*_COLUMNS)).one())


def list_imports(connection: Connection, task_id: int, limit: int = 1000) -> list[Import]:
    """A task's imports, newest first."""
    rows = connection.execute(
        select(*_COLUMNS).where(imports.c.task_id == task_id).order_by(imports.c.id.desc()).limit(limit)
    )
    return [_make_import(row) for row in rows]


def find_last_import(connection: Connection, task_id: int) -> Import | None:
    """The newest import that is not retracted; if all are, the newest of those; None if there is none."""
    row = connection.execute(
        select(*_COLUMNS)
        .where(imports.c.task_id == task_id)
        .order_by(imports.c.retracted_at.is_not(None), imports.c.id.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else _make_import(row)


def find_import(connection: Connection, task_id: int, import_id: int) -> Import:
    """One import of a task. Raises NotFound."""
    return _find(connection, task_id, import_id, lock=None)


def require_open(connection: Connection, task_id: int, import_id: int) -> None:
    """Let rows join an import, which cannot be retracted until they are stored. Raises NotFound, Conflict."""
    found = _find(connection, task_id, import_id, lock="share")
    if found.retracted_at is not None:
        raise Conflict(f"Import {import_id} is retracted: begin another one.")


def read_import(connection: Connection, task_id: int, import_id: int) -> ImportedEvents:
    """What is left of an import."""
    num_events, num_corrected = count_imports(connection, task_id, [import_id]).get(import_id, (0, 0))
    key = {"task_id": task_id, "import_id": import_id}
    versions = connection.execute(_TRAINED, key).scalars().all()
    if count_sealed_imports(connection, task_id, [import_id]):
        versions = _add_trained(connection, key, versions)
    return ImportedEvents(num_events, num_corrected, versions)


def count_imports(connection: Connection, task_id: int, import_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """For each of these imports that stored anything: events as they came, and events that were corrected since."""
    found = connection.execute(_COUNT_EACH, {"task_id": task_id, "import_ids": [*import_ids]})
    counts = {row.import_id: (row.num_events, row.num_corrected) for row in found}
    for import_id, num_sealed in count_sealed_imports(connection, task_id, import_ids).items():
        num_events, num_corrected = counts.get(import_id, (0, 0))
        counts[import_id] = num_events + num_sealed, num_corrected
    return counts


def find_newest_import(connection: Connection, task_id: int, first: int, end: int) -> int | None:
    """The newest import with events from `first` to before `end` (microseconds); of many events, the latest count."""
    given = {"task_id": task_id, "first": from_micros(first), "end": from_micros(end), "most": _MAX_SEARCHED}
    found: int | None = connection.execute(_FIND_NEWEST, given).scalar_one()
    sealed = find_newest_sealed_import(connection, task_id, first, end)
    return max((one for one in (found, sealed) if one is not None), default=None)


def _add_trained(connection: Connection, key: dict[str, int], versions: Sequence[str]) -> Sequence[str]:
    """These versions, and those that were trained on sealed events of the import."""
    rows = read_sealed_import(connection, key["task_id"], key["import_id"])
    return [
        version
        for version, cutoff, read_at in connection.execute(_RELEASED, key)
        if version in versions
        or any(
            ((at < to_micros(cutoff)) & (known_at <= to_micros(cutoff)) & (received_at <= to_micros(read_at))).any()
            for at, known_at, received_at in rows
        )
    ]


def was_retracted_since(connection: Connection, task_id: int, moment: datetime) -> bool:
    """Whether an import of a task was retracted after a moment."""
    found = select(imports.c.id).where(imports.c.task_id == task_id, imports.c.retracted_at > moment).limit(1)
    return connection.execute(found).first() is not None


def retract_events(
    connection: Connection, schema: Schema, import_id: int, *, actor: str, reason: str, now: datetime
) -> tuple[Import, int]:
    """Retract events of an import, at most `MAX_RETRACTED`; returns it and the number of these events.

    Nothing can join the import any more. Raises NotFound.
    """
    found = _find(connection, schema.task_id, import_id, lock="update")
    key = {"task_id": schema.task_id, "import_id": import_id}
    # First those without a label: their labels may come, and then they are events.
    num_events = connection.execute(_RETRACT_UNLABELLED, {**key, "most": MAX_RETRACTED}).rowcount
    if num_events < MAX_RETRACTED:
        most = MAX_RETRACTED - num_events
        bring_back_import(connection, schema.task_id, import_id, most=most)
        num_blank = connection.execute(_RETRACT, {**key, "most": most, **window_grid(schema.task)}).rowcount
        # One more revision for each window, so that every count of it differs from what cells know.
        if num_blank:
            connection.execute(_ADD, key)
        num_events += num_blank
    changes: dict[str, object] = {"num_retracted": found.num_retracted + num_events}
    if found.retracted_at is None:
        changes |= {"retraction_actor": actor, "retraction_reason": reason}
    if found.retracted_at is None or num_events:  # fits that were read before the last of its events went have seen it
        changes["retracted_at"] = now
    row = connection.execute(
        update(imports).where(imports.c.id == import_id).values(**changes).returning(*_COLUMNS)
    ).one()
    return _make_import(row), num_events


def list_retractions(connection: Connection, task_id: int) -> list[Retraction]:
    """Every retraction that took events of the task."""
    return [
        Retraction(to_micros(at), to_micros(first), to_micros(last))
        for at, first, last in connection.execute(_RETRACTIONS, {"task_id": task_id})
        if first is not None
    ]


def find_last_withdrawal(connection: Connection, task_id: int) -> int | None:
    """When events of the task were last retracted or erased (microseconds); None if none were."""
    newest = connection.execute(
        select(
            func.greatest(
                select(func.max(imports.c.retracted_at)).where(imports.c.task_id == task_id).scalar_subquery(),
                select(func.max(erasures.c.at)).where(erasures.c.task_id == task_id).scalar_subquery(),
            )
        )
    ).scalar_one()
    return None if newest is None else to_micros(newest)


def _find(connection: Connection, task_id: int, import_id: int, *, lock: str | None) -> Import:
    query = select(*_COLUMNS).where(imports.c.task_id == task_id, imports.c.id == import_id)
    if lock is not None:
        query = query.with_for_update(read=lock == "share")
    row = connection.execute(query).one_or_none()
    if row is None:
        name = connection.execute(select(tasks.c.name).where(tasks.c.id == task_id)).scalar_one()
        raise NotFound(
            f"{name} has no import {import_id}: `morrow events history {name}` or GET /tasks/{name}/imports lists "
            "those that it has."
        )
    return _make_import(row)


def _make_import(row: Iterable[Any]) -> Import:
    return Import(*row)


_COLUMNS = (
    imports.c.id,
    imports.c.at,
    imports.c.actor,
    imports.c.source,
    imports.c.digest,
    imports.c.retracted_at,
    imports.c.retraction_actor,
    imports.c.retraction_reason,
    imports.c.num_retracted,
    imports.c.options,
)

# Ids of tombstones begin with a control character, which no id of an event can hold.
_COUNTED = """
    count(*) FILTER (WHERE superseded_at IS NULL) AS num_events,
    count(*) FILTER (
        WHERE superseded_at IS NOT NULL AND erasure_id IS NULL AND NOT starts_with(event_id, chr(1))
    ) AS num_corrected
"""
_COUNT_EACH = text(f"""
    SELECT import_id, CAST(sum(num_events) AS bigint) AS num_events, CAST(sum(num_corrected) AS bigint) AS num_corrected
    FROM (
        SELECT import_id, {_COUNTED} FROM events
        WHERE task_id = {OF_TASK} AND import_id = ANY(CAST(:import_ids AS bigint[])) AND revision = 1
        GROUP BY import_id
        UNION ALL
        SELECT import_id, count(*), 0 FROM incomplete_events
        WHERE task_id = {OF_TASK} AND import_id = ANY(CAST(:import_ids AS bigint[])) GROUP BY import_id
    ) AS counted
    GROUP BY import_id
""")  # noqa: S608 our own fragment

_FIND_NEWEST = text(f"""
    SELECT max(import_id) FROM (
        SELECT import_id FROM events
        WHERE task_id = {OF_TASK} AND at >= :first AND at < :end AND revision = 1 AND superseded_at IS NULL
        ORDER BY at DESC LIMIT :most
    ) AS found
""")  # noqa: S608 our own fragment

# Like a correction, a retraction locks first revisions, which never move, all of them in one order. It finds the rows
# again by their place: a join by id is slow until the table of a first import has been analysed.
_RETRACT = text(f"""
    WITH doomed AS (
        SELECT ctid FROM events
        WHERE task_id = {OF_TASK} AND import_id = :import_id AND revision = 1 AND superseded_at IS NULL
        ORDER BY event_id COLLATE "C" LIMIT :most FOR UPDATE
    )
    UPDATE events
    SET {BLANK_CONTENT}, event_id = chr(1) || :import_id || ':' || gen_random_uuid()
    FROM schemas
    WHERE events.ctid = ANY(ARRAY(SELECT ctid FROM doomed)) AND schemas.id = events.schema_id
""")  # noqa: S608 our own fragment

_RETRACT_UNLABELLED = text(f"""
    DELETE FROM incomplete_events WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM incomplete_events WHERE task_id = {OF_TASK} AND import_id = :import_id
        ORDER BY event_id COLLATE "C" LIMIT :most FOR UPDATE
    ))
""")  # noqa: S608 our own fragment

_ADD = text(f"""
    INSERT INTO events
        (task_id, event_id, revision, at, known_at, received_at, superseded_at, schema_id, numbers, categories, label,
         import_id)
    SELECT task_id, chr(1) || :import_id || ':' || gen_random_uuid(), 1, at, known_at, received_at,
           superseded_at, schema_id, numbers, categories, label, import_id
    FROM (
        SELECT DISTINCT ON (schema_id, at) * FROM events
        WHERE task_id = {OF_TASK} AND import_id = :import_id AND starts_with(event_id, chr(1))
        ORDER BY schema_id, at, known_at
    ) AS windows
""")  # noqa: S608 our own fragment

_RETRACTIONS = text(f"""
    SELECT imports.retracted_at, gone.first, gone.last
    FROM imports CROSS JOIN LATERAL (
        SELECT min(at) AS first, max(at) AS last FROM events
        WHERE task_id = {OF_TASK} AND import_id = imports.id AND starts_with(event_id, chr(1))
    ) AS gone
    WHERE imports.task_id = :task_id AND imports.num_retracted > 0
    ORDER BY imports.id
""")  # noqa: S608 our own fragment

_RELEASED = text("""
    SELECT version, cutoff, read_at FROM cycles
    WHERE task_id = :task_id AND state = 'released' AND read_at IS NOT NULL ORDER BY cutoff
""")

_TRAINED = text(f"""
    SELECT cycles.version FROM cycles
    WHERE cycles.task_id = :task_id AND cycles.state = 'released' AND EXISTS (
        SELECT FROM events
        WHERE events.task_id = {OF_TASK} AND events.import_id = :import_id AND events.superseded_at IS NULL
          AND events.at < cycles.cutoff AND events.known_at <= cycles.cutoff AND events.received_at <= cycles.read_at
    )
    ORDER BY cycles.cutoff
""")  # noqa: S608 our own fragment
