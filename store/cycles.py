"""The ledger of retrainings: who requested a cutoff, who holds it, its current step, and how it ended.

A running cycle holds a lease. Every step begins by renewing it, so a trainer that lost the lease notices before its
next step and can release nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, Row, case, exists, func, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from contracts.clock import from_micros, to_micros
from contracts.errors import Conflict, LeaseLost, NotFound, TaskArchived, TaskPaused
from contracts.failure import LEASE_EXPIRED, OVERTAKEN, Failure, FailureCode
from contracts.verdict import Decision, Verdict, decode_verdict, encode
from store.database import cycles, tasks
from store.tasks.catalog import lock_task

State = Literal["requested", "running", "released", "held", "skipped", "failed"]
Step = Literal["claim", "read", "score", "fit", "export", "verify", "judge", "register", "alias", "release"]

# The rules that an override may break; every other rule is a gate.
OVERRULABLE = ("newest_window", "withheld_rows")


@dataclass(frozen=True)
class Cycle:
    """One attempt at one cutoff (microseconds).

    `override_actor` and `override_reason` say which admin wants it released although a verdict held its cutoff before;
    gates hold it all the same. An attempt that ended without a release has a `failure_code`, and `reason` says the same
    to people. `replaces` is the id of the released attempt at the same cutoff that this one was requested to replace.
    """

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
    verdict: Verdict | None
    requested_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    override_actor: str | None = None
    override_reason: str | None = None
    failure_code: FailureCode | None = None
    replaces: int | None = None


def request_cycle(
    connection: Connection,
    task_id: int,
    cutoff: int,
    now: datetime,
    override: tuple[str, str] | None = None,
    *,
    recipe: str | None = None,
    again: bool = False,
) -> Cycle:
    """Request that a cutoff is trained; a second request while it waits or runs changes nothing.

    `override` is the actor and reason of an admin who wants it released in spite of its verdict. It is stored with an
    attempt that still waits, and passed on by an attempt that fails.

    A released cutoff is trained once more only if `again` is set, if `recipe` is another one than that of the release,
    or to retry an attempt that was requested in this way. Raises Conflict otherwise, if an attempt without the override
    is running, or if the task is not active.
    """
    _lock_active(connection, task_id)
    rows = connection.execute(
        select(*_COLUMNS)
        .where(cycles.c.task_id == task_id, cycles.c.cutoff == from_micros(cutoff))
        .order_by(cycles.c.attempt.desc())
    )
    attempts = [_cycle(row) for row in rows]
    for cycle in attempts:
        if cycle.state in ("requested", "running"):
            return cycle if override is None else _note_override(connection, cycle, override)
    last = attempts[0] if attempts else None
    released = next((cycle for cycle in attempts if cycle.state == "released"), None)
    if released is not None and not (again or _is_other_recipe(released, recipe)):
        is_retry = last is not released and last is not None and (override is not None or last.state == "failed")
        if not is_retry:
            raise Conflict(
                f"This cutoff has been released already, as version {released.version}. To train it once more, run "
                'morrow cycle with --again, or send "again": true.'
            )
    if override is None and last is not None and last.state == "failed":
        actor, reason = last.override_actor, last.override_reason
    else:
        actor, reason = override or (None, None)
    row = connection.execute(
        insert(cycles)
        .values(
            task_id=task_id,
            cutoff=from_micros(cutoff),
            attempt=1 + (last.attempt if last else 0),
            state="requested",
            requested_at=now,
            override_actor=actor,
            override_reason=reason,
            replaces=None if released is None else released.cycle_id,
        )
        .returning(*_COLUMNS)
    ).one()
    return _cycle(row)


def _is_other_recipe(released: Cycle, recipe: str | None) -> bool:
    """Whether a release is known to have another recipe than this one."""
    matrix = None if released.verdict is None else released.verdict.matrix
    return recipe is not None and matrix is not None and matrix.recipe not in ("", recipe)


def override_cycle(
    connection: Connection, task_id: int, cycle_id: int, *, actor: str, reason: str, now: datetime
) -> Cycle:
    """Request that a held candidate is released; returns the new attempt.

    Raises NotFound if the task has no such cycle. Raises Conflict if it is not held, if a gate holds it, if a newer
    cutoff is released, or if the task is not active.
    """
    _lock_active(connection, task_id)
    row = connection.execute(
        select(*_COLUMNS).where(cycles.c.task_id == task_id, cycles.c.id == cycle_id)
    ).one_or_none()
    if row is None:
        raise NotFound(f"This task has no cycle {cycle_id}.")
    cycle = _cycle(row)
    if cycle.state != "held":
        raise Conflict(f"Cycle {cycle_id} is {cycle.state}, not held.")
    if gate := find_gate(cycle):
        raise Conflict(f"Cycle {cycle_id} is held by the gate {gate}: an override opens no gate.")
    newer = connection.execute(
        select(cycles.c.version)
        .where(cycles.c.task_id == task_id, cycles.c.state == "released", cycles.c.cutoff > from_micros(cycle.cutoff))
        .limit(1)
    ).scalar_one_or_none()
    if newer is not None:
        raise Conflict(f"A newer cutoff is released already, as version {newer}.")
    return request_cycle(connection, task_id, cycle.cutoff, now, override=(actor, reason))


def find_gate(cycle: Cycle) -> str | None:
    """The gate that holds a cycle, with its reason; None if an override may release the cycle."""
    broken = [one for one in cycle.verdict.decisions if not one.passed] if cycle.verdict is not None else []
    return next((f"{one.rule} ({one.reason})" for one in broken if one.rule not in OVERRULABLE), None)


def is_releasing(connection: Connection, task_id: int) -> bool:
    """Whether a cycle of the task is between moving the alias and recording its release."""
    found = connection.execute(
        select(cycles.c.id)
        .where(cycles.c.task_id == task_id, cycles.c.state == "running", cycles.c.step.in_(("alias", "release")))
        .limit(1)
    )
    return found.one_or_none() is not None


def _lock_active(connection: Connection, task_id: int) -> None:
    """Lock an active task's row. Raises TaskPaused, TaskArchived, NotFound."""
    lock_task(connection, task_id)
    found = select(tasks.c.name, tasks.c.lifecycle).where(tasks.c.id == task_id)
    row = connection.execute(found).one_or_none()
    if row is None or row.lifecycle == "deleting":
        raise NotFound("This task has been deleted.")
    if row.lifecycle == "paused":
        raise TaskPaused(row.name)
    if row.lifecycle == "archived":
        raise TaskArchived(row.name)


def _note_override(connection: Connection, cycle: Cycle, override: tuple[str, str]) -> Cycle:
    actor, reason = override
    row = connection.execute(
        update(cycles)
        .where(cycles.c.id == cycle.cycle_id, cycles.c.state == "requested")
        .values(override_actor=actor, override_reason=reason)
        .returning(*_COLUMNS)
    ).one_or_none()
    if row is None:
        raise Conflict("An attempt at this cutoff is running. Request the override again when it has ended.")
    return _cycle(row)


def claim_cycle(
    connection: Connection, lease: str, now: datetime, lease_time: timedelta, newest_first: Collection[int] = ()
) -> Cycle | None:
    """Claim a requested cycle of an active task that no other trainer is claiming; None if there is no such cycle.

    Tasks take turns: the task whose last cycle began longest ago comes first. Within a task the oldest cutoff comes
    first, or the newest if its id is in `newest_first`.
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
        .where(cycles.c.state == "requested", is_active, ~is_preceded)
        .order_by(last_begun.nulls_first(), cycles.c.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=cycles)
        .scalar_subquery()
    )
    row = connection.execute(
        update(cycles)
        .where(cycles.c.id == chosen)
        .values(state="running", step="claim", lease=lease, lease_until=now + lease_time, started_at=now)
        .returning(*_COLUMNS)
    ).one_or_none()
    if row is None:
        return None
    # A renaming locks the task against this and then looks for running cycles.
    own = (tasks.c.id == row.task_id, tasks.c.lifecycle == "active", tasks.c.registry_name.is_(None))
    if connection.execute(select(tasks.c.id).where(*own).with_for_update(read=True, key_share=True)).first() is None:
        unclaimed = {"state": "requested", "step": None, "lease": None, "lease_until": None, "started_at": None}
        connection.execute(update(cycles).where(cycles.c.id == row.id).values(unclaimed))
        return None
    return _cycle(row)


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
        _write_held(connection, cycle, now, verdict, state=state, ended_at=now, **_failure_columns(failure), **found)
    except IntegrityError as error:
        raise Conflict("This cutoff has been released already.") from error


def _read_verdict(connection: Connection, cycle_id: int) -> Verdict:
    """The decisions so far; the row stays locked until the transaction ends."""
    stored = connection.execute(
        select(cycles.c.verdict).where(cycles.c.id == cycle_id).with_for_update()
    ).scalar_one_or_none()
    return Verdict() if stored is None else decode_verdict(stored)


def _write_held(
    connection: Connection, cycle: Cycle, now: datetime, verdict: Verdict | None = None, **values: Any
) -> None:
    if verdict is not None:
        values["verdict"] = encode(verdict)
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
    """End the cycles whose lease has expired; returns them, so that their runs can be ended too.

    A row that another transaction has locked waits for a later call, and holds up no other task.
    """
    expired = connection.execute(
        select(cycles.c.id, cycles.c.verdict)
        .where(cycles.c.state == "running", cycles.c.lease_until <= now)
        .order_by(cycles.c.id)
        .with_for_update(key_share=True, skip_locked=True)
    ).all()
    broken = Decision("lease", False, reason=LEASE_EXPIRED.reason)
    ended = []
    for cycle_id, stored in expired:
        verdict = (Verdict() if stored is None else decode_verdict(stored)).failed(broken)
        values = {"state": "failed", "ended_at": now, "verdict": encode(verdict), **_failure_columns(LEASE_EXPIRED)}
        row = connection.execute(update(cycles).where(cycles.c.id == cycle_id).values(values).returning(*_COLUMNS))
        ended.append(_cycle(row.one()))
    return ended


def skip_overtaken(connection: Connection, task_id: int, cutoff: int, *, window: timedelta, now: datetime) -> None:
    """Skip requests for cutoffs before this one (microseconds) that were made within their own window."""
    connection.execute(
        update(cycles)
        .where(
            cycles.c.task_id == task_id,
            cycles.c.state == "requested",
            cycles.c.cutoff < from_micros(cutoff),
            cycles.c.requested_at < cycles.c.cutoff + window,
        )
        .values(
            state="skipped",
            ended_at=now,
            verdict=encode(Verdict.of(Decision("newest_cutoff", False, reason=OVERTAKEN.reason))),
            **_failure_columns(OVERTAKEN),
        )
    )


def _failure_columns(failure: Failure | None) -> dict[str, str | None]:
    if failure is None:
        return {"failure_code": None, "reason": None}
    return {"failure_code": failure.code, "reason": failure.reason}


def find_judged(connection: Connection, task_id: int) -> Cycle | None:
    """The newest attempt at the newest cutoff whose candidate was judged: released, or held."""
    row = connection.execute(
        select(*_COLUMNS)
        .where(cycles.c.task_id == task_id, cycles.c.state.in_(("released", "held")), cycles.c.verdict.is_not(None))
        .order_by(cycles.c.cutoff.desc(), cycles.c.attempt.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else _cycle(row)


def find_newest_states(connection: Connection) -> dict[int, tuple[int, State]]:
    """Task id -> cutoff (microseconds) and state of its newest attempt, for every task that has one."""
    newest = (
        select(cycles.c.cutoff, cycles.c.state)
        .where(cycles.c.task_id == tasks.c.id)
        .order_by(cycles.c.cutoff.desc(), cycles.c.attempt.desc())
        .limit(1)
        .lateral()
    )
    rows = connection.execute(select(tasks.c.id, newest.c.cutoff, newest.c.state).join(newest, true()))
    return {task_id: (to_micros(cutoff), state) for task_id, cutoff, state in rows}


def find_released_cutoff(connection: Connection, task_id: int) -> int | None:
    """The newest cutoff that has been released (microseconds); None if none has."""
    newest = connection.execute(
        select(func.max(cycles.c.cutoff)).where(cycles.c.task_id == task_id, cycles.c.state == "released")
    ).scalar_one()
    return None if newest is None else to_micros(newest)


def find_cycles(connection: Connection, cycle_ids: Collection[int]) -> dict[int, Cycle]:
    """The cycles of these ids that there are, of any task."""
    rows = connection.execute(select(*_COLUMNS).where(cycles.c.id.in_(cycle_ids)))
    return {row.id: _cycle(row) for row in rows}


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
    cycles.c.override_actor,
    cycles.c.override_reason,
    cycles.c.failure_code,
    cycles.c.replaces,
)


def _cycle(row: Row[*tuple[Any, ...]]) -> Cycle:
    return Cycle(
        cycle_id=row.id,
        task_id=row.task_id,
        cutoff=to_micros(row.cutoff),
        attempt=row.attempt,
        state=row.state,
        step=row.step,
        lease=row.lease,
        run_id=row.run_id,
        version=row.version,
        num_rows=row.num_rows,
        reason=row.reason,
        verdict=None if row.verdict is None else decode_verdict(row.verdict),
        requested_at=row.requested_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        override_actor=row.override_actor,
        override_reason=row.override_reason,
        failure_code=None if row.failure_code is None else FailureCode(row.failure_code),
        replaces=row.replaces,
    )
