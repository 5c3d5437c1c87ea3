"""Connections to receivers: a name is resolved here, every address is checked, and a checked one is connected to.

So no name can lead to another address between check and connection. Nothing of the environment takes part: no proxy,
and no file of logins.
"""

import asyncio
import socket
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import httpcore

from contracts.hooks.receivers import Network, require_allowed, require_plain_allowed


class AddressRefused(httpcore.ConnectError):
    """A receiver at an address that hooks may not ask."""


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Opens connections to public addresses, and to those of the networks that are allowed.

    Without TLS (`is_plain`), only the latter.
    """

    def __init__(self, allowed: Sequence[Network], *, is_plain: bool) -> None:
        self._allowed, self._is_plain = allowed, is_plain
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that takes the connection. Raises AddressRefused, ConnectError."""
        addresses = await self._resolve(host, port)
        try:
            require_allowed(addresses, self._allowed)
            if self._is_plain:
                require_plain_allowed(addresses, self._allowed)
        except ValueError as error:
            raise AddressRefused(f"{host} {error}") from None
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise httpcore.ConnectError(f"no connection to {host}, port {port}") from failure

    async def _resolve(self, host: str, port: int) -> list[str]:
        """All addresses of a name, each once. Raises ConnectError if it has none."""
        try:
            found = await asyncio.wrap_future(_look_up(host, port))
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name {host} has no address ({error})") from None
        return list(dict.fromkeys(found))


def _look_up(host: str, port: int) -> "Future[list[str]]":
    """The addresses of a name, looked up in a thread of its own: a server of names may be slow, and nothing stops it.

    So a caller that gives up leaves the thread behind, and neither another lookup nor the end of the process waits.
    """
    future: Future[list[str]] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 whatever it is, the caller gets it
            future.set_exception(error)
        else:
            future.set_result([str(address[0]) for _, _, _, _, address in found])

    threading.Thread(target=work, name="hook-lookup", daemon=True).start()
    return future
