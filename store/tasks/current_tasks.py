"""All tasks, read again and again: a repeated reading loads only those that somebody has written to since."""

from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import Connection

from store.tasks.catalog import Schema, read_tasks
from store.tasks.touched import Bookmark, read_touched


@dataclass
class CurrentTasks:
    """The tasks of the last reading by id, in the order of their names, and where the next reading goes on."""

    schemas: dict[int, Schema] = field(default_factory=dict)
    bookmark: Bookmark | None = None

    def read(self, connection: Connection) -> Collection[int]:
        """Read the newest revisions, archived or not; returns the tasks that may have changed in any way but events.

        Tasks whose spec this release cannot read are left out.
        """
        found = read_touched(connection, self.bookmark)
        touched = found.task_ids
        if touched is None or touched:
            read, _ = read_tasks(connection, touched)
            gone = self.schemas.keys() if touched is None else touched
            kept = [schema for task_id, schema in self.schemas.items() if task_id not in gone]
            changed = {*gone, *(schema.task_id for schema in read)}
            ordered = sorted([*kept, *read], key=lambda schema: schema.task.name)
            self.schemas = {schema.task_id: schema for schema in ordered}
            touched = changed
        self.bookmark = found.bookmark
        return touched
