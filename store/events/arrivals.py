"""Which tasks have events that no cycle knows: one statement for any number of tasks, each a few probes of an index."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from contracts.clock import from_micros, to_micros
from store.database import FIRST_MOMENT

_FIRST = to_micros(FIRST_MOMENT)
# The most events on either side of a cutoff that are looked at.
_MAX_COUNTED = 20_000


@dataclass(frozen=True)
class Newcomers:
    """How many events that were received after a moment are dated before a cutoff, and how many later."""

    num_before: int
    num_after: int

    @property
    def total(self) -> int:
        return self.num_before + self.num_after


def count_newcomers(connection: Connection, task_id: int, cutoff: int, received_after: datetime) -> Newcomers:
    """How many events next to a cutoff (microseconds) were received after a moment.

    It looks at the 20,000 events next to the cutoff on either side: no index knows when events came.
    """
    given = {"task_id": task_id, "cutoff": from_micros(cutoff), "after": received_after, "most": _MAX_COUNTED}
    row = connection.execute(_NEWCOMERS, given).one()
    return Newcomers(row.num_before, row.num_after)


def find_newest_before(connection: Connection, before: Mapping[int, int]) -> dict[int, int]:
    """Task id -> when its newest current event before this moment of the task happened (microseconds)."""
    if not before:
        return {}
    moments = [from_micros(max(moment, _FIRST)) for moment in before.values()]
    given = {"task_ids": list(before), "moments": moments, "first": FIRST_MOMENT}
    return {task_id: to_micros(at) for task_id, at in connection.execute(_NEWEST, given) if at is not None}


def find_last_received(connection: Connection, spans: Mapping[int, tuple[int, int]]) -> dict[int, datetime]:
    """Task id -> when the last of its events between two moments (microseconds) was received."""
    if not spans:
        return {}
    given = {
        "task_ids": list(spans),
        "starts": [from_micros(max(start, _FIRST)) for start, _ in spans.values()],
        "ends": [from_micros(max(end, _FIRST)) for _, end in spans.values()],
    }
    return {task_id: at for task_id, at in connection.execute(_LAST_RECEIVED, given) if at is not None}


_NEWEST = text("""
    SELECT given.task_id, greatest(
        (
            SELECT max(at) FROM events
            WHERE task_id = given.task_id AND superseded_at IS NULL AND at < given.before AND at >= :first
        ),
        (SELECT max(last_at) FROM sealed_windows WHERE task_id = given.task_id AND last_at < given.before)
    )
    FROM unnest(CAST(:task_ids AS int[]), CAST(:moments AS timestamptz[])) AS given(task_id, before)
""")

_LAST_RECEIVED = text("""
    SELECT given.task_id, greatest(
        (SELECT max(received_at) FROM events WHERE task_id = given.task_id AND at >= given.start AND at < given.until),
        (
            SELECT max(last_received_at) FROM sealed_windows
            WHERE task_id = given.task_id AND first_at >= given.start AND last_at < given.until
        )
    )
    FROM unnest(CAST(:task_ids AS int[]), CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[]))
        AS given(task_id, start, until)
""")

_NEWCOMERS = text("""
    SELECT
        (SELECT count(*) FROM (
            SELECT received_at FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND at < :cutoff
            ORDER BY at DESC LIMIT :most
         ) AS before WHERE received_at > :after) AS num_before,
        (SELECT count(*) FROM (
            SELECT received_at FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND at >= :cutoff
            ORDER BY at LIMIT :most
         ) AS later WHERE received_at > :after) AS num_after
""")
