"""Tasks and their schemas as stored: every revision is kept, and the newest one counts.

If a task asks for a recipe to be chosen, the chosen recipe replaces the written one for all readers. So fits, cells and
kept folders go by the chosen recipe, and no other code needs to know how it came about.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, Row, Text, any_, bindparam, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY, distinct_on, insert

from contracts.errors import NotFound, TaskArchived, TaskLeaving
from contracts.task import Task, read_task
from store.database import schemas, tasks
from store.errors import ChoiceUnreadable, SpecUnreadable
from store.recipe_choices import Choice, read_choices
from store.tasks.changes import Lifecycle, explain_missing
from store.tasks.task_cache import TaskCache


@dataclass(frozen=True)
class Schema:
    """One stored revision of a task. `task` has the chosen recipe if one was chosen.

    `registry_name` is the name that MLflow still has for a renamed task, until the trainer has renamed it there too.
    `renaming_trouble` says why MLflow refuses that.
    """

    task_id: int
    schema_id: int
    revision: int
    task: Task
    choice: Choice | None = None
    lifecycle: Lifecycle = "active"
    registry_name: str | None = None
    renaming_trouble: str | None = None

    @property
    def written(self) -> Task:
        """The task as a person wrote it."""
        return self.task if self.choice is None else self.task.with_training(self.choice.asked)

    def chosen(self, choice: Choice) -> "Schema":
        """The same revision with this recipe."""
        return replace(self, task=self.task.with_training(choice.training), choice=choice)


@dataclass(frozen=True)
class NamedTask:
    """A task without its spec, which this release may be unable to read."""

    task_id: int
    name: str
    lifecycle: Lifecycle


def define_task(
    connection: Connection,
    task: Task,
    now: datetime,
    check: Callable[[int | None], None] = lambda _revision: None,
) -> tuple[Schema, bool]:
    """Store the task, or a new revision if its spec differs; returns it and whether anything was written.

    `check` gets the revision that would be replaced, None if there is none, and raises if it must stay. Raises
    TaskArchived, and TaskLeaving while another task is leaving this name.
    """
    connection.execute(insert(tasks).values(name=task.name, created_at=now).on_conflict_do_nothing())
    # As in `lock_task`: a stronger lock would wait for every open transaction that has stored an event of the task.
    named = select(tasks.c.id, tasks.c.lifecycle).where(tasks.c.name == task.name)
    row = connection.execute(named.with_for_update(key_share=True)).one_or_none()
    if row is None or row.lifecycle == "deleting":  # its deletion may have ended a moment ago
        raise TaskLeaving(task.name)
    require_free(connection, task.name, row.id)
    if row.lifecycle == "archived":
        raise TaskArchived(task.name)
    task_id = row.id
    try:
        newest = _newest(connection, task.name)
        former = newest[0].revision if newest else None
    except SpecUnreadable as error:
        newest, former = [], error.revision
    if newest and newest[0].written == task:
        return newest[0], False
    check(former)
    revision = 1 + (former or 0)
    schema_id = connection.execute(
        schemas.insert().returning(schemas.c.id),
        {
            "task_id": task_id,
            "revision": revision,
            "spec": task.model_dump(mode="json"),
            "row_schema": task.row_schema,
            "created_at": now,
        },
    ).scalar_one()
    return Schema(task_id, schema_id, revision, task), True


def require_free(connection: Connection, name: str, task_id: int) -> None:
    """Raise TaskLeaving while MLflow has this name for another task, which was renamed."""
    leaving = select(tasks.c.id).where(tasks.c.registry_name == name, tasks.c.id != task_id)
    if connection.execute(leaving).first() is not None:
        raise TaskLeaving(name)


def find_task_id(connection: Connection, name: str) -> int:
    """The id of a task, also of one that this release cannot read. Raises NotFound as `find_task`."""
    return find_named(connection, name).task_id


def find_task(connection: Connection, name: str) -> Schema:
    """The newest revision of a task, archived or not.

    Raises NotFound, which names a present name or a deletion, and SpecUnreadable.
    """
    # PostgreSQL cannot even compare with a name that holds NUL.
    if "\x00" in name:
        raise NotFound(f"There is no task named {name!r}.")
    found = _newest(connection, name)
    if not found:
        raise explain_missing(connection, name)
    return found[0]


def find_named(connection: Connection, name: str) -> NamedTask:
    """A task of which a request needs no spec. Raises NotFound as `find_task`."""
    if "\x00" in name:
        raise NotFound(f"There is no task named {name!r}.")
    named = select(tasks.c.id, tasks.c.name, tasks.c.lifecycle)
    row = connection.execute(named.where(tasks.c.name == name, tasks.c.lifecycle != "deleting")).one_or_none()
    if row is None:
        raise explain_missing(connection, name)
    return NamedTask(*row)


def has_name(connection: Connection, name: str) -> bool:
    """Whether a task has this name, also one that is being deleted."""
    return connection.execute(select(tasks.c.id).where(tasks.c.name == name)).first() is not None


def find_live_task(connection: Connection, name: str) -> Schema:
    """The same for a request that an archived task does not take. Raises TaskArchived too."""
    found = find_task(connection, name)
    if found.lifecycle == "archived":
        raise TaskArchived(name)
    return found


def is_revised_since(connection: Connection, newest: Schema, moment: datetime) -> bool:
    """Whether this revision of a task was stored after a moment."""
    created_at = select(schemas.c.created_at).where(schemas.c.id == newest.schema_id)
    return bool(connection.execute(created_at).scalar_one() > moment)


def find_revision_at(connection: Connection, task_id: int, began: datetime, ended: datetime | None) -> Schema:
    """The revision of a task by which a cycle of this time worked, with the recipe that was chosen by its end.

    If none is that old, as by clocks that differ, it is the first. Raises NotFound, SpecUnreadable, ChoiceUnreadable.
    """
    of_task = _NEWEST.where(tasks.c.id == task_id)
    first = select(func.min(schemas.c.revision)).where(schemas.c.task_id == task_id).scalar_subquery()
    row = connection.execute(
        of_task.where((schemas.c.created_at <= began) | (schemas.c.revision == first))
    ).one_or_none()
    if row is None:
        raise NotFound("The task has just been deleted.")
    try:
        found = _schema(row)
    except ValueError as error:
        raise SpecUnreadable(row.name, row.revision) from error
    chosen, spoilt = _with_choices(connection, [found])
    if spoilt:
        raise _choice_unreadable(found)
    choice = chosen[0].choice
    return found if choice is not None and ended is not None and choice.chosen_at > ended else chosen[0]


def find_form(connection: Connection, newest: Schema, task: Task) -> Schema | None:
    """The stored schema of rows with the features of this earlier revision, for the target of the newest one.

    None if no revision of the task had these features, or if they belonged to another target: such rows mean nothing
    to the newest revision. The task returned is the newest one with those features, so all its other rules hold.
    """
    if (task.target.name, task.target.kind) != (newest.task.target.name, newest.task.target.kind):
        return None
    row = connection.execute(
        select(schemas.c.id, schemas.c.revision)
        .where(schemas.c.task_id == newest.task_id, schemas.c.row_schema == task.row_schema)
        .order_by(schemas.c.revision.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    form = newest.task.model_copy(update={"features": task.features})
    return Schema(newest.task_id, row.id, row.revision, form)


def list_tasks(connection: Connection, *, with_archived: bool = False) -> Sequence[Schema]:
    """The newest revision of every task, by name, except those that this release cannot read."""
    found, _ = read_tasks(connection)
    return [schema for schema in found if with_archived or schema.lifecycle != "archived"]


def read_tasks(
    connection: Connection, task_ids: Collection[int] | None = None
) -> tuple[Sequence[Schema], dict[int, SpecUnreadable]]:
    """The newest revisions of these tasks, or of all, by name; and by id those whose spec this release cannot read.

    Archived ones are among them, deleted ones are not. No task suffers for another that cannot be read.
    """
    if task_ids is None:
        rows = connection.execute(_NEWEST).all()
    else:
        rows = connection.execute(_NEWEST_OF, {"task_ids": sorted(task_ids)}).all()
    _parse_task.make_room(len(rows))
    found: list[Schema] = []
    unreadable: dict[int, SpecUnreadable] = {}
    for row in rows:
        try:
            found.append(_schema(row))
        except ValueError:
            unreadable[row.task_id] = SpecUnreadable(row.name, row.revision)
    chosen, spoilt = _with_choices(connection, found)
    return chosen, unreadable | {schema.task_id: _choice_unreadable(schema) for schema in spoilt}


def list_names(
    connection: Connection,
    *,
    after: str = "",
    prefix: str = "",
    part: str = "",
    with_archived: bool = False,
    task_ids: Collection[int] | None = None,
    limit: int | None = None,
) -> list[NamedTask]:
    """Tasks by name, without deleted ones: those after a name, whose names begin with `prefix` and hold `part` in any
    case. With `task_ids`, only of these tasks.
    """
    query = select(tasks.c.id, tasks.c.name, tasks.c.lifecycle).where(
        tasks.c.lifecycle.not_in(("deleting",) if with_archived else ("deleting", "archived"))
    )
    if after:
        query = query.where(tasks.c.name > after)
    if prefix:
        query = query.where(func.starts_with(tasks.c.name, prefix))
    if part:
        query = query.where(func.strpos(func.lower(tasks.c.name), func.lower(part)) > 0)
    if task_ids is not None:
        query = query.where(tasks.c.id.in_(task_ids))
    return [NamedTask(*row) for row in connection.execute(query.order_by(tasks.c.name).limit(limit))]


def lock_task(connection: Connection, task_id: int, *, wait: bool = True) -> bool:
    """Lock the task until the end of the transaction: no one else moves its alias, releases, or requests a cycle.

    False if another transaction holds the lock and `wait` is off. The lock is NO KEY UPDATE, so events that refer to
    the task can still be appended.
    """
    row = select(tasks.c.id).where(tasks.c.id == task_id).with_for_update(key_share=True, skip_locked=not wait)
    return connection.execute(row).one_or_none() is not None


def _newest(connection: Connection, name: str) -> Sequence[Schema]:
    """The newest revision of a task, if there is one. Raises SpecUnreadable."""
    row = connection.execute(_NEWEST_NAMED, {"name": name}).one_or_none()
    if row is None:
        return []
    try:
        found = _schema(row)
    except ValueError as error:
        raise SpecUnreadable(name, row.revision) from error
    chosen, spoilt = _with_choices(connection, [found])
    if spoilt:
        raise _choice_unreadable(found)
    return chosen


# Built and parsed once, because each incoming event reads its task.
_NEWEST = (
    select(
        tasks.c.name,
        tasks.c.lifecycle,
        tasks.c.registry_name,
        tasks.c.renaming_trouble,
        schemas.c.task_id,
        schemas.c.id,
        schemas.c.revision,
        cast(schemas.c.spec, Text).label("spec"),
    )
    .ext(distinct_on(tasks.c.name))
    .join(schemas, schemas.c.task_id == tasks.c.id)
    .where(tasks.c.lifecycle != "deleting")
    .order_by(tasks.c.name, schemas.c.revision.desc())
)
_NEWEST_NAMED = _NEWEST.where(tasks.c.name == bindparam("name"))
_NEWEST_OF = _NEWEST.where(tasks.c.id == any_(bindparam("task_ids", type_=ARRAY(Integer))))


def _parse(written: tuple[str, str]) -> Task:
    """The task of a stored spec and a name; the spec may have an earlier one."""
    spec, name = written
    task = read_task(json.loads(spec))
    return task if task.name == name else task.model_copy(update={"name": name})


_parse_task = TaskCache(_parse)


def _schema(row: Row[*tuple[Any, ...]]) -> Schema:
    """A row of `_NEWEST`. Raises ValueError if its spec cannot be read."""
    return Schema(
        row.task_id,
        row.id,
        row.revision,
        _parse_task((row.spec, row.name)),
        lifecycle=row.lifecycle,
        registry_name=row.registry_name,
        renaming_trouble=row.renaming_trouble,
    )


def _with_choices(connection: Connection, found: Sequence[Schema]) -> tuple[Sequence[Schema], Sequence[Schema]]:
    """The same revisions with the recipes that were chosen for them, and those whose choice cannot be read."""
    choices = read_choices(connection, {schema.task_id for schema in found if schema.task.training.tune})
    if not choices:  # the usual case, and each incoming event gets here: a recipe is a digest of the whole task
        return found, ()
    chosen, spoilt = [], []
    for schema in found:
        key = schema.task_id, schema.task.recipe
        choice = choices.get(key)
        if choice is None and key in choices:
            spoilt.append(schema)
        else:
            chosen.append(schema if choice is None else schema.chosen(choice))
    return chosen, spoilt


def _choice_unreadable(schema: Schema) -> ChoiceUnreadable:
    return ChoiceUnreadable(schema.task.name, schema.revision, schema.task_id, schema.task.recipe)
