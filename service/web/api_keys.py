"""The API keys as one process knows them: read every few seconds, remembered through an outage of the database.

A copy of the digests lies beside the models, so that a restart without a database locks nobody out. Revoking a key
takes effect with the next look. A key that is not known yet is looked for at once, but at most once a second.

Several workers each keep their own count of what a key asks, and each grants its share of the key's rate: together
they never grant more, but a client that stays on one connection, and so with one worker, is granted that share only.
They also write the same copy, each replacing it whole: after a change the last of them leaves what it read last.
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
    """How many requests a key has left at a moment; a second's worth is the most that is saved up."""

    left: float
    at: float


class ApiKeys:
    """Valid keys by id; None until they have been read for the first time.

    `share` is the part of each key's rate that is granted here; `clock` gives monotonic seconds.
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
        self._looked_at = clock() - _LEAST_PAUSE
        self._has_looked = False
        self._is_remembered = False
        self._trouble: str | None = None
        self._looking = anyio.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def restore(self) -> None:
        """Take what the last process remembered."""
        try:
            self._take(msgspec.json.decode(self._file.read_bytes(), type=list[Key]))
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("keys.forgotten", reason=str(error))

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            async with self._looking:
                await self._look()
            await anyio.sleep(self._poll_seconds)

    async def is_empty(self) -> bool:
        """Whether there is no key, as far as is known; waits for the first look."""
        if self.keys is None and not self._has_looked:
            await self._look_soon()
        return not self.keys

    def find(self, token: str | None) -> Key | None:
        """The key that a text is, of those that are known."""
        if token is None or not self.keys:
            return None
        key = self.keys.get(id_of(token) or "")
        return key if key is not None and is_key(token, key) else None

    async def admit(self, token: str | None, scope: Scope | None) -> Key:
        """The key that a text is, if it may do this now; this then counts as one request of its rate.

        Raises Unauthenticated, Forbidden, Throttled; NoKeys while there is none, Unavailable where none has been read.
        """
        key_id = None if token is None else id_of(token)
        if self.keys is None or (key_id is not None and key_id not in self.keys):
            await self._look_soon()
        if self.keys is None:
            raise Unavailable("The keys are not known yet: the database does not answer.")
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

    async def _look_soon(self) -> None:
        async with self._looking:
            if self._clock() - self._looked_at >= _LEAST_PAUSE:
                await self._look()

    async def _look(self) -> None:
        try:
            with anyio.CancelScope(shield=True):  # a look that has begun gives its connection back
                keys = await self._store.run(list_keys)
        except Unavailable:
            return
        except Exception as error:  # what the database cannot say must not end a process that knows its keys
            log.error("keys.unreadable", exc_info=error)
            return
        finally:
            self._has_looked = True
            self._looked_at = self._clock()  # whoever has waited for this look has no need of another
        before = self.keys
        self._take(keys)
        if self.keys != before:
            log.info("keys.read", num_keys=len(keys))
            self._is_remembered = False
        if not self._is_remembered:
            await anyio.to_thread.run_sync(self._remember, keys)

    def _take(self, keys: Sequence[Key]) -> None:
        self.keys = {key.key_id: key for key in keys}

    def _remember(self, keys: Sequence[Key]) -> None:
        """Write them down. Where that fails each look tries again: what lies there may name a key that is revoked."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, msgspec.json.encode(keys))
        except OSError as error:
            if error.strerror != self._trouble:
                log.warning("keys.not_remembered", reason=error.strerror)
            self._trouble = error.strerror
        else:
            self._is_remembered, self._trouble = True, None
