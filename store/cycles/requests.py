"""Requests for cycles: of a cutoff, of a held candidate that is released in spite of its verdict, and their ends.

Only an active task takes requests, and a cutoff has one waiting or running attempt at most.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection, select, text, update
from sqlalchemy.dialects.postgresql import insert

from contracts.clock import from_micros
from contracts.errors import Conflict, NotFound, TaskArchived, TaskPaused
from contracts.failure import OVERTAKEN
from contracts.verdict import Decision, Verdict, encode
from store.cycles.ledger import COLUMNS, Cycle, as_cycle
from store.database import cycles, tasks
from store.errors import CutoffReleased
from store.tasks.catalog import lock_task

# The rules that an override may break; every other rule is a gate.
OVERRULABLE = ("newest_window", "withheld_rows")


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
        select(*COLUMNS)
        .where(cycles.c.task_id == task_id, cycles.c.cutoff == from_micros(cutoff))
        .order_by(cycles.c.attempt.desc())
    )
    attempts = [as_cycle(row) for row in rows]
    for cycle in attempts:
        if cycle.state in ("requested", "running"):
            return cycle if override is None else _note_override(connection, cycle, override)
    last = attempts[0] if attempts else None
    released = next((cycle for cycle in attempts if cycle.state == "released"), None)
    if released is not None and not (again or _is_other_recipe(released, recipe)):
        is_retry = last is not released and last is not None and (override is not None or last.state == "failed")
        if not is_retry:
            raise CutoffReleased(released.version or "", released.started_at or released.requested_at)
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
        .returning(*COLUMNS)
    ).one()
    return as_cycle(row)


def let_follow(connection: Connection, cycle: Cycle) -> Cycle | None:
    """Have another attempt requested when this running one ends; returns it, None if it has just ended.

    `store.cycles.leases` ends it. The caller holds the task's lock.
    """
    row = connection.execute(
        update(cycles)
        .where(cycles.c.id == cycle.cycle_id, cycles.c.state == "running")
        .values(followed=True)
        .returning(*COLUMNS)
    ).one_or_none()
    return None if row is None else as_cycle(row)


def _is_other_recipe(released: Cycle, recipe: str | None) -> bool:
    """Whether a release is known to have another recipe than this one."""
    matrix = None if released.verdict is None else released.verdict.matrix
    return recipe is not None and matrix is not None and matrix.recipe not in ("", recipe)


def request_due(connection: Connection, cutoffs: Mapping[int, int], now: datetime) -> dict[int, int]:
    """Request a cutoff (microseconds) of each of these tasks at once; returns task id -> number of the attempt.

    The caller has found that these cutoffs are due: they have no attempt, or the last one failed, or ended and must be
    followed. Any other is left out. It holds the rows of the tasks (`lock_free_tasks`) or of the attempt that it ends.
    """
    rows = connection.execute(
        _REQUEST_DUE,
        {"task_ids": list(cutoffs), "cutoffs": [from_micros(cutoff) for cutoff in cutoffs.values()], "now": now},
    )
    return {row.task_id: row.attempt for row in rows}


def lock_free_tasks(connection: Connection, task_ids: Collection[int]) -> list[int]:
    """Lock those of these tasks that are active and that no other transaction has locked; returns their ids."""
    free = (
        select(tasks.c.id)
        .where(tasks.c.id.in_(task_ids), tasks.c.lifecycle == "active")
        .order_by(tasks.c.id)
        .with_for_update(key_share=True, skip_locked=True)
    )
    return list(connection.execute(free).scalars())


def override_cycle(
    connection: Connection, task_id: int, cycle_id: int, *, actor: str, reason: str, now: datetime
) -> Cycle:
    """Request that a held candidate is released; returns the new attempt.

    Raises NotFound if the task has no such cycle. Raises Conflict if it is not held, if a gate holds it, if a newer
    cutoff is released, or if the task is not active.
    """
    _lock_active(connection, task_id)
    row = connection.execute(select(*COLUMNS).where(cycles.c.task_id == task_id, cycles.c.id == cycle_id)).one_or_none()
    if row is None:
        raise NotFound(f"This task has no cycle {cycle_id}.")
    cycle = as_cycle(row)
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


def skip_overtaken(connection: Connection, cutoffs: Mapping[int, tuple[int, timedelta]], now: datetime) -> None:
    """Skip requests of these tasks for cutoffs before the given one (microseconds) that were made within their window.

    Each task comes with the length of its window.
    """
    connection.execute(
        _SKIP_OVERTAKEN,
        {
            "task_ids": list(cutoffs),
            "cutoffs": [from_micros(cutoff) for cutoff, _ in cutoffs.values()],
            "windows": [window for _, window in cutoffs.values()],
            "now": now,
            "verdict": msgspec.json.encode(_OVERTAKEN).decode(),
            "code": OVERTAKEN.code,
            "reason": OVERTAKEN.reason,
        },
    )


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
        .returning(*COLUMNS)
    ).one_or_none()
    if row is None:
        raise Conflict("An attempt at this cutoff is running. Request the override again when it has ended.")
    return as_cycle(row)


_OVERTAKEN = encode(Verdict.of(Decision("newest_cutoff", False, reason=OVERTAKEN.reason)))

_SKIP_OVERTAKEN = text("""
    UPDATE cycles SET state = 'skipped', ended_at = :now, verdict = CAST(:verdict AS jsonb), failure_code = :code,
        reason = :reason
    FROM unnest(CAST(:task_ids AS int[]), CAST(:cutoffs AS timestamptz[]), CAST(:windows AS interval[]))
        AS given(task_id, cutoff, "window")
    WHERE cycles.task_id = given.task_id AND cycles.state = 'requested' AND cycles.cutoff < given.cutoff
        AND cycles.requested_at < cycles.cutoff + given."window"
""")

# As in `request_cycle`, a failed attempt passes its override on, and a release is replaced.
_REQUEST_DUE = text("""
    INSERT INTO cycles (task_id, cutoff, attempt, state, requested_at, override_actor, override_reason, replaces)
    SELECT given.task_id, given.cutoff, 1 + coalesce(last.attempt, 0), 'requested', :now,
        CASE WHEN last.state = 'failed' THEN last.override_actor END,
        CASE WHEN last.state = 'failed' THEN last.override_reason END,
        (SELECT id FROM cycles WHERE task_id = given.task_id AND cutoff = given.cutoff AND state = 'released'
         ORDER BY attempt DESC LIMIT 1)
    FROM unnest(CAST(:task_ids AS int[]), CAST(:cutoffs AS timestamptz[])) AS given(task_id, cutoff)
    LEFT JOIN LATERAL (
        SELECT attempt, state, override_actor, override_reason, followed FROM cycles
        WHERE task_id = given.task_id AND cutoff = given.cutoff ORDER BY attempt DESC LIMIT 1
    ) AS last ON true
    WHERE last.state IS NULL OR last.state = 'failed' OR last.followed
    ON CONFLICT DO NOTHING
    RETURNING task_id, attempt
""")
