"""The API keys that one process knows: read every few seconds, and kept through an outage of the database.

A copy of the digests is in the home folder, so that a restart without a database locks nobody out. Revoking a key
takes effect at the next read. An unknown key causes a read at once, but at most one a second.

Each worker counts the requests of a key on its own and grants its share of the key's rate. Together they never grant
more, but a client that stays on one connection, and so with one worker, gets that share only. All workers write the
same copy, each replacing it whole; after a change, the copy holds what the last of them has read.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog

from contracts.errors import Unavailable
from service.atomic_file import replace_file
from service.database import Store
from service.errors import Forbidden, NoKeys, Throttled, Unauthenticated
from store.api_keys import Key, Scope, id_of, is_key, list_keys

FILE = "keys.json"
_LEAST_PAUSE = 1.0

log = structlog.get_logger(__name__)


@dataclass
class _Bucket:
    """How many requests a key has left at a moment; at most a second's worth is saved up."""

    left: float
    at: float


class ApiKeys:
    """Valid keys by id, None until the first read.

    `share` is the part of each key's rate that is granted here; `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        home: Path,
        poll_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        share: float = 1.0,
    ) -> None:
        self.keys: Mapping[str, Key] | None = None
        self._store = store
        self._file = home / FILE
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._share = share
        self._read_at = clock() - _LEAST_PAUSE
        self._has_tried = False
        self._is_saved = False
        self._save_error: str | None = None
        self._reading = anyio.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def restore(self) -> None:
        """Read the copy that the last process saved."""
        try:
            self._set_keys(msgspec.json.decode(self._file.read_bytes(), type=list[Key]))
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("keys.forgotten", reason=str(error))

    async def run(self) -> None:
        """Read the keys every few seconds until cancelled."""
        while True:
            async with self._reading:
                await self._read()
            await anyio.sleep(self._poll_seconds)

    async def is_empty(self) -> bool:
        """Whether no key is known; waits for the first read."""
        if self.keys is None and not self._has_tried:
            await self._read_soon()
        return not self.keys

    def find(self, token: str | None) -> Key | None:
        """The known key of a token."""
        if token is None or not self.keys:
            return None
        key = self.keys.get(id_of(token) or "")
        return key if key is not None and is_key(token, key) else None

    async def admit(self, token: str | None, scope: Scope | None) -> Key:
        """The key of a token, if it may do this now, which counts as one request of its rate.

        Raises Unauthenticated, Forbidden, Throttled, NoKeys if there is no key, and Unavailable if none could be read.
        """
        key_id = None if token is None else id_of(token)
        if self.keys is None or (key_id is not None and key_id not in self.keys):
            await self._read_soon()
        if self.keys is None:
            raise Unavailable("The keys are not known yet, because the database does not answer.")
        if not self.keys:
            raise NoKeys
        key = self.find(token)
        if key is None:
            raise Unauthenticated
        if not key.allows(scope):
            raise Forbidden(f"The key {key.name} does not hold the scope {scope}, which this needs.")
        self._count(key)
        return key

    def _count(self, key: Key) -> None:
        if key.rate is None:
            return
        now, rate = self._clock(), key.rate * self._share
        most = max(1.0, rate)
        bucket = self._buckets.setdefault(key.key_id, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.at) * rate)
        bucket.at = now
        if bucket.left < 1:
            raise Throttled(key.rate, (1 - bucket.left) / rate)
        bucket.left -= 1

    async def _read_soon(self) -> None:
        async with self._reading:
            if self._clock() - self._read_at >= _LEAST_PAUSE:
                await self._read()

    async def _read(self) -> None:
        try:
            with anyio.CancelScope(shield=True):  # a read that has begun returns its connection
                keys = await self._store.run(list_keys)
        except Unavailable:
            return
        except Exception as error:  # a process that knows its keys must go on
            log.error("keys.unreadable", exc_info=error)
            return
        finally:
            self._has_tried = True
            self._read_at = self._clock()  # requests that waited for this read need no other
        before = self.keys
        self._set_keys(keys)
        if self.keys != before:
            log.info("keys.read", num_keys=len(keys))
            self._is_saved = False
        if not self._is_saved:
            await anyio.to_thread.run_sync(self._save, keys)

    def _set_keys(self, keys: Sequence[Key]) -> None:
        self.keys = {key.key_id: key for key in keys}

    def _save(self, keys: Sequence[Key]) -> None:
        """Save the copy. After a failure each read tries again, since the old copy may hold a revoked key."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, msgspec.json.encode(keys))
        except OSError as error:
            if error.strerror != self._save_error:
                log.warning("keys.not_saveed", reason=error.strerror)
            self._save_error = error.strerror
        else:
            self._is_saved, self._save_error = True, None
