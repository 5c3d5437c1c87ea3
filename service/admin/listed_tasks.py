"""The list of tasks, a page at a time and filtered: a few statements for a page, however many tasks there are.

A task is a row of the list whatever the store holds of it. If a part cannot be read, the row says so in `registry`, and
shows what can be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from msgspec.structs import asdict
from sqlalchemy import Connection

from contracts.clock import to_micros
from contracts.quality.skill import Skill
from service.admin import answers
from service.admin.status import describe_champion, describe_task
from service.advice.row_states import RowState, find_row_state
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.models.model_skills import find_trust, read_skills
from service.models.task_states.stored_states import read_task_states
from service.models.task_states.task_state import RegistryState, TaskState, state_of
from store.errors import SpecUnreadable
from store.tasks.catalog import NamedTask, Schema, list_names, read_tasks

PAGE_SIZE = 50
# As many as every other list shows at once.
MAX_TASKS = 1000


@dataclass(frozen=True)
class Wanted:
    """Which tasks a page shows: at most `limit` after a name, in one state, whose names begin with or hold a text."""

    limit: int = PAGE_SIZE
    after: str = ""
    state: RowState | None = None
    prefix: str = ""
    part: str = ""
    with_archived: bool = False
    allowed: frozenset[int] | None = None


@dataclass(frozen=True)
class FoundTask:
    """What the store says of one task. Of `schema` and `unreadable`, one is there."""

    named: NamedTask
    schema: Schema | None
    unreadable: SpecUnreadable | None
    task_state: TaskState
    fault: str | None
    skill: Skill | None


@dataclass(frozen=True)
class FoundTasks:
    """A page of tasks by name, and the name after which the next page begins; None after the last one."""

    tasks: Sequence[FoundTask]
    next: str | None


def read_page(
    connection: Connection,
    follower: Follower,
    wanted: Wanted,
    now: datetime,
    cycle_limit: timedelta = timedelta(0),
) -> FoundTasks:
    """The page as the store says it now; which tasks are in a state is known from the last poll."""
    forecasters = follower.forecasters
    named = list_names(
        connection,
        after=wanted.after,
        prefix=wanted.prefix,
        part=wanted.part,
        with_archived=wanted.with_archived or wanted.state == "archived",
        task_ids=wanted.allowed,
        limit=wanted.limit + 1 if wanted.state is None else None,
    )
    if wanted.state is not None:
        named = [one for one in named if wanted.state in _list_states(one, follower, now, cycle_limit)]
    shown = named[: wanted.limit]
    following = shown[-1].name if len(named) > len(shown) else None
    return FoundTasks(_read_tasks(connection, shown, forecasters, now), following)


def _list_states(one: NamedTask, follower: Follower, now: datetime, cycle_limit: timedelta) -> tuple[RowState, ...]:
    """The state of a task's version, and its state on the list of the pages, which tells more states apart."""
    forecaster, task_state = follower.forecasters.get(one.name), follower.task_states.get(one.name)
    task = None if forecaster is None else forecaster.task
    shown = find_row_state(forecaster, task_state, task, one.lifecycle, now=now, cycle_limit=cycle_limit)
    return state_of(forecaster, task_state, to_micros(now)), shown


def _read_tasks(
    connection: Connection, shown: Sequence[NamedTask], forecasters: Mapping[str, Forecaster], now: datetime
) -> list[FoundTask]:
    readable, unreadable = read_tasks(connection, [one.task_id for one in shown]) if shown else ([], {})
    schemas = {schema.task_id: schema for schema in readable}
    stored = read_task_states(connection, readable, forecasters)
    states = {task_id: one.state for task_id, one in stored.items() if one.state is not None}
    skills = read_skills(connection, readable, forecasters, states)
    found = []
    for one in shown:
        read = stored.get(one.task_id)
        known = None if read is None else read.state
        found.append(
            FoundTask(
                named=one,
                schema=schemas.get(one.task_id),
                unreadable=unreadable.get(one.task_id),
                task_state=TaskState.unknown(forecasters.get(one.name), now) if known is None else known,
                fault=None if read is None else read.fault,
                skill=skills.get(one.task_id),
            )
        )
    return found


def describe_page(found: FoundTasks, follower: Follower, *, now: datetime, cycle_limit: timedelta) -> answers.Tasks:
    """The answer. A task that was deleted while the page was read is left out."""
    rows = []
    for one in found.tasks:
        name = one.named.name
        forecaster, registry = follower.forecasters.get(name), follower.registries.get(name, RegistryState())
        if one.schema is not None:
            if one.fault is not None:
                registry = replace(registry, state="degraded", reason=one.fault)
            described = describe_task(
                one.schema, forecaster, registry, one.task_state, one.skill, now=now, cycle_limit=cycle_limit
            )
            rows.append(answers.ListedTask(**asdict(described)))
        elif one.unreadable is not None:
            rows.append(_describe_unreadable(one, one.unreadable, forecaster, registry, now))
    return answers.Tasks(rows, found.next)


def _describe_unreadable(
    one: FoundTask, error: SpecUnreadable, forecaster: Forecaster | None, registry: RegistryState, now: datetime
) -> answers.ListedTask:
    """A task whose spec cannot be read: the version that answers for it goes on."""
    return answers.ListedTask(
        task=one.named.name,
        revision=error.revision,
        spec=None,
        choice=None,
        lifecycle=one.named.lifecycle,
        champion=None if forecaster is None else describe_champion(forecaster),
        registry=answers.Registry("degraded", str(error), registry.champion),
        state=state_of(forecaster, one.task_state, to_micros(now)),
        closed=None,
        override=None,
        stale=False,
        stale_reason=None,
        seconds_since_release=None,
        num_failed=0,
        better_method=None,
        rivals=(),
        missing_windows=0,
        skill=None,
        trust=find_trust(forecaster, None, one.task_state),
    )
