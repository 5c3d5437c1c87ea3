"""The ledger of retrainings: who asked for a cutoff, who holds it, at which step it is, and how it ended.

A running cycle holds a lease. Every step begins by renewing it, so whoever lost the lease learns it before the next
step and can release nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from contracts.clock import from_micros, to_micros
from contracts.database import cycles, tasks
from contracts.errors import Conflict, LeaseLost

State = Literal["requested", "running", "released", "held", "skipped", "failed"]
Step = Literal["claim", "read", "score", "fit", "export", "verify", "judge", "register", "alias", "release"]

LEASE_RAN_OUT = "The trainer went away and its lease ran out."


@dataclass(frozen=True)
class Cycle:
    """One attempt at one cutoff (microseconds)."""

    cycle_id: int
    task_id: int
    cutoff: int
    attempt: int
    state: State
    step: Step | None
    lease: str | None
    run_id: str | None
    version: str | None
    num_rows: int | None
    reason: str | None
    verdict: dict[str, Any] | None
    requested_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


def request_cycle(connection: Connection, task_id: int, cutoff: int, now: datetime) -> Cycle:
    """Ask for a cutoff to be trained; asking again while it waits or runs changes nothing.

    Raises Conflict where the cutoff has been released already.
    """
    connection.execute(select(tasks.c.id).where(tasks.c.id == task_id).with_for_update())
    rows = connection.execute(
        select(*_COLUMNS).where(cycles.c.task_id == task_id, cycles.c.cutoff == from_micros(cutoff))
    )
    attempts = [_cycle(row) for row in rows]
    for cycle in attempts:
        if cycle.state in ("requested", "running"):
            return cycle
        if cycle.state == "released":
            raise Conflict(f"This cutoff has been released already, as version {cycle.version}.")
    row = connection.execute(
        insert(cycles)
        .values(
            task_id=task_id,
            cutoff=from_micros(cutoff),
            attempt=1 + max((cycle.attempt for cycle in attempts), default=0),
            state="requested",
            requested_at=now,
        )
        .returning(*_COLUMNS)
    ).one()
    return _cycle(row)


def claim_cycle(connection: Connection, lease: str, now: datetime, lease_time: timedelta) -> Cycle | None:
    """Take the oldest requested cycle that no one else is taking; None where there is none."""
    chosen = (
        select(cycles.c.id)
        .where(cycles.c.state == "requested")
        .order_by(cycles.c.cutoff, cycles.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    row = connection.execute(
        update(cycles)
        .where(cycles.c.id == chosen)
        .values(state="running", step="claim", lease=lease, lease_until=now + lease_time, started_at=now)
        .returning(*_COLUMNS)
    ).one_or_none()
    return None if row is None else _cycle(row)


def begin_step(
    connection: Connection, cycle: Cycle, step: Step, now: datetime, lease_time: timedelta, **found: Any
) -> None:
    """Renew the lease, name the step, and note what is known by now (`run_id`, `num_rows`, …). Raises LeaseLost."""
    _write_held(connection, cycle, now, step=step, lease_until=now + lease_time, **found)


def renew_lease(connection: Connection, cycle: Cycle, now: datetime, lease_time: timedelta) -> None:
    """Keep the cycle while a long step runs. Raises LeaseLost."""
    _write_held(connection, cycle, now, lease_until=now + lease_time)


def end_cycle(
    connection: Connection, cycle: Cycle, state: State, reason: str | None, now: datetime, **found: Any
) -> None:
    """Close a cycle that this lease holds. Raises LeaseLost, and Conflict where the cutoff has been released before."""
    try:
        _write_held(connection, cycle, now, state=state, reason=reason, ended_at=now, **found)
    except IntegrityError as error:
        raise Conflict("This cutoff has been released already.") from error


def _write_held(connection: Connection, cycle: Cycle, now: datetime, **values: Any) -> None:
    written = connection.execute(
        update(cycles)
        .where(
            cycles.c.id == cycle.cycle_id,
            cycles.c.state == "running",
            cycles.c.lease == cycle.lease,
            cycles.c.lease_until > now,
        )
        .values(**values)
    )
    if written.rowcount != 1:
        raise LeaseLost(f"The lease on cycle {cycle.cycle_id} is lost.")


def expire_leases(connection: Connection, now: datetime) -> Sequence[Cycle]:
    """End the cycles whose trainer has gone; returns them, so that their runs can be ended too."""
    rows = connection.execute(
        update(cycles)
        .where(cycles.c.state == "running", cycles.c.lease_until <= now)
        .values(state="failed", reason=LEASE_RAN_OUT, ended_at=now)
        .returning(*_COLUMNS)
    )
    return [_cycle(row) for row in rows]


def list_cycles(connection: Connection, task_id: int, limit: int = 1000) -> Sequence[Cycle]:
    """A task's cycles, newest cutoff and attempt first."""
    rows = connection.execute(
        select(*_COLUMNS)
        .where(cycles.c.task_id == task_id)
        .order_by(cycles.c.cutoff.desc(), cycles.c.attempt.desc())
        .limit(limit)
    )
    return [_cycle(row) for row in rows]


_COLUMNS = (
    cycles.c.id,
    cycles.c.task_id,
    cycles.c.cutoff,
    cycles.c.attempt,
    cycles.c.state,
    cycles.c.step,
    cycles.c.lease,
    cycles.c.run_id,
    cycles.c.version,
    cycles.c.num_rows,
    cycles.c.reason,
    cycles.c.verdict,
    cycles.c.requested_at,
    cycles.c.started_at,
    cycles.c.ended_at,
)


def _cycle(row: Sequence[Any]) -> Cycle:
    cycle_id, task_id, cutoff, *rest = row
    return Cycle(cycle_id, task_id, to_micros(cutoff), *rest)
