"""Which tasks a pass of live scoring takes up: those with news, and a few others by turns.

News are new, corrected or erased events, a write to any other ledger of the task, and a window that is complete by now.
Only an event that becomes known later than it came, and a kept fit that was mended by hand, are no news: they wait for
the task's turn. So a pass costs what is new, and a few statements more however many tasks there are.
"""

from dataclasses import dataclass, field

from sqlalchemy import Connection

from store.tasks.catalog import Schema
from store.tasks.current_tasks import CurrentTasks
from store.tasks.row_counts import RowCounts, read_counts
from trainer.data.windows import complete_until

# Tasks without news that a pass takes up.
_MAX_BY_TURNS = 2


@dataclass(frozen=True)
class Extent:
    """The events of a task at a pass. `complete` is the end of its last complete window (microseconds)."""

    num_events: int
    num_revisions: int
    complete: int


@dataclass
class TaskNews:
    """The extent of each task when nothing was left to do for it, the oldest first."""

    _tasks: CurrentTasks = field(default_factory=CurrentTasks)
    _done: dict[int, Extent] = field(default_factory=dict)

    def choose(self, connection: Connection, now: int) -> list[tuple[Schema, Extent]]:
        """The tasks to take up now (microseconds), with their extents."""
        for task_id in self._tasks.read(connection):
            self._done.pop(task_id, None)
        schemas = [schema for schema in self._tasks.schemas.values() if schema.lifecycle != "archived"]
        counts = read_counts(connection, [schema.task_id for schema in schemas]) if schemas else {}
        extents = {schema.task_id: _measure(schema, counts.get(schema.task_id, RowCounts()), now) for schema in schemas}
        self._done = {task_id: one for task_id, one in self._done.items() if task_id in extents}
        by_turns = [task_id for task_id, one in self._done.items() if extents[task_id] == one][:_MAX_BY_TURNS]
        return [
            (schema, extent)
            for schema in schemas
            if self._done.get(schema.task_id) != (extent := extents[schema.task_id]) or schema.task_id in by_turns
        ]

    def note(self, task_id: int, extent: Extent) -> None:
        """Nothing is left to do for a task of this extent."""
        self._done.pop(task_id, None)
        self._done[task_id] = extent


def _measure(schema: Schema, counts: RowCounts, now: int) -> Extent:
    return Extent(counts.num_events, counts.num_revisions, complete_until(schema.task, now))
