"""Objects in a folder, S3, Google Cloud Storage or Azure: kept fits by the digest of their bytes, and sealed events.

Objects are written whole or not at all and never change, so two writers of one object write the same. Whatever is read
is compared with its digest. A store that does not answer is asked again for some seconds. Then it rests: for half a
minute nobody waits for it.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import obstore
import structlog
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from contracts.runtime.object_stores import (
    find_endpoint,
    folder_of,
    http_address,
    options_of,
    provider_of,
)
from contracts.runtime.proxies import exempt_own, find_proxy
from store.errors import ObjectLost, ObjectStoreAway

log = structlog.get_logger(__name__)

_FOLDER = "fits"
# An object that names the store: two addresses of one store find the same.
_IDENTITY = "store.id"
_RETRIES: Any = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=4), "base": 2},
}
_REMEDY = "check MORROW_FITS_URL: morrow doctor; until then fits are kept on this machine, and are shared later"
_CONNECT_SECONDS, _SILENT_SECONDS, _ANSWER_SECONDS = 5, 10, 60
_REST_SECONDS = 30.0
_MAX_REASON = 300


class Objects:
    """The objects at one address. Every method raises ObjectStoreAway if the store does not answer or refuses."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ, *, is_logged: bool = True) -> None:
        self.url = url
        self._is_logged = is_logged
        self._environment = environment
        self._opened: ObjectStore | None = None
        self._identity: str | None = None
        # Why it could not be used, and the end of its rest (monotonic clock).
        self._trouble: str | None = None
        self._rest_until = 0.0

    def identity(self) -> str:
        """What names this store in the ledger, whichever address leads to it; the first that asks writes it."""
        if self._identity is None:
            with self._translated():
                with suppress(AlreadyExistsError, FileExistsError):
                    obstore.put(self._store(), _IDENTITY, uuid4().hex.encode(), mode="create")
                self._identity = self._read_identity()
        return self._identity

    @property
    def known_identity(self) -> str | None:
        """The identity if the store was asked before: for callers that cannot wait for it."""
        return self._identity

    def _read_identity(self) -> str:
        return bytes(obstore.get(self._store(), _IDENTITY).bytes()).decode("ascii", "replace")

    def write(self, content: bytes) -> str:
        """Write an object under its digest; returns that."""
        digest = digest_of(content)
        self.write_at(f"{_FOLDER}/{digest}", content)
        return digest

    def write_at(self, path: str, content: bytes) -> None:
        """Write an object under this path."""
        with self._translated():
            obstore.put(self._store(), path, content)

    def read(self, digest: str) -> bytes:
        """The bytes of this digest. Raises ObjectLost if the store has none or others."""
        return self.read_at(f"{_FOLDER}/{digest}", digest)

    def read_at(self, path: str, digest: str) -> bytes:
        """The object under this path. Raises ObjectLost if the store has none or one of another digest."""
        with self._translated():
            try:
                content = bytes(obstore.get(self._store(), path).bytes())
            except FileNotFoundError:
                if self._identity is not None and self._read_identity() != self._identity:
                    raise OSError("it is another store than before") from None
                raise ObjectLost(f"{self.url} has no object {path}.") from None
        if digest_of(content) != digest:
            raise ObjectLost(f"The object {path} in {self.url} does not have the bytes of the digest {digest}.")
        return content

    def check(self) -> None:
        """Write, read and delete an object. Raises ObjectLost as well."""
        digest = self.write(uuid4().bytes)
        self.read(digest)
        self.delete([digest])

    def delete(self, digests: Sequence[str]) -> None:
        """Delete the objects of these digests; those that are gone already do not matter."""
        self.delete_at([f"{_FOLDER}/{digest}" for digest in digests])

    def delete_at(self, paths: Sequence[str]) -> None:
        """Delete the objects under these paths."""
        with self._translated():
            for path in paths:
                try:
                    obstore.delete(self._store(), path)
                except FileNotFoundError:
                    continue

    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = _open(self.url, self._environment)
        return self._opened

    @contextmanager
    def _translated(self) -> Iterator[None]:
        if self._trouble is not None and time.monotonic() < self._rest_until:
            raise ObjectStoreAway(self._trouble)
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            reason = _name_reason(error)
            trouble = f"The object store {self.url} cannot be used: {reason}."
            if self._trouble is None and self._is_logged:
                log.warning("object_store.away", reason=trouble, remedy=_REMEDY)
            self._trouble, self._rest_until = trouble, time.monotonic() + _REST_SECONDS
            raise ObjectStoreAway(trouble) from error
        if self._trouble is not None:
            log.info("object_store.reached", url=self.url)
        self._trouble = None


def _name_reason(error: Exception) -> str:
    """The first line of an error, which obstore follows with its own source."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    reason = re.sub(r", max_retries: \d+, retry_timeout: [\w.]+", "", reason)[:_MAX_REASON].rstrip(".")
    if reason.endswith("builder error"):
        return "no certificates of authorities are found: set SSL_CERT_FILE to a file that holds them"
    return reason


def digest_of(content: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(content).hexdigest()


def _open(url: str, environment: Mapping[str, str]) -> ObjectStore:
    """A client that finds its login in the environment, and its proxy as ours do."""
    provider, plain = provider_of(url), url.partition("?")[0]
    if provider == "file":
        return LocalStore(folder_of(url), mkdir=True)
    address = http_address(url, environment)
    assert address is not None, "only a folder has none"
    client: Any = {
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=_SILENT_SECONDS),
        "timeout": timedelta(seconds=_ANSWER_SECONDS),
    }
    if address.startswith("http://"):  # certificates, which may be missing, do not matter there
        client |= {"allow_http": True, "allow_invalid_certificates": True}
    if (proxy := find_proxy(address, environment)) is not None:
        client["proxy_url"] = proxy
    else:
        exempt_own(os.environ, address)  # the client finds proxies there
    if provider == "gs":
        return GCSStore.from_url(plain, client_options=client, retry_config=_RETRIES)
    if provider == "az":
        return AzureStore.from_url(plain, client_options=client, retry_config=_RETRIES)
    named: Any = {}
    if (endpoint := find_endpoint(url, environment)) is not None:
        named["endpoint"] = endpoint
    if (region := options_of(url).get("region")) is not None:
        named["region"] = region
    return S3Store.from_url(plain, config=named, client_options=client, retry_config=_RETRIES)
