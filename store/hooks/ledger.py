"""The hooks themselves: made, listed and removed. Their events go with them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, exists, select, text
from sqlalchemy.dialects.postgresql import insert

from contracts.errors import Conflict, NotFound
from store.database import deliveries, hooks


@dataclass(frozen=True)
class Hook:
    """One hook, without its secret. `task_ids` and `types` are None if it is for all.

    `answer` is what its receiver answered to the attempt that failed last, among events that are not delivered.
    """

    hook_id: int
    name: str
    url: str
    task_ids: tuple[int, ...] | None
    types: tuple[str, ...] | None
    actor: str
    created_at: datetime
    num_delivered: int = 0
    num_failed: int = 0
    num_waiting: int = 0
    num_dead: int = 0
    answer: str | None = None


@dataclass(frozen=True)
class HookCounts:
    """What metrics show of a hook."""

    name: str
    num_delivered: int
    num_failed: int
    num_waiting: int
    num_dead: int


@dataclass(frozen=True)
class DeadLetters:
    """Events of one task that a hook has given up."""

    hook: str
    num_events: int


def add_hook(
    connection: Connection,
    name: str,
    url: str,
    secret: bytes,
    *,
    task_ids: Collection[int] | None,
    types: Collection[str] | None,
    actor: str,
    now: datetime,
) -> Hook:
    """Make a hook. Raises Conflict if there is one of this name."""
    row = {
        "name": name,
        "url": url,
        "secret": secret,
        "task_ids": None if task_ids is None else sorted({*task_ids}),
        "types": None if types is None else sorted({*types}),
        "actor": actor,
        "created_at": now,
    }
    added = insert(hooks).values(row).on_conflict_do_nothing().returning(hooks.c.id)
    if connection.execute(added).first() is None:
        raise Conflict(
            f"There is a hook {name} already: remove it with `morrow hooks remove {name}`, or choose another."
        )
    return find_hook(connection, name)


def list_hooks(connection: Connection, name: str | None = None) -> Sequence[Hook]:
    """All hooks by name, or the one of a name."""
    return [
        Hook(
            hook_id=row.id,
            name=row.name,
            url=row.url,
            task_ids=None if row.task_ids is None else tuple(row.task_ids),
            types=None if row.types is None else tuple(row.types),
            actor=row.actor,
            created_at=row.created_at,
            num_delivered=row.num_delivered,
            num_failed=row.num_failed,
            num_waiting=row.num_waiting,
            num_dead=row.num_dead,
            answer=row.answer,
        )
        for row in connection.execute(_LIST, {"name": name})
    ]


def find_hook(connection: Connection, name: str) -> Hook:
    """The hook of a name. Raises NotFound, which names the others."""
    # PostgreSQL cannot even compare with a name that holds NUL.
    if "\x00" not in name and (found := list_hooks(connection, name)):
        return found[0]
    others = connection.execute(select(hooks.c.name).order_by(hooks.c.name).limit(20)).scalars().all()
    known = f"the hooks are {', '.join(others)}" if others else "there is no other: `morrow hooks add` makes one"
    raise NotFound(f"There is no hook {name!r}; {known}.")


def remove_hook(connection: Connection, name: str) -> Hook:
    """Remove a hook with all its events; returns it as it was. Raises NotFound."""
    removed = find_hook(connection, name)
    connection.execute(delete(deliveries).where(deliveries.c.hook_id == removed.hook_id))  # in the order of a delivery
    connection.execute(delete(hooks).where(hooks.c.id == removed.hook_id))
    return removed


def has_hooks(connection: Connection) -> bool:
    """Whether there is any hook."""
    return bool(connection.execute(select(exists(select(hooks.c.id)))).scalar_one())


def count_events(connection: Connection) -> Sequence[HookCounts]:
    """What metrics show of each hook, by name."""
    return [
        HookCounts(row.name, row.num_delivered, row.num_failed, row.num_waiting, row.num_dead)
        for row in connection.execute(_COUNT)
    ]


def list_dead_letters(connection: Connection, task_id: int) -> Sequence[DeadLetters]:
    """What each hook has given up of a task, by the name of the hook."""
    found = connection.execute(_LIST_DEAD, {"task_id": task_id})
    return [DeadLetters(row.name, row.num_events) for row in found]


# Events that are not delivered have indexes, so delivered ones are never counted. A test, which is about no task, is no
# dead letter if it fails.
_COUNTS = """
    LEFT JOIN LATERAL (
        SELECT count(*) AS num_waiting FROM deliveries WHERE hook_id = hooks.id AND state = 'waiting'
    ) AS waiting ON true
    LEFT JOIN LATERAL (
        SELECT count(*) AS num_dead FROM deliveries
        WHERE hook_id = hooks.id AND state = 'dead' AND task_id IS NOT NULL
    ) AS dead ON true
"""

_COUNT = text(f"""
    SELECT hooks.name, num_delivered, num_failed, num_waiting, num_dead FROM hooks {_COUNTS} ORDER BY hooks.name
""")  # noqa: S608 our own text

_LIST = text(f"""
    SELECT hooks.*, num_waiting, num_dead, last.answer
    FROM hooks {_COUNTS}
    LEFT JOIN LATERAL (
        SELECT answer FROM deliveries
        WHERE hook_id = hooks.id AND state IN ('waiting', 'dead') AND task_id IS NOT NULL AND num_attempts > 0
        ORDER BY id DESC LIMIT 1
    ) AS last ON true
    WHERE CAST(:name AS text) IS NULL OR hooks.name = :name
    ORDER BY hooks.name
""")  # noqa: S608 our own text

_LIST_DEAD = text("""
    SELECT hooks.name, count(*) AS num_events
    FROM deliveries JOIN hooks ON hooks.id = deliveries.hook_id
    WHERE deliveries.state = 'dead' AND deliveries.task_id = :task_id
    GROUP BY hooks.name ORDER BY hooks.name
""")
