"""The lease of a running cycle: it is claimed, renewed with every step, and ends with the cycle.

An attempt that must be followed requests the next one in the transaction that ends it.

Every step begins by renewing the lease, so a trainer that lost it notices before its next step and can release nothing.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, case, exists, func, select, update
from sqlalchemy.exc import IntegrityError

from contracts.errors import Conflict, LeaseLost
from contracts.failure import LEASE_EXPIRED, Failure
from contracts.verdict import Decision, Verdict, decode_verdict, encode
from store.cycles.ledger import COLUMNS, Cycle, State, Step, as_cycle, failure_columns
from store.cycles.requests import request_due
from store.database import cycles, tasks


def claim_cycle(
    connection: Connection,
    lease: str,
    now: datetime,
    lease_time: timedelta,
    newest_first: Collection[int] = (),
    *,
    except_tasks: Collection[int] = (),
) -> Cycle | None:
    """Claim a requested cycle of an active task that no other trainer is claiming; None if there is no such cycle.

    Tasks take turns: the task whose last cycle began longest ago comes first. Within a task the oldest cutoff comes
    first, or the newest if its id is in `newest_first`. Tasks of `except_tasks` are passed over: their cycles are being
    carried out by the caller, which keeps their fits in one place.
    """
    other, begun = cycles.alias(), cycles.alias()
    is_before = case(
        (cycles.c.task_id.in_(newest_first), other.c.cutoff > cycles.c.cutoff), else_=other.c.cutoff < cycles.c.cutoff
    )
    is_active = exists().where(
        tasks.c.id == cycles.c.task_id, tasks.c.lifecycle == "active", tasks.c.registry_name.is_(None)
    )
    is_preceded = exists().where(other.c.task_id == cycles.c.task_id, other.c.state == "requested", is_before)
    last_begun = select(func.max(begun.c.started_at)).where(begun.c.task_id == cycles.c.task_id).scalar_subquery()
    chosen = (
        select(cycles.c.id)
        .where(cycles.c.state == "requested", cycles.c.task_id.not_in(except_tasks), is_active, ~is_preceded)
        .order_by(last_begun.nulls_first(), cycles.c.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=cycles)
        .scalar_subquery()
    )
    row = connection.execute(
        update(cycles)
        .where(cycles.c.id == chosen)
        .values(state="running", step="claim", lease=lease, lease_until=now + lease_time, started_at=now)
        .returning(*COLUMNS)
    ).one_or_none()
    if row is None:
        return None
    # A renaming locks the task against this and then looks for running cycles.
    own = (tasks.c.id == row.task_id, tasks.c.lifecycle == "active", tasks.c.registry_name.is_(None))
    if connection.execute(select(tasks.c.id).where(*own).with_for_update(read=True, key_share=True)).first() is None:
        unclaimed = {"state": "requested", "step": None, "lease": None, "lease_until": None, "started_at": None}
        connection.execute(update(cycles).where(cycles.c.id == row.id).values(unclaimed))
        return None
    return as_cycle(row)


def begin_step(
    connection: Connection,
    cycle: Cycle,
    step: Step,
    now: datetime,
    lease_time: timedelta,
    *,
    verdict: Verdict | None = None,
    **found: Any,
) -> None:
    """Renew the lease, and record the step and what is known by now (`run_id`, `num_rows`, …). Raises LeaseLost."""
    _write_held(connection, cycle, now, verdict, step=step, lease_until=now + lease_time, **found)


def renew_lease(connection: Connection, cycle: Cycle, now: datetime, lease_time: timedelta) -> None:
    """Keep the cycle while a long step runs. Raises LeaseLost."""
    _write_held(connection, cycle, now, lease_until=now + lease_time)


def end_cycle(
    connection: Connection,
    cycle: Cycle,
    state: State,
    failure: Failure | None,
    now: datetime,
    *,
    verdict: Verdict | None = None,
    broken: Decision | None = None,
    **found: Any,
) -> None:
    """Close a cycle that this lease holds; `failure` is None if it released.

    A failed cycle keeps the verdict so far with one more decision: `broken`, or that it was not completed. Raises
    LeaseLost, and Conflict if the cutoff has been released before.
    """
    if state == "failed" and failure is not None:
        so_far = _read_verdict(connection, cycle.cycle_id)
        verdict = so_far.failed(broken or Decision("completed", False, reason=failure.reason))
    try:
        is_followed = _write_held(
            connection, cycle, now, verdict, state=state, ended_at=now, **failure_columns(failure), **found
        )
    except IntegrityError as error:
        raise Conflict("This cutoff has been released already.") from error
    if is_followed:
        request_due(connection, {cycle.task_id: cycle.cutoff}, now)


def _read_verdict(connection: Connection, cycle_id: int) -> Verdict:
    """The decisions so far; the row stays locked until the transaction ends."""
    stored = connection.execute(
        select(cycles.c.verdict).where(cycles.c.id == cycle_id).with_for_update()
    ).scalar_one_or_none()
    return Verdict() if stored is None else decode_verdict(stored)


def _write_held(
    connection: Connection, cycle: Cycle, now: datetime, verdict: Verdict | None = None, **values: Any
) -> bool:
    """Returns whether another attempt must follow. Raises LeaseLost."""
    if verdict is not None:
        values["verdict"] = encode(verdict)
    is_followed = connection.execute(
        update(cycles)
        .where(
            cycles.c.id == cycle.cycle_id,
            cycles.c.state == "running",
            cycles.c.lease == cycle.lease,
            cycles.c.lease_until > now,
        )
        .values(**values)
        .returning(cycles.c.followed)
    ).scalar_one_or_none()
    if is_followed is None:
        raise LeaseLost(f"The lease on cycle {cycle.cycle_id} is lost.")
    return bool(is_followed)


def expire_leases(connection: Connection, now: datetime) -> Sequence[Cycle]:
    """End the cycles whose lease has expired; returns them, so that their runs can be ended too.

    A row that another transaction has locked waits for a later call, and holds up no other task.
    """
    expired = connection.execute(
        select(cycles.c.id)
        .where(cycles.c.state == "running", cycles.c.lease_until <= now)
        .order_by(cycles.c.id)
        .with_for_update(key_share=True, skip_locked=True)
    ).scalars()
    broken = Decision("lease", False, reason=LEASE_EXPIRED.reason)
    ended = []
    for cycle_id in expired.all():
        verdict = _read_verdict(connection, cycle_id).failed(broken)
        values = {"state": "failed", "ended_at": now, "verdict": encode(verdict), **failure_columns(LEASE_EXPIRED)}
        row = connection.execute(update(cycles).where(cycles.c.id == cycle_id).values(values).returning(*COLUMNS))
        ended.append(as_cycle(row.one()))
        if ended[-1].followed:
            request_due(connection, {ended[-1].task_id: ended[-1].cutoff}, now)
    return ended
