"""API keys for posting events, for predictions, and for administration. The store holds only a digest of each key.

A key has the form `morrow-<id>-<secret>`. The id finds its row. The secret is 256 random bits, which nobody can guess,
so a fast digest is as good as a slow one.

A key may be for some tasks only, which their ids name: a renamed task keeps its key, and no later task of the same name
inherits it. The ids are part of the digest. So a process of the previous release, which does not know of them, refuses
such a key instead of letting it use every task.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from contracts.errors import Conflict, Fault, InvalidInput, NotFound
from store.database import api_keys

Scope = Literal["ingest", "predict", "admin"]

SCOPES: tuple[Scope, ...] = ("ingest", "predict", "admin")
_PREFIX = "morrow"


@dataclass(frozen=True)
class Key:
    """One key. `rate` is its limit of requests per second, None for no limit; `digest` is of the whole key.

    `task_ids` are those of the tasks that it is for; None for every task.
    """

    key_id: str
    name: str
    digest: bytes
    scopes: tuple[Scope, ...]
    rate: float | None
    created_at: datetime
    revoked_at: datetime | None = None
    task_ids: tuple[int, ...] | None = None

    def allows(self, scope: Scope | None) -> bool:
        """Whether the key has this scope; None stands for any valid key. `admin` includes all others."""
        return scope is None or scope in self.scopes or "admin" in self.scopes


def digest_key(token: str, task_ids: Sequence[int] | None = None) -> bytes:
    """SHA-256 of a key as clients send it, and of the ids of its tasks if it is for some only."""
    said = token if task_ids is None else f"{token} {' '.join(map(str, task_ids))}"
    return hashlib.sha256(said.encode()).digest()


def id_of(token: str) -> str | None:
    """The id inside a key; None if the text is no key."""
    parts = token.split("-", 2)
    return parts[1] if len(parts) == 3 and parts[0] == _PREFIX else None


def is_key(token: str, key: Key) -> bool:
    """Whether a text is this key, in constant time, so that timing reveals nothing."""
    return hmac.compare_digest(digest_key(token, key.task_ids), key.digest)


def add_key(
    connection: Connection,
    name: str,
    scopes: Sequence[Scope],
    rate: float | None,
    now: datetime,
    *,
    task_ids: Collection[int] | None = None,
) -> str:
    """Make a key, perhaps for some tasks only, and return it; it cannot be shown again.

    Raises Conflict if a valid key has this name, and InvalidInput if the name cannot be shown on one line.
    """
    if not name.strip() or not name.isprintable():
        raise InvalidInput([Fault("name", "is empty, or holds a character that cannot be shown")])
    key_id = secrets.token_hex(6)
    token = f"{_PREFIX}-{key_id}-{secrets.token_urlsafe(32)}"
    own = None if task_ids is None else sorted({*task_ids})
    row = {
        "id": key_id,
        "name": name,
        "digest": digest_key(token, own),
        "scopes": list(scopes),
        "rate": rate,
        "created_at": now,
        "task_ids": own,
    }
    added = insert(api_keys).values(row).on_conflict_do_nothing().returning(api_keys.c.id)
    if connection.execute(added).first() is None:
        raise Conflict(f"There is a key {name} already: revoke it, or choose another name.")
    return token


def list_keys(connection: Connection, *, with_revoked: bool = False) -> list[Key]:
    """All valid keys, oldest first; `with_revoked` adds the revoked ones."""
    query = select(
        api_keys.c.id,
        api_keys.c.name,
        api_keys.c.digest,
        api_keys.c.scopes,
        api_keys.c.rate,
        api_keys.c.created_at,
        api_keys.c.revoked_at,
        api_keys.c.task_ids,
    ).order_by(api_keys.c.created_at, api_keys.c.id)
    if not with_revoked:
        query = query.where(api_keys.c.revoked_at.is_(None))
    return [
        Key(
            key_id,
            name,
            bytes(digest),
            tuple(scopes),
            rate,
            created_at,
            revoked_at,
            None if task_ids is None else tuple(task_ids),
        )
        for key_id, name, digest, scopes, rate, created_at, revoked_at, task_ids in connection.execute(query)
    ]


def revoke_key(connection: Connection, name: str, now: datetime) -> None:
    """Revoke the valid key of this name. Raises NotFound if there is none."""
    valid = (api_keys.c.name == name) & api_keys.c.revoked_at.is_(None)
    if connection.execute(api_keys.update().where(valid).values(revoked_at=now)).rowcount == 0:
        raise NotFound(f"There is no valid key {name}.")
