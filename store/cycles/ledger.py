"""The ledger of retrainings: its rows, and how they are read.

`store.cycles.requests` requests cycles, `store.cycles.leases` claims, renews and ends them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, Select, func, select, text

from contracts.clock import to_micros
from contracts.failure import Failure, FailureCode
from contracts.verdict import Verdict, decode_verdict
from store.database import FIRST_MOMENT, LAST_MOMENT, cycles
from store.readable_rows import ReadRows, read_all, read_rows

State = Literal["requested", "running", "released", "held", "skipped", "failed"]
Step = Literal["claim", "read", "score", "fit", "export", "verify", "judge", "register", "alias", "release"]


@dataclass(frozen=True)
class Cycle:
    """One attempt at one cutoff (microseconds).

    `override_actor` and `override_reason` say which admin wants it released although a verdict held its cutoff before;
    gates hold it all the same. An attempt that ended without a release has a `failure_code`, and `reason` says the same
    to people. `replaces` is the id of the released attempt at the same cutoff that this one was requested to replace.
    With `followed`, another attempt at the cutoff is requested when this one ends.
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
    followed: bool = False


@dataclass(frozen=True)
class PastAttempt:
    """What decides whether a cutoff (microseconds) is due again: an attempt without its verdict."""

    task_id: int
    cutoff: int
    attempt: int
    state: State
    requested_at: datetime
    ended_at: datetime | None
    failure_code: FailureCode | None


def list_past_attempts(connection: Connection, task_ids: Collection[int]) -> dict[int, list[PastAttempt]]:
    """Task id -> its attempts at the newest cutoff, and at those that failed since the newest release; newest first.

    One statement for any number of tasks. It loads no verdict, and of a task's history only what can be due again.
    """
    found: dict[int, list[PastAttempt]] = {}
    known = {"task_ids": list(task_ids), "first": FIRST_MOMENT, "last": LAST_MOMENT, "most": _MAX_FAILED}
    for task_id, cutoff, attempt, state, requested_at, ended_at, code in connection.execute(_PAST_ATTEMPTS, known):
        failure_code = None if code is None else FailureCode(code)
        found.setdefault(task_id, []).append(
            PastAttempt(task_id, to_micros(cutoff), attempt, state, requested_at, ended_at, failure_code)
        )
    return found


def is_releasing(connection: Connection, task_id: int) -> bool:
    """Whether a cycle of the task is between moving the alias and recording its release."""
    found = connection.execute(
        select(cycles.c.id)
        .where(cycles.c.task_id == task_id, cycles.c.state == "running", cycles.c.step.in_(("alias", "release")))
        .limit(1)
    )
    return found.one_or_none() is not None


def find_judged(connection: Connection, task_id: int) -> Cycle | None:
    """The newest attempt at the newest cutoff whose candidate was judged: released, or held. Raises RowUnreadable."""
    query = (
        select(*COLUMNS)
        .where(cycles.c.task_id == task_id, cycles.c.state.in_(("released", "held")), cycles.c.verdict.is_not(None))
        .order_by(cycles.c.cutoff.desc(), cycles.c.attempt.desc())
        .limit(1)
    )
    return next(iter(read_all(connection, cycles, query, as_cycle)), None)


def find_released_cutoff(connection: Connection, task_id: int) -> int | None:
    """The newest cutoff that has been released (microseconds); None if none has."""
    newest = connection.execute(
        select(func.max(cycles.c.cutoff)).where(cycles.c.task_id == task_id, cycles.c.state == "released")
    ).scalar_one()
    return None if newest is None else to_micros(newest)


def list_waiting_cutoffs(connection: Connection, task_id: int) -> list[int]:
    """The cutoffs of a task's cycles that are requested or running, in microseconds."""
    waiting = cycles.c.state.in_(("requested", "running"))
    found = connection.execute(select(cycles.c.cutoff).where(cycles.c.task_id == task_id, waiting))
    return [to_micros(cutoff) for cutoff in found.scalars()]


def find_cycles(connection: Connection, cycle_ids: Collection[int]) -> dict[int, Cycle]:
    """The cycles of these ids that there are, of any task. Raises RowUnreadable."""
    query = select(*COLUMNS).where(cycles.c.id.in_(cycle_ids))
    return {cycle.cycle_id: cycle for cycle in read_all(connection, cycles, query, as_cycle)}


def list_requested_since(connection: Connection, task_id: int, since: datetime, *, count: int) -> list[datetime]:
    """When the newest attempts of a task were requested, if later than `since`, the newest first; at most `count`."""
    columns = cycles.c
    rows = connection.execute(
        select(columns.requested_at)
        .where(columns.task_id == task_id, columns.requested_at > since, columns.requested_at <= LAST_MOMENT)
        .order_by(columns.requested_at.desc())
        .limit(count)
    )
    return list(rows.scalars())


def list_cycles(connection: Connection, task_id: int, limit: int = 1000) -> Sequence[Cycle]:
    """A task's cycles, newest cutoff and attempt first. Raises RowUnreadable."""
    return read_all(connection, cycles, _newest(task_id, limit), as_cycle)


def list_readable_cycles(connection: Connection, task_id: int, limit: int) -> ReadRows[Cycle]:
    """The same without those that cannot be read, which are named."""
    return read_rows(connection, cycles, _newest(task_id, limit), as_cycle)


def _newest(task_id: int, limit: int) -> Select[*tuple[Any, ...]]:
    newest_first = cycles.c.cutoff.desc(), cycles.c.attempt.desc()
    return select(*COLUMNS).where(cycles.c.task_id == task_id).order_by(*newest_first).limit(limit)


def failure_columns(failure: Failure | None) -> dict[str, str | None]:
    """The columns that say why a cycle ended without a release."""
    if failure is None:
        return {"failure_code": None, "reason": None}
    return {"failure_code": failure.code, "reason": failure.reason}


# Older failed attempts of a task are not looked at.
_MAX_FAILED = 100

# A moment without microseconds, which only a client that writes past the API could store, counts as the nearest one.
_PAST_ATTEMPTS = text("""
    WITH bounds AS (SELECT CAST(:first AS timestamptz) AS first, CAST(:last AS timestamptz) AS last)
    SELECT asked.task_id, found.cutoff, found.attempt, found.state,
        least(greatest(found.requested_at, first), last),
        CASE WHEN found.ended_at IS NOT NULL THEN least(greatest(found.ended_at, first), last) END,
        found.failure_code
    FROM bounds
    CROSS JOIN unnest(CAST(:task_ids AS int[])) AS asked(task_id)
    CROSS JOIN LATERAL (
        SELECT (SELECT max(cutoff) FROM cycles WHERE task_id = asked.task_id AND cutoff BETWEEN first AND last)
                AS newest,
            (SELECT max(cutoff) FROM cycles WHERE task_id = asked.task_id AND state = 'released') AS released
    ) AS known
    CROSS JOIN LATERAL (
        SELECT known.newest AS cutoff
        UNION
        (SELECT cutoff FROM cycles
         WHERE task_id = asked.task_id AND state = 'failed' AND cutoff BETWEEN coalesce(known.released, first) AND last
         ORDER BY cutoff DESC LIMIT :most)
    ) AS relevant
    JOIN cycles AS found ON found.task_id = asked.task_id AND found.cutoff = relevant.cutoff
    ORDER BY asked.task_id, found.cutoff DESC, found.attempt DESC
""")

# What a whole cycle is read from.
COLUMNS = (
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
    cycles.c.followed,
)


def as_cycle(row: Row[*tuple[Any, ...]]) -> Cycle:
    """The cycle of a row of COLUMNS."""
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
        followed=row.followed,
    )
