"""The states of tasks as they are read from the store: one statement for any number of tasks.

A row that cannot be read is named, and hides neither another row nor another task.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
import structlog
from sqlalchemy import Connection, func, select

from contracts.clock import from_micros, to_micros
from contracts.errors import Unavailable
from contracts.verdict import decode_row, decode_verdict
from service.database import Store
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import RealisedError, RecentAttempt, TaskState
from store.cycles.ledger import list_readable_cycles
from store.readable_rows import is_unreadable
from store.releases import Action, Overlay, Release, is_released_as, list_readable_releases, read_overlay
from store.tasks.catalog import Schema
from store.tasks.ledgers import (
    MAX_RECENT,
    AskedTask,
    AskedVersion,
    LedgerCell,
    LedgerDocuments,
    LedgerRelease,
    Ledgers,
    read_ledgers,
)

log = structlog.get_logger(__name__)

_UNREADABLE_EVENTS = (
    "Events with a moment before the year 1 or after 9999 were written past the API, and count for nothing: correct or "
    "delete those with at > '9999-12-31' or at < '0001-01-01'."
)


@dataclass(frozen=True)
class StoredTask:
    """What the store says of a task at a poll: its state, and what `releases` adds to the version that answers here.

    `fault` says why some of its rows cannot be read; the others count.
    """

    state: TaskState | None
    overlay: Overlay | None
    fault: str | None


def read_task_state(connection: Connection, schema: Schema, forecaster: Forecaster | None) -> TaskState:
    """The state of a task; `forecaster` answers for it here."""
    (documents,) = _read_documents(connection, [schema], {schema.task.name: forecaster})
    return _decode_state(schema, documents, forecaster)


def read_readable_state(
    connection: Connection, schema: Schema, forecaster: Forecaster | None
) -> tuple[TaskState, list[str]]:
    """The state of a task as far as its rows can be read, and a sentence about those of each table that cannot."""
    (documents,) = _read_documents(connection, [schema], {schema.task.name: forecaster})
    return _read_state(connection, schema, documents, forecaster)


def read_task_states(
    connection: Connection, schemas: Sequence[Schema], forecasters: Mapping[str, Forecaster]
) -> dict[int, StoredTask]:
    """Task id -> what the store says of the task, by few statements whatever their number.

    A row that cannot be read is a fault of its own task, and hides neither another task nor the task's own bound.
    """
    by_id = {schema.task_id: schema for schema in schemas}
    found = {}
    for documents in _read_documents(connection, schemas, forecasters):
        schema = by_id[documents.task_id]
        forecaster = forecasters.get(schema.task.name)
        state, faults = _read_state(connection, schema, documents, forecaster)
        overlay = None
        if forecaster is not None:
            overlay, fault = _read_overlay_of(documents, forecaster)
            if fault is not None and not faults:
                faults = _name_unreadable(connection, schema, fault)
        if documents.has_unreadable_events:
            faults.append(_UNREADABLE_EVENTS)
        found[schema.task_id] = StoredTask(state, overlay, faults[0] if faults else None)
    return found


def _read_state(
    connection: Connection, schema: Schema, documents: LedgerDocuments, forecaster: Forecaster | None
) -> tuple[TaskState, list[str]]:
    """As `read_readable_state`."""
    try:
        return _decode_state(schema, documents, forecaster), []
    except Exception as error:
        if not is_unreadable(error):
            raise
        fault = error
    found = documents.read_readable_ledgers(connection.execute(select(func.now())).scalar_one())
    for name in ("judged", "released", "bound"):
        row = getattr(found, name)
        decode: Callable[[Any], object] = decode_verdict if name == "judged" else _release
        if row is not None and not _can_decode(decode, row):
            found = msgspec.structs.replace(found, **{name: None})
    state = replace(_build_state(schema, found, forecaster), awaited=0)
    return state, _name_unreadable(connection, schema, fault)


def _name_unreadable(connection: Connection, schema: Schema, fault: Exception) -> list[str]:
    """A sentence about the rows of each table that cannot be read, after one of them was at fault."""
    log.debug("task.unreadable", task=schema.task.name, exc_info=fault)
    tables = (
        list_readable_cycles(connection, schema.task_id, MAX_RECENT).fault,
        list_readable_releases(connection, schema.task_id, with_calibration=True).fault,
    )
    return [one for one in tables if one is not None] or [_say_unreadable(fault)]


def find_overlay(store: Store, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """What `releases` says of a version; None if it says nothing, or if the database does not answer."""
    try:
        return store.transact(lambda connection: _read_overlay(connection, task_id, forecaster))
    except Unavailable:
        return None


def _read_documents(
    connection: Connection, schemas: Sequence[Schema], forecasters: Mapping[str, Forecaster | None]
) -> Iterable[LedgerDocuments]:
    now = connection.execute(select(func.now())).scalar_one()
    return read_ledgers(connection, [_ask(schema, forecasters.get(schema.task.name), now) for schema in schemas])


def _ask(schema: Schema, forecaster: Forecaster | None, now: datetime) -> AskedTask:
    clock = schema.task.clock
    return AskedTask(
        task_id=schema.task_id,
        clock=clock,
        until=clock.window_start(to_micros(now - schema.task.label_delay)),
        wanted=_count_wanted(schema),
        version=None
        if forecaster is None
        else AskedVersion(
            version=forecaster.version,
            trained_from=forecaster.manifest.trained_from,
            cutoff=forecaster.manifest.cutoff,
            read_at=forecaster.manifest.read_at,
            recipe=forecaster.manifest.recipe,
            method=forecaster.task.training.method,
            error_name=forecaster.manifest.error_name,
        ),
    )


def _count_wanted(schema: Schema) -> int:
    """The windows that a first verdict needs: one to learn from, and those after it that judge a horizon."""
    return schema.task.guard.min_pairs + 1


def _decode_state(schema: Schema, documents: LedgerDocuments, forecaster: Forecaster | None) -> TaskState:
    """Raises ValueError, OverflowError and others for rows that cannot be read."""
    return _build_state(schema, documents.read_ledgers(), forecaster)


def _build_state(schema: Schema, found: Ledgers, forecaster: Forecaster | None) -> TaskState:
    return TaskState(
        defined_at=found.defined_at,
        champion=found.champion,
        version=None if forecaster is None else forecaster.version,
        released=_release(found.released),
        bound=_release(found.bound),
        recent=tuple(
            RecentAttempt(to_micros(one.cutoff), one.state, one.reason, one.ended_at) for one in found.attempts
        ),
        judged=None if found.judged is None else decode_verdict(found.judged),
        realised=() if forecaster is None else tuple(_realised(one, forecaster) for one in found.realised),
        awaited=0 if found.judged is not None else _count_wanted(schema) - found.num_windows,
        newest=None if found.newest is None else to_micros(found.newest),
        num_retracted=found.num_retracted,
        num_erased=found.num_erased,
        num_unlabelled=found.num_unlabelled,
        num_waiting=found.num_waiting,
        answered=tuple((one.age, one.quality) for one in found.answered),
    )


def _release(row: LedgerRelease | None) -> Release | None:
    if row is None:
        return None
    figures = None if row.verdict is None else decode_row(row.action, row.verdict)
    action, bound = msgspec.convert(row.action, Action), to_micros(row.valid_until)
    return Release(row.id, row.version, action, bound, None, figures, row.actor, row.reason, row.at)


def _realised(cell: LedgerCell, forecaster: Forecaster) -> RealisedError:
    window = to_micros(cell.window)
    age = forecaster.task.clock.age(forecaster.manifest.cutoff, window)
    return RealisedError(age, window, cell.error, cell.num_rows, cell.is_complete)


def _read_overlay_of(documents: LedgerDocuments, forecaster: Forecaster) -> tuple[Overlay | None, Exception | None]:
    """What the rows of a version say, and why its calibration cannot be read, if so; its bound counts all the same.

    None if there are no rows, if those of its number belong to another model, or if not even the bound can be read.
    """
    fault: Exception | None = None
    try:
        found = documents.read_version()
    except msgspec.DecodeError as error:
        fault = error
        try:
            found = documents.read_bound()
        except msgspec.DecodeError:
            return None, fault
    if found.valid_until is None or found.cutoff not in (None, from_micros(forecaster.manifest.cutoff)):
        return None, fault
    return Overlay(to_micros(found.valid_until), found.calibration), fault


def _read_overlay(connection: Connection, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """The same from the rows themselves."""
    if not is_released_as(connection, task_id, forecaster.version, forecaster.manifest.cutoff):
        return None
    return read_overlay(connection, task_id, forecaster.version)


def _can_decode(decode: Callable[[Any], object], row: object) -> bool:
    try:
        decode(row)
    except Exception as error:
        if not is_unreadable(error):
            raise
        return False
    return True


def _say_unreadable(error: Exception) -> str:
    return f"Rows of this task cannot be read ({type(error).__name__}): they were written past the API."
