"""Versions by the cycles that trained them: what each says of the rows that its fit has read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from contracts.clock import to_micros
from contracts.errors import NotFound
from store.cycles.ledger import State
from store.database import cycles
from store.readable_rows import read_all


@dataclass(frozen=True)
class TrainedVersion:
    """A version, and the attempt that trained it. `cutoff` is in microseconds.

    Its fit has read `num_rows` rows at `read_at`, of this digest, by the task as it was at `started_at`.
    """

    cycle_id: int
    version: str
    state: State
    cutoff: int
    read_at: datetime
    started_at: datetime
    ended_at: datetime | None
    num_rows: int
    rows_digest: str


COLUMNS = (
    cycles.c.id,
    cycles.c.version,
    cycles.c.state,
    cycles.c.cutoff,
    cycles.c.read_at,
    cycles.c.started_at,
    cycles.c.ended_at,
    cycles.c.num_rows,
    cycles.c.rows_digest,
)
HAS_TRAINED = (
    cycles.c.version.is_not(None),
    cycles.c.read_at.is_not(None),
    cycles.c.started_at.is_not(None),
    cycles.c.num_rows.is_not(None),
    cycles.c.rows_digest.is_not(None),
)


def find_trained_version(connection: Connection, task_id: int, version: str) -> TrainedVersion:
    """The newest attempt that trained a version of this number. Raises NotFound, RowUnreadable."""
    query = (
        select(*COLUMNS)
        .where(cycles.c.task_id == task_id, cycles.c.version == version, *HAS_TRAINED)
        .order_by(cycles.c.id.desc())
        .limit(1)
    )
    found = read_all(connection, cycles, query, as_trained_version)
    if not found:
        raise NotFound(f"No cycle of this task has trained a version {version}: GET /tasks/TASK/cycles lists them.")
    return found[0]


def as_trained_version(row: Row[*tuple[Any, ...]]) -> TrainedVersion:
    """The version of a row that begins with COLUMNS."""
    cycle_id, version, state, cutoff, *rest = row[: len(COLUMNS)]
    return TrainedVersion(cycle_id, version, state, to_micros(cutoff), *rest)
