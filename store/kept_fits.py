"""The ledger of kept fits in an object store: which object is the fit of an origin, and which objects may be deleted.

`store` is the identity of an object store, so two stores of one database do not mix. A writer records an object before
it writes it, and the fit after. An object that no fit names is deleted after a grace period, while its row is locked:
a writer of the same object waits for that, and then writes it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from contracts.clock import from_micros, to_micros
from store.database import fit_objects, kept_fits

# A writer that was stopped for longer than this between its object and its row records a lost object.
GRACE = timedelta(hours=1)


@dataclass(frozen=True)
class FitKey:
    """Whose fit: the object store's identity, the task, the recipe (for a rival with its method), and the origin."""

    store: str
    task_id: int
    recipe: str
    origin: int


@dataclass(frozen=True)
class KeptFit:
    """The object of a fit. `is_lost` says that the store no longer has it as it was written."""

    recipe: str
    origin: int
    digest: str
    is_lost: bool


@dataclass(frozen=True)
class FitCounts:
    """How many fits a store holds, how many of these are lost, and how many fits other stores hold."""

    num_here: int
    num_lost: int
    num_elsewhere: int


def announce_object(connection: Connection, store: str, digest: str, now: datetime) -> None:
    """Record an object that will be written now, so that nobody deletes it meanwhile."""
    row = insert(fit_objects).values(store=store, digest=digest, put_at=now)
    connection.execute(row.on_conflict_do_update(index_elements=["store", "digest"], set_={"put_at": now}))


def record_fit(connection: Connection, key: FitKey, digest: str, now: datetime) -> None:
    """Name the written object as the fit of an origin; it replaces an earlier one."""
    found = {"digest": digest, "kept_at": now, "lost_at": None}
    row = insert(kept_fits).values(
        store=key.store, task_id=key.task_id, recipe=key.recipe, origin=from_micros(key.origin), **found
    )
    connection.execute(row.on_conflict_do_update(index_elements=["store", "task_id", "recipe", "origin"], set_=found))


def find_fit(connection: Connection, key: FitKey) -> KeptFit | None:
    """The fit of an origin."""
    row = connection.execute(select(*_COLUMNS).where(*_is(key))).one_or_none()
    return None if row is None else _fit(*row)


def list_fits(connection: Connection, store: str, task_id: int) -> list[KeptFit]:
    """All fits of a task."""
    found = select(*_COLUMNS).where(kept_fits.c.task_id == task_id, kept_fits.c.store == store)
    return [_fit(*row) for row in connection.execute(found.order_by(kept_fits.c.recipe, kept_fits.c.origin))]


def list_all(connection: Connection, store: str) -> list[FitKey]:
    """The fits of all tasks that this store holds."""
    found = select(*_KEY).where(kept_fits.c.store == store)
    return [
        FitKey(kept_in, task_id, recipe, to_micros(at)) for kept_in, task_id, recipe, at in connection.execute(found)
    ]


def list_lost(connection: Connection, store: str) -> list[tuple[FitKey, str]]:
    """The fits of all tasks whose object is lost, with its digest."""
    found = select(*_KEY, kept_fits.c.digest).where(kept_fits.c.store == store, kept_fits.c.lost_at.is_not(None))
    return [
        (FitKey(kept_in, task_id, recipe, to_micros(at)), digest)
        for kept_in, task_id, recipe, at, digest in connection.execute(found)
    ]


def mark_lost(connection: Connection, key: FitKey, digest: str, now: datetime) -> None:
    """Record that the store no longer has this object, unless the fit has another one by now."""
    connection.execute(update(kept_fits).where(*_is(key), kept_fits.c.digest == digest).values(lost_at=now))


def withdraw_fit(connection: Connection, key: FitKey) -> None:
    """Forget the fit of an origin."""
    connection.execute(delete(kept_fits).where(*_is(key)))


def withdraw_older(connection: Connection, task_id: int, oldest: int) -> None:
    """Forget a task's fits of origins before `oldest` (microseconds), in this store and any other."""
    is_older = kept_fits.c.origin < from_micros(oldest)
    connection.execute(delete(kept_fits).where(kept_fits.c.task_id == task_id, is_older))


def delete_objects(
    connection: Connection, store: str, remove: Callable[[Sequence[str]], None], now: datetime, limit: int = 100
) -> int:
    """Delete some objects that no fit names, by `remove`, inside this transaction; returns how many."""
    digests = connection.execute(_UNNAMED, {"store": store, "before": now - GRACE, "limit": limit}).scalars().all()
    if digests:
        remove(digests)
        gone = (fit_objects.c.store == store, fit_objects.c.digest.in_(digests))
        connection.execute(delete(fit_objects).where(*gone))
    return len(digests)


def count_fits(connection: Connection, store: str) -> FitCounts:
    """The numbers of fits of all tasks, as this store sees them."""
    here = kept_fits.c.store == store
    counts = select(
        func.count().filter(here),
        func.count().filter(here, kept_fits.c.lost_at.is_not(None)),
        func.count().filter(~here),
    )
    return FitCounts(*connection.execute(counts).one())


def _is(key: FitKey) -> tuple[ColumnElement[bool], ...]:
    return (
        kept_fits.c.store == key.store,
        kept_fits.c.task_id == key.task_id,
        kept_fits.c.recipe == key.recipe,
        kept_fits.c.origin == from_micros(key.origin),
    )


def _fit(recipe: str, origin: datetime, digest: str, lost_at: datetime | None) -> KeptFit:
    return KeptFit(recipe, to_micros(origin), digest, lost_at is not None)


_KEY = (kept_fits.c.store, kept_fits.c.task_id, kept_fits.c.recipe, kept_fits.c.origin)
_COLUMNS = (kept_fits.c.recipe, kept_fits.c.origin, kept_fits.c.digest, kept_fits.c.lost_at)

_UNNAMED = text("""
    SELECT digest FROM fit_objects
    WHERE store = :store AND put_at < :before AND NOT EXISTS (
        SELECT FROM kept_fits WHERE kept_fits.store = fit_objects.store AND kept_fits.digest = fit_objects.digest
    )
    ORDER BY put_at LIMIT :limit FOR UPDATE SKIP LOCKED
""")
