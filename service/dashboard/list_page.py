"""The list of tasks, a page at a time: which tasks it shows, the worst first over all pages, and what is read of them.

The states of all tasks are those of the follower's last poll, some seconds old at most. Only the tasks of one page are
read and described, and all of them together, so a page takes as many statements however many tasks there are.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from urllib.parse import urlencode

from sqlalchemy import Connection

from service.advice.row_states import RowState, find_row_state
from service.dashboard.queries import Overview
from service.dashboard.summary import Tone
from service.dashboard.task_rows import ORDER, TONES, WORDS
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.models.model_skills import find_part, find_skill, find_trust
from service.models.task_states.stored_states import read_task_states
from service.models.task_states.task_state import RegistryState, TaskState, why_stale
from store.error_cells import NAIVE
from store.paired_errors import read_paired_errors
from store.tasks.catalog import Schema, list_tasks

PAGE_SIZE = 50


@dataclass(frozen=True)
class Wanted:
    """What a page of the list shows: tasks whose name holds a text, in one state, and which of their pages.

    Without a state, archived tasks are left out unless they are wanted too.
    """

    name: str = ""
    state: RowState | None = None
    page: int = 1
    with_archived: bool = False

    def address(self, **changes: object) -> str:
        """The query of a page like this one, with these changes; empty for the first page of all tasks."""
        archived = "true" if self.with_archived else None
        given = {"name": self.name, "state": self.state, "page": self.page, "archived": archived, **changes}
        kept = {key: value for key, value in given.items() if value and (key, value) != ("page", 1)}
        return f"?{urlencode(kept)}" if kept else ""


@dataclass(frozen=True)
class Followed:
    """What the follower knows of every task by name; `names` are those that it can follow."""

    names: Sequence[str] = ()
    forecasters: Mapping[str, Forecaster] = field(default_factory=dict)
    task_states: Mapping[str, TaskState] = field(default_factory=dict)
    registries: Mapping[str, RegistryState] = field(default_factory=dict)
    allowed: frozenset[int] | None = None

    @classmethod
    def of(cls, follower: Follower, allowed: frozenset[int] | None) -> "Followed":
        """The present state of a follower, of tasks with these ids only if any are given."""
        names = [name for name in follower.tasks if allowed is None or follower.task_id(name) in allowed]
        registries = follower.registries
        if allowed is not None:
            registries = {name: state for name, state in registries.items() if name in names}
        return cls(names, follower.forecasters, follower.task_states, registries, allowed)


@dataclass(frozen=True)
class Entry:
    """A task as far as it is known without reading it; `schema` is None if the store does not answer, or if this
    release cannot read the task's spec. `trouble` is 0 at its worst, as far as it decides the order."""

    name: str
    schema: Schema | None
    state: RowState
    trouble: int = 2
    valid_until: int = 0


@dataclass(frozen=True)
class Share:
    """How many tasks are in a state, and the address of the list of them, or of all if they are shown already."""

    count: int
    words: str
    tone: Tone
    address: str
    is_shown: bool


@dataclass(frozen=True)
class ListPage:
    """One page: its tasks in order, each with what was read of it, and the numbers around it."""

    entries: Sequence[Entry]
    overviews: Mapping[str, Overview]
    strip: Sequence[Share]
    num_tasks: int
    num_found: int
    page: int
    num_pages: int


def read_list_page(
    connection: Connection, followed: Followed, wanted: Wanted, *, now: datetime, cycle_limit: timedelta
) -> ListPage:
    """The page from the store, with the tasks that this release cannot read."""
    schemas: dict[str, Schema | None] = {
        schema.task.name: schema
        for schema in list_tasks(connection, with_archived=True)
        if followed.allowed is None or schema.task_id in followed.allowed
    }
    unreadable = followed.registries.keys() - schemas.keys() - set(followed.names)
    page = _choose({**schemas, **dict.fromkeys(unreadable)}, followed, wanted, now, cycle_limit)
    shown = [entry.schema for entry in page.entries if entry.schema is not None]
    return replace(page, overviews=_read_overviews(connection, shown, followed, now))


def find_list_page(followed: Followed, wanted: Wanted, *, now: datetime, cycle_limit: timedelta) -> ListPage:
    """The same while no database answers, as far as the follower knows its tasks."""
    return _choose(dict.fromkeys(followed.names), followed, wanted, now, cycle_limit)


def _choose(
    schemas: Mapping[str, Schema | None], followed: Followed, wanted: Wanted, now: datetime, cycle_limit: timedelta
) -> ListPage:
    entries = [_enter(name, schema, followed, now, cycle_limit) for name, schema in schemas.items()]
    sought = wanted.name.strip().lower()
    found = [
        entry
        for entry in entries
        if sought in entry.name.lower()
        and (entry.state == wanted.state if wanted.state else wanted.with_archived or entry.state != "archived")
    ]
    found.sort(key=lambda entry: (ORDER.index(entry.state), entry.trouble, entry.valid_until, entry.name))
    num_pages = max(1, math.ceil(len(found) / PAGE_SIZE))
    page = min(wanted.page, num_pages)
    return ListPage(
        entries=found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE],
        overviews={},
        strip=_count(entries, wanted),
        num_tasks=len(entries),
        num_found=len(found),
        page=page,
        num_pages=num_pages,
    )


def _enter(name: str, schema: Schema | None, followed: Followed, now: datetime, cycle_limit: timedelta) -> Entry:
    forecaster, task_state = followed.forecasters.get(name), followed.task_states.get(name)
    task = schema.task if schema is not None else forecaster.task if forecaster is not None else None
    lifecycle = "active" if schema is None else schema.lifecycle
    state = find_row_state(forecaster, task_state, task, lifecycle, now=now, cycle_limit=cycle_limit)
    until = 0 if forecaster is None else forecaster.valid_until
    return Entry(name, schema, state, _find_trouble(name, schema, followed, now, cycle_limit), until)


def _find_trouble(name: str, schema: Schema | None, followed: Followed, now: datetime, cycle_limit: timedelta) -> int:
    """0 if following fails, a version is overdue or a cycle failed; 1 if the last cycle released nothing; else 2."""
    task_state = followed.task_states.get(name)
    if followed.registries.get(name, RegistryState()).state == "degraded":
        return 0
    if task_state is None:
        return 2
    last = task_state.last_ended
    is_stale = schema is not None and why_stale(schema.task, task_state, now, cycle_limit) is not None
    if is_stale or (last is not None and last.state == "failed"):
        return 0
    return 1 if last is not None and last.state != "released" else 2


def _count(entries: Sequence[Entry], wanted: Wanted) -> list[Share]:
    """The states that occur, the best of those in service first."""
    counts = Counter(entry.state for entry in entries)
    order = (*reversed(ORDER[:-2]), *ORDER[-2:])
    return [
        Share(
            counts[state],
            WORDS.get(state, state),
            TONES.get(state, "good"),
            wanted.address(state=None if wanted.state == state else state, page=1),
            wanted.state == state,
        )
        for state in order
        if counts[state]
    ]


def _read_overviews(
    connection: Connection, schemas: Sequence[Schema], followed: Followed, now: datetime
) -> dict[str, Overview]:
    """What the rows of these tasks show, as the store says it now."""
    stored = read_task_states(connection, schemas, followed.forecasters)
    states = {task_id: one.state for task_id, one in stored.items()}
    parts = [find_part(one, followed.forecasters.get(one.task.name), states.get(one.task_id)) for one in schemas]
    paired = read_paired_errors(connection, parts)
    found = {}
    for schema in schemas:
        name, pairs = schema.task.name, paired.get(schema.task_id, [])
        forecaster = followed.forecasters.get(name)
        read = stored.get(schema.task_id)
        state = TaskState.unknown(forecaster, now) if read is None or read.state is None else read.state
        skill = find_skill(schema, forecaster, pairs)
        naive = next((pair for pair in pairs if pair.method == NAIVE), None)
        trust = find_trust(forecaster, skill, state)
        found[name] = Overview(schema, state, skill, trust, () if naive is None else naive.recent)
    return found
