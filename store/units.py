"""The ledger of units: the parts of a cycle's fits that several processes carry out side by side.

The process of the cycle records its units and carries them out one after the other. Meanwhile other training processes
that keep fits in the same place help, each under a lease. A unit that a helper could not end is left to the cycle's own
process, so a cycle never waits for help. Units stay until a later cycle of their task records its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from contracts.errors import LeaseLost
from store.cycles.ledger import Cycle
from store.database import cycles, units

UnitState = Literal["requested", "running", "done"]


@dataclass(frozen=True)
class NewUnit:
    """A unit to be recorded: its digest, and what a helper must know to carry it out."""

    digest: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class UnitRow:
    """A recorded unit. `result` is what its process has reported of the kept fits."""

    unit_id: int
    cycle_id: int
    task_id: int
    digest: str
    spec: dict[str, Any]
    state: UnitState
    lease: str | None
    attempts: int
    result: bytes | None


def record_units(connection: Connection, cycle: Cycle, made: Sequence[NewUnit], now: datetime, *, place: str) -> None:
    """Record the units of a running cycle, in the order in which to carry them out.

    `place` names where their fits are kept. Units that were done are asked for again. Those of
    the task's cycles that have ended are deleted.
    """
    is_running = exists().where(cycles.c.id == units.c.cycle_id, cycles.c.state == "running")
    connection.execute(delete(units).where(units.c.task_id == cycle.task_id, ~is_running))
    rows = [
        {
            "task_id": cycle.task_id,
            "cycle_id": cycle.cycle_id,
            "place": place,
            "digest": one.digest,
            "spec": one.spec,
            "state": "requested",
            "requested_at": now,
        }
        for one in made
    ]
    again = {"state": "requested", "lease": None, "result": None, "ended_at": None}
    connection.execute(
        insert(units).values(rows).on_conflict_do_update(index_elements=["cycle_id", "digest"], set_=again)
    )


def claim_own(
    connection: Connection, cycle: Cycle, digests: Sequence[str], now: datetime, lease_time: timedelta
) -> UnitRow | None:
    """Claim one of these units for the process of their cycle; None if helpers hold or have ended all others.

    A helper whose lease has expired loses its unit.
    """
    is_free = or_(units.c.state == "requested", (units.c.state == "running") & (units.c.lease_until <= now))
    own = (units.c.cycle_id == cycle.cycle_id, units.c.digest.in_(digests), is_free)
    return _claim(connection, str(cycle.lease), now, lease_time, *own)


def claim_help(connection: Connection, place: str, lease: str, now: datetime, lease_time: timedelta) -> UnitRow | None:
    """Claim a unit of any running cycle whose fits are kept in this place, if no process has tried it yet."""
    is_running = exists().where(
        cycles.c.id == units.c.cycle_id, cycles.c.state == "running", cycles.c.lease_until > now
    )
    return _claim(
        connection,
        lease,
        now,
        lease_time,
        units.c.place == place,
        units.c.state == "requested",
        units.c.attempts == 0,
        is_running,
    )


def renew_units(connection: Connection, lease: str, now: datetime, lease_time: timedelta) -> int:
    """Keep the units of this lease; returns how many there are."""
    own = (units.c.lease == lease, units.c.state == "running", units.c.lease_until > now)
    return connection.execute(update(units).where(*own).values(lease_until=now + lease_time)).rowcount


def end_unit(connection: Connection, unit_id: int, lease: str, result: bytes, now: datetime) -> None:
    """Record what a unit's process reports of its kept fits. Raises LeaseLost."""
    own = (units.c.id == unit_id, units.c.lease == lease, units.c.state == "running")
    ended = update(units).where(*own).values(state="done", result=result, ended_at=now)
    if connection.execute(ended).rowcount == 0:
        raise LeaseLost(f"The lease on unit {unit_id} is lost.")


def give_up_unit(connection: Connection, unit_id: int, lease: str) -> None:
    """Leave a unit to the process of its cycle, unless that has taken it already."""
    own = (units.c.id == unit_id, units.c.lease == lease, units.c.state == "running")
    connection.execute(update(units).where(*own).values(state="requested", lease=None))


def find_unit(connection: Connection, unit_id: int) -> UnitRow | None:
    """The unit of this id."""
    row = connection.execute(select(*_COLUMNS).where(units.c.id == unit_id)).one_or_none()
    return None if row is None else _as_unit(row)


def list_units(connection: Connection, cycle_id: int) -> list[UnitRow]:
    """The units of a cycle, in the order in which to carry them out."""
    found = select(*_COLUMNS).where(units.c.cycle_id == cycle_id).order_by(units.c.id)
    return [_as_unit(row) for row in connection.execute(found)]


def _claim(
    connection: Connection, lease: str, now: datetime, lease_time: timedelta, *conditions: ColumnElement[bool]
) -> UnitRow | None:
    chosen = (
        select(units.c.id)
        .where(*conditions)
        .order_by(units.c.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=units)
        .scalar_subquery()
    )
    row = connection.execute(
        update(units)
        .where(units.c.id == chosen)
        .values(
            state="running",
            lease=lease,
            lease_until=now + lease_time,
            attempts=units.c.attempts + 1,
        )
        .returning(*_COLUMNS)
    ).one_or_none()
    return None if row is None else _as_unit(row)


def _as_unit(row: Row[*tuple[Any, ...]]) -> UnitRow:
    return UnitRow(*row)


_COLUMNS = (
    units.c.id,
    units.c.cycle_id,
    units.c.task_id,
    units.c.digest,
    units.c.spec,
    units.c.state,
    units.c.lease,
    units.c.attempts,
    units.c.result,
)
