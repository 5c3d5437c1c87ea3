"""Which tasks a pass of live scoring looks at: those with news, and a few others by turns.

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

# Tasks without news that a pass looks at.
_MAX_BY_TURNS = 2


@dataclass(frozen=True)
class Look:
    """What a task looked like: the numbers of its events and of their revisions, the end of its last complete window.

    The end is in microseconds.
    """

    num_events: int
    num_revisions: int
    complete: int


@dataclass
class Looks:
    """The last look at each task that is done with, the oldest first."""

    _tasks: CurrentTasks = field(default_factory=CurrentTasks)
    _done: dict[int, Look] = field(default_factory=dict)

    def choose(self, connection: Connection, now: int) -> list[tuple[Schema, Look]]:
        """The tasks to look at now (microseconds), and what they look like."""
        for task_id in self._tasks.read(connection):
            self._done.pop(task_id, None)
        schemas = [schema for schema in self._tasks.schemas.values() if schema.lifecycle != "archived"]
        counts = read_counts(connection, [schema.task_id for schema in schemas]) if schemas else {}
        looks = {schema.task_id: _look(schema, counts.get(schema.task_id, RowCounts()), now) for schema in schemas}
        self._done = {task_id: look for task_id, look in self._done.items() if task_id in looks}
        by_turns = [task_id for task_id, look in self._done.items() if looks[task_id] == look][:_MAX_BY_TURNS]
        return [
            (schema, look)
            for schema in schemas
            if self._done.get(schema.task_id) != (look := looks[schema.task_id]) or schema.task_id in by_turns
        ]

    def note(self, task_id: int, look: Look) -> None:
        """Nothing is left to do for the task as it looked then."""
        self._done.pop(task_id, None)
        self._done[task_id] = look


def _look(schema: Schema, counts: RowCounts, now: int) -> Look:
    return Look(counts.num_events, counts.num_revisions, complete_until(schema.task, now))
