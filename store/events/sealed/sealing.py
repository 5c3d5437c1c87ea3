"""Sealing: rows of old windows are written to files, and only then leave the table of events, batch by batch.

1. Rows are read, written to a file that was announced, and the file is named in the manifest with the ids of its rows.
   Every row is still in the table, and counts there.
2. Statements that began before are waited for. Later ones find the ids, so none stores a sealed event a second time.
3. Batch after batch, rows that are as the file holds them leave the table and count in the file. Others stay.

A kill leaves a file that nothing names, which is swept, or one whose rows have moved in part: the next sealing goes on
there. Events with several revisions, erased ones and odd rows stay in the table, and so do the newest and oldest rows,
which statuses look at.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, func, select, text

from contracts.clock import from_micros, to_micros
from contracts.errors import Conflict
from store.database import FIRST_MOMENT, LAST_MOMENT, sealed_files
from store.events.lookups import is_readable
from store.events.row_forms import NUMBER
from store.events.sealed.earlier_writers import await_earlier_writers
from store.events.sealed.manifest import (
    ADD_IDS,
    MAX_FILES,
    SealedFile,
    add_file,
    list_files,
    lock_file,
    mark_stale,
)
from store.events.sealed.parquet_rows import SealedFiles, StoredRow, pack, read_widths, to_rows, to_table
from store.events.sealed.rewriting import ROWS_PER_GROUP, announce, list_stale, rewrite_stale, transact
from store.events.tombstones import window_grid
from store.tasks.catalog import Schema

# Rows that stay in the table, so that a status and a search for far rows need no file.
KEPT_NEWEST, KEPT_OLDEST = 50_000, 1_001
ROWS_PER_FILE = 100_000
_MAX_LABELS = 200


@dataclass(frozen=True)
class Sealed:
    """What a sealing has moved, or would move."""

    num_files: int = 0
    num_rows: int = 0
    num_bytes: int = 0

    def __add__(self, other: "Sealed") -> "Sealed":
        return Sealed(
            self.num_files + other.num_files, self.num_rows + other.num_rows, self.num_bytes + other.num_bytes
        )


@dataclass(frozen=True)
class Limits:
    """How many rows stay in the table, and how many a file and a transaction take.

    Nothing is sealed of fewer than `fewest_rows`. `wait_seconds` bounds the wait for earlier transactions.
    """

    kept_newest: int = KEPT_NEWEST
    kept_oldest: int = KEPT_OLDEST
    rows_per_file: int = ROWS_PER_FILE
    fewest_rows: int = 1
    rows_per_batch: int = 5_000
    max_files: int = 2**23
    wait_seconds: float = 60.0


DEFAULT_LIMITS = Limits()


def count_sealable(connection: Connection, schema: Schema, before: int, limits: Limits = DEFAULT_LIMITS) -> int:
    """How many rows of windows before a moment (microseconds) a sealing would move."""
    span = _find_span(connection, schema, before, limits)
    if span is None:
        return 0
    # A task with a large share of the table would be read by a scan of all tasks' events.
    connection.execute(text("SET LOCAL enable_seqscan = off"))
    return int(connection.execute(_COUNT, {**_given(connection, schema), **span}).scalar_one())


def seal(
    engine: Engine, url: str, schema: Schema, before: int, now: datetime, *, limits: Limits = DEFAULT_LIMITS
) -> Sealed:
    """Move the rows of windows before a moment (microseconds) to files in the object store at `url`.

    Raises Conflict if another process seals this task, ObjectStoreAway and StoreOutage.
    """
    with _alone(engine, schema):
        done = Sealed()
        with engine.connect() as connection:
            left = [file for file in list_files(connection, schema.task_id) if file.num_moved < file.num_rows]
        for file in left:
            done += Sealed(1, _move(engine, schema, file, limits))
        with engine.connect() as connection:
            span = _find_span(connection, schema, before, limits)
            is_enough = limits.fewest_rows <= 1 or (
                count_sealable(connection, schema, before, limits) >= limits.fewest_rows
            )
        while span is not None and is_enough and done.num_files < limits.max_files:
            written, num_bytes, after = _write(engine, url, schema, span, rows_per_file=limits.rows_per_file, now=now)
            if written is None:
                break
            done += Sealed(1, _move(engine, schema, written, limits), num_bytes)
            span |= after
        with engine.connect() as connection:
            stale = list_stale(connection, schema.task_id)
        rewrite_stale(partial(transact, engine), stale, now)
        return done


@contextmanager
def _alone(engine: Engine, schema: Schema) -> Iterator[None]:
    """Hold the lock of a task's sealing. It ends with its connection, however this process ends."""
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        if not connection.execute(_TRY_LOCK, {"task_id": schema.task_id}).scalar_one():
            raise Conflict(f"Events of {schema.task.name} are being sealed by another process: try again later.")
        yield


def _find_span(connection: Connection, schema: Schema, before: int, limits: Limits) -> dict[str, Any] | None:
    """The moments between which rows may leave; None if there are none."""
    ends = {
        name: connection.execute(query, {"task_id": schema.task_id, "count": count}).scalar_one_or_none()
        for name, query, count in (
            ("newest", _NEWEST, limits.kept_newest),
            ("oldest", _OLDEST, max(0, limits.kept_oldest - 1)),
        )
    }
    if ends["newest"] is None or ends["oldest"] is None:
        return None
    clock = schema.task.clock
    until = clock.window_start(min(before, to_micros(ends["newest"])))
    if until <= to_micros(ends["oldest"]):
        return None
    floor = ends["oldest"] if limits.kept_oldest else FIRST_MOMENT
    return {"floor": floor, "until": from_micros(until), "last_at": FIRST_MOMENT, "last_id": ""}


def _given(connection: Connection, schema: Schema) -> dict[str, Any]:
    """The parameters by which sealable rows are found."""
    widths = read_widths(connection, schema.task_id)
    specs: dict[int, str] = {row.id: row.kind for row in connection.execute(_TARGETS, {"task_id": schema.task_id})}
    return {
        "task_id": schema.task_id,
        "schema_ids": list(widths),
        "num_numbers": [width[0] for width in widths.values()],
        "num_categories": [width[1] for width in widths.values()],
        "regressions": [specs[schema_id] == "regression" for schema_id in widths],
        "number": NUMBER,
        "first": FIRST_MOMENT,
        "last": LAST_MOMENT,
    }


def _write(
    engine: Engine, url: str, schema: Schema, span: dict[str, Any], *, rows_per_file: int, now: datetime
) -> tuple[SealedFile | None, int, dict[str, Any]]:
    """Write the next file and name it; returns it, its size, and where the next one begins."""
    files, tables, place = SealedFiles(), [], dict(span)
    ids: list[str] = []
    labels: set[str] = set()
    schema_ids: set[int] = set()
    known_at = FIRST_MOMENT
    first_at = None
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        given = _given(connection, schema)
        widths = read_widths(connection, schema.task_id)
        width = (max(one[0] for one in widths.values()), max(one[1] for one in widths.values()))
        while len(ids) < rows_per_file:
            size = min(ROWS_PER_GROUP, rows_per_file - len(ids))
            rows, withheld = _read(connection, {**given, **place, "size": size})
            if not rows:
                break
            tables.append(to_table(rows, withheld, width))
            ids += [row.event_id for row in rows]
            labels |= {row.label for row in rows} if len(labels) <= _MAX_LABELS else set()
            schema_ids |= {row.schema_id for row in rows}
            known_at = max(known_at, *(row.known_at for row in rows))
            first_at = first_at or rows[0].at
            place |= {"last_at": rows[-1].at, "last_id": rows[-1].event_id}
    if not ids:
        return None, 0, place
    content = pack(tables)
    with engine.begin() as connection:
        path = announce(connection, url, now)
    digest = files.write(url, path, content)
    with engine.begin() as connection:
        number = _next_number(connection, schema.task_id)
        file = add_file(
            connection,
            {
                "task_id": schema.task_id,
                "number": number,
                "store": url,
                "path": path,
                "digest": digest,
                "first_at": first_at,
                "last_at": place["last_at"],
                "last_known_at": known_at,
                "num_rows": len(ids),
                "schema_ids": sorted(schema_ids),
                "labels": sorted(labels) if len(labels) <= _MAX_LABELS else None,
            },
            now,
        )
        connection.execute(ADD_IDS, {"task_id": schema.task_id, "number": number, "ids": ids})
    return file, len(content), {"last_at": place["last_at"], "last_id": place["last_id"]}


def _next_number(connection: Connection, task_id: int) -> int:
    newest = connection.execute(
        select(func.coalesce(func.max(sealed_files.c.number), 0)).where(sealed_files.c.task_id == task_id)
    ).scalar_one()
    if newest + 1 >= MAX_FILES:
        raise Conflict(f"A task can have at most {MAX_FILES} files of sealed events.")
    return int(newest) + 1


def _read(connection: Connection, given: dict[str, Any]) -> tuple[list[StoredRow], list[bool]]:
    rows = connection.execute(_CANDIDATES, given).all()
    return [StoredRow(*row[:-1]) for row in rows], [row[-1] for row in rows]


def _move(engine: Engine, schema: Schema, file: SealedFile, limits: Limits) -> int:
    """Let the rows of a named file leave the table; returns how many have left it."""
    await_earlier_writers(engine, limits.wait_seconds)
    rows = SealedFiles().read(file)
    num_moved = 0
    for start in range(file.num_moved, file.num_rows, limits.rows_per_batch):
        with engine.begin() as connection:
            now_there = lock_file(connection, file.file_id)
            if now_there is None or (now_there.digest, now_there.num_moved) != (file.digest, start):
                return num_moved  # the task is gone, or the file was rewritten: what has not left stays
            batch = rows.slice(start, limits.rows_per_batch)
            moved = _move_batch(connection, schema, file, start, batch)
            if moved < batch.num_rows:  # what stayed may have been erased meanwhile
                mark_stale(connection, [file.file_id])
            num_moved += moved
    return num_moved


def _move_batch(connection: Connection, schema: Schema, file: SealedFile, start: int, batch: Any) -> int:
    """Move rows that are as the file holds them, and that nobody is about to change; returns how many."""
    rows = to_rows(batch, read_widths(connection, schema.task_id))
    connection.execute(_BATCH)
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor, cursor.copy("COPY leaving FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(
            ["int4", "text", "timestamptz", "timestamptz", "timestamptz", "int4", "float8[]", "text[]", "text", "int8"]
        )
        for place, row in enumerate(rows, start):
            copy.write_row(
                (
                    place,
                    row.event_id,
                    row.at,
                    row.known_at,
                    row.received_at,
                    row.schema_id,
                    list(row.numbers),
                    list(row.categories),
                    row.label,
                    row.import_id,
                )
            )
    key = {"task_id": schema.task_id, "file_id": file.file_id, "start": start, "end": start + len(rows)}
    connection.execute(_LOCK, key)
    return int(connection.execute(_MOVE, {**key, **window_grid(schema.task)}).scalar_one())


_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('morrow.sealing'), :task_id)")
_TARGETS = text("SELECT id, spec -> 'target' ->> 'kind' AS kind FROM schemas WHERE task_id = :task_id")
_CURRENT = f"FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND {is_readable('at')}"
_NEWEST = text(f"SELECT at {_CURRENT} ORDER BY at DESC OFFSET :count LIMIT 1")
_OLDEST = text(f"SELECT at {_CURRENT} ORDER BY at OFFSET :count LIMIT 1")

# Whatever a row of the table of today could not be is left alone, so that each sealed row can be stored again. The
# label of an answer stays while the log has the answer: it is looked up by its id.
_SEALABLE = """
    FROM events JOIN unnest(
        CAST(:schema_ids AS int[]), CAST(:num_numbers AS int[]), CAST(:num_categories AS int[]),
        CAST(:regressions AS bool[])
    ) AS form(schema_id, num_numbers, num_categories, is_regression) ON form.schema_id = events.schema_id
    WHERE task_id = :task_id AND at >= :last_at AND at < :until AND at > :floor
        AND revision = 1 AND superseded_at IS NULL AND erasure_id IS NULL
        AND NOT starts_with(event_id, chr(1)) AND label <> ''
        AND known_at BETWEEN :first AND :last AND received_at BETWEEN :first AND :last
        AND (num_numbers = 0 OR (array_ndims(numbers) = 1 AND array_lower(numbers, 1) = 1))
        AND (num_categories = 0 OR (array_ndims(categories) = 1 AND array_lower(categories, 1) = 1))
        AND cardinality(numbers) = num_numbers AND cardinality(categories) = num_categories
        AND array_position(numbers, NULL) IS NULL AND array_position(categories, NULL) IS NULL
        AND 'infinity' <> ALL (numbers) AND '-infinity' <> ALL (numbers)
        AND (NOT is_regression OR label ~ :number)
        AND event_id NOT IN (
            SELECT event_id FROM rejected_events WHERE task_id = :task_id AND event_id IS NOT NULL
        )
        AND NOT EXISTS (
            SELECT FROM predictions
            WHERE predictions.task_id = events.task_id AND predictions.id = CASE
                WHEN event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN CAST(event_id AS uuid)
            END
            OFFSET 0
        )
"""
_COUNT = text(f"SELECT count(*) {_SEALABLE} AND :last_id = ''")
_CANDIDATES = text(f"""
    SELECT event_id, at, known_at, received_at, events.schema_id, numbers, categories, label, import_id,
        get_byte(sha256(convert_to(event_id, 'UTF8')), 0) < 13 AS withheld
    {_SEALABLE}
        AND (at > :last_at OR event_id COLLATE "C" > :last_id)
    ORDER BY at, event_id COLLATE "C" LIMIT :size
""")

_BATCH = text("""
    CREATE TEMPORARY TABLE leaving (
        place integer, event_id text, at timestamptz, known_at timestamptz, received_at timestamptz, schema_id integer,
        numbers float8[], categories text[], label text, import_id bigint
    ) ON COMMIT DROP
""")
# Like a correction, this locks first revisions. It waits for nobody: a row that is locked is about to change.
_LOCK = text("""
    CREATE TEMPORARY TABLE locked ON COMMIT DROP AS
    SELECT leaving.place, found.spot
    FROM leaving CROSS JOIN LATERAL (
        SELECT ctid AS spot FROM events
        WHERE task_id = ANY(ARRAY(SELECT CAST(:task_id AS integer))) AND event_id = leaving.event_id
            AND event_id BETWEEN leaving.event_id AND leaving.event_id AND revision = 1
        OFFSET 0 FOR UPDATE SKIP LOCKED
    ) AS found
""")
_MOVE = text("""
    WITH gone AS (
        DELETE FROM events USING leaving JOIN locked USING (place)
        WHERE events.ctid = ANY(ARRAY(SELECT spot FROM locked)) AND events.ctid = locked.spot
            AND events.task_id = :task_id AND events.revision = 1
            AND events.superseded_at IS NULL AND events.erasure_id IS NULL
            AND (events.event_id, events.at, events.known_at, events.received_at, events.schema_id, events.numbers,
                 events.categories, events.label, events.import_id)
                IS NOT DISTINCT FROM
                (leaving.event_id, leaving.at, leaving.known_at, leaving.received_at, leaving.schema_id,
                 leaving.numbers, leaving.categories, leaving.label, leaving.import_id)
        RETURNING leaving.place, leaving.at, leaving.received_at, leaving.import_id
    ), counted AS (
        INSERT INTO row_counts (task_id, num_events, num_revisions)
        SELECT :task_id, count(*), count(*) FROM gone HAVING count(*) > 0
    ), windows AS (
        INSERT INTO sealed_windows AS held (file_id, start, task_id, first_at, last_at, last_received_at, num_rows)
        SELECT :file_id, date_bin(:window, at, :origin), :task_id, min(at), max(at), max(received_at), count(*)
        FROM gone GROUP BY 2
        ON CONFLICT (file_id, start) DO UPDATE SET
            first_at = least(held.first_at, excluded.first_at), last_at = greatest(held.last_at, excluded.last_at),
            last_received_at = greatest(held.last_received_at, excluded.last_received_at),
            num_rows = held.num_rows + excluded.num_rows
    ), imported AS (
        INSERT INTO sealed_imports AS held (file_id, import_id, task_id, num_rows)
        SELECT :file_id, import_id, :task_id, count(*) FROM gone WHERE import_id IS NOT NULL GROUP BY 2
        ON CONFLICT (file_id, import_id) DO UPDATE SET num_rows = held.num_rows + excluded.num_rows
    ), stayed AS (
        INSERT INTO taken_rows (file_id, place)
        SELECT :file_id, place FROM leaving WHERE place NOT IN (SELECT place FROM gone)
    ), noted AS (
        UPDATE sealed_files SET num_moved = :end WHERE id = :file_id
    )
    SELECT count(*) FROM gone
""")
