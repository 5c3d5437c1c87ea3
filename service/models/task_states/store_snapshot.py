"""What a follower knows of the store. A poll reads what has changed since the last one, for all tasks in one go.

A few other tasks are read again at each poll, in turn. So what no trigger notes, such as the newest event, is renewed
within minutes, and in a small store within one poll.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice

from sqlalchemy import Connection

from service.models.forecaster import Forecaster
from service.models.task_states.stored_states import StoredTask, read_task_states
from service.models.task_states.task_state import TaskState
from store.errors import SpecUnreadable
from store.hooks.ledger import HookCounts, count_events
from store.releases import Overlay
from store.tasks.catalog import Schema, read_tasks
from store.tasks.changes import Departures, read_departures
from store.tasks.installation import find_installation
from store.tasks.touched import KEPT_SECONDS, Bookmark, read_touched

# Tasks that each poll reads although nothing is known to have changed.
NUM_READ_AGAIN = 25


@dataclass(frozen=True)
class KnownTask:
    """A task as it was read last; `schema` is None if its spec cannot be read, `version` the one that answered here."""

    task_id: int
    name: str
    schema: Schema | None
    stored: StoredTask
    version: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """The store at a poll, by task; archived tasks are not among them.

    `just_read` are the ids that this poll read, `read_at` its time in monotonic seconds, `place` the last id that was
    read in turn. Without a `bookmark` the next poll reads everything. `installation` is the mark of this one in MLflow.
    """

    known: Mapping[int, KnownTask] = field(default_factory=dict)
    departures: Departures = field(default_factory=Departures)
    just_read: frozenset[int] = frozenset()
    bookmark: Bookmark | None = None
    read_at: float = 0.0
    place: int = 0
    installation: str | None = None
    hooks: Sequence[HookCounts] = ()

    @cached_property
    def schemas(self) -> Mapping[str, Schema]:
        """The tasks whose spec can be read."""
        return {one.name: one.schema for one in self.known.values() if one.schema is not None}

    @cached_property
    def task_ids(self) -> Mapping[str, int]:
        return {name: schema.task_id for name, schema in self.schemas.items()}

    @cached_property
    def task_states(self) -> Mapping[str, TaskState]:
        return {one.name: one.stored.state for one in self.known.values() if one.stored.state is not None}

    @cached_property
    def overlays(self) -> Mapping[str, Overlay]:
        """What `releases` says of the versions that have rows of their own."""
        return {one.name: one.stored.overlay for one in self.known.values() if one.stored.overlay is not None}

    @cached_property
    def faults(self) -> Mapping[str, str]:
        """Why some rows of a task cannot be read."""
        return {one.name: one.stored.fault for one in self.known.values() if one.stored.fault is not None}

    @cached_property
    def paused(self) -> frozenset[str]:
        """Tasks that are not retrained for now."""
        return frozenset(name for name, schema in self.schemas.items() if schema.lifecycle == "paused")

    @cached_property
    def renaming(self) -> frozenset[str]:
        """Tasks that still have their former name in MLflow."""
        return frozenset(name for name, schema in self.schemas.items() if schema.registry_name is not None)

    @property
    def names_just_read(self) -> Iterable[str]:
        """The tasks that this poll read, and have not left."""
        return (self.known[task_id].name for task_id in self.just_read)

    @property
    def overlays_just_read(self) -> Iterable[tuple[str, str | None, Overlay]]:
        """The overlays that this poll read: task, version, overlay."""
        read = (self.known[task_id] for task_id in self.just_read)
        return ((one.name, one.version, one.stored.overlay) for one in read if one.stored.overlay is not None)

    def former_names(self, task_id: int | None) -> tuple[str, ...]:
        """The names that a task had before."""
        return () if task_id is None else tuple(sorted(self.departures.former.get(task_id, ())))

    def without_bookmark(self) -> "Snapshot":
        """The same, as it is known after an outage: the database may not be the one it was."""
        return replace(self, bookmark=None)


def read_snapshot(
    connection: Connection, forecasters: Mapping[str, Forecaster], former: Snapshot, now: float
) -> Snapshot:
    """The store as a follower with these versions needs it; `now` in monotonic seconds.

    The number of statements does not depend on the number of tasks.
    """
    is_recent = now - former.read_at < KEPT_SECONDS
    touched = read_touched(connection, former.bookmark if is_recent else None)
    if touched.task_ids is None:
        in_turn: list[int] = []
        asked = None
    else:
        in_turn = _next_in_turn(former)
        swapped = (one.task_id for one in former.known.values() if one.version != _version(forecasters, one.name))
        asked = {*touched.task_ids, *in_turn, *swapped}
    schemas, unreadable = read_tasks(connection, asked)
    fresh = _read(connection, schemas, unreadable, forecasters)
    kept = () if asked is None else (one for one in former.known.items() if one[0] not in asked)
    return Snapshot(
        known=dict(chain(kept, fresh.items())),
        departures=former.departures if touched.task_ids == set() else read_departures(connection, former.departures),
        just_read=frozenset(fresh),
        bookmark=touched.bookmark,
        read_at=now,
        place=in_turn[-1] if in_turn else 0,
        installation=find_installation(connection) if touched.task_ids is None else former.installation,
        hooks=count_events(connection),
    )


def _read(
    connection: Connection,
    schemas: Iterable[Schema],
    unreadable: Mapping[int, SpecUnreadable],
    forecasters: Mapping[str, Forecaster],
) -> dict[int, KnownTask]:
    live = [schema for schema in schemas if schema.lifecycle != "archived"]
    stored = read_task_states(connection, live, forecasters)
    found = {
        schema.task_id: KnownTask(
            schema.task_id,
            schema.task.name,
            schema,
            stored[schema.task_id],
            _version(forecasters, schema.task.name),
        )
        for schema in live
        if schema.task_id in stored
    }
    for task_id, error in unreadable.items():
        found[task_id] = KnownTask(task_id, error.task, None, StoredTask(None, None, str(error)))
    return found


def _next_in_turn(former: Snapshot) -> list[int]:
    """The ids after the last one that was read in turn, and then the first ones."""
    ids = sorted(former.known)
    after = (task_id for task_id in ids if task_id > former.place)
    return list(islice(dict.fromkeys(chain(after, ids)), NUM_READ_AGAIN))


def _version(forecasters: Mapping[str, Forecaster], task: str) -> str | None:
    forecaster = forecasters.get(task)
    return None if forecaster is None else forecaster.version
