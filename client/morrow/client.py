"""`Client` and `AsyncClient`: the same operations, carried out by httpx with and without waiting in place."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from datetime import tzinfo
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from morrow import operations
from morrow.exchanges import Exchange, Pause, Reply, Request
from morrow.operations import Settings

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_SECONDS = 30.0
TIMEOUT_SECONDS = 60.0


def _headers(key: str | None) -> dict[str, str]:
    key = (os.environ.get("MORROW_KEY", "") if key is None else key).strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("the key holds a character that no key has: copy it again")
    return {"authorization": f"Bearer {key}"} if key else {}


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is no address: {error}") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError(f"{url!r} is no address: give one such as http://127.0.0.1:8000")
    return address


def _build(client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    return client.build_request(
        request.method, request.path, params=request.params, headers=request.headers, content=request.body
    )


def _blocking(
    operation: Callable[Concatenate[Settings, P], Exchange[T]],
) -> Callable[Concatenate["Client", P], T]:
    @wraps(operation)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._carry_out(operation(client.settings, *args, **kwargs))

    return method


def _awaited(
    operation: Callable[Concatenate[Settings, P], Exchange[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    def method(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return client._carry_out(operation(client.settings, *args, **kwargs))

    return method


class Client:
    """Calls the API at `url`, with a pool of connections that are kept open.

    `key` is MORROW_KEY's if left out. What can succeed later is tried again for `patience` seconds, as `Retry-After`
    says; what cannot is never repeated. One request waits at most `timeout` seconds for bytes. `timezone` is that of
    moments that have none; without it they are refused. `transport` replaces the network in tests. Close the client, or
    use it as a context manager. Threads may share it; a process that is forked opens connections of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience: float = PATIENCE_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
        timezone: tzinfo | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.settings = Settings(patience, timezone)
        self._open = partial(
            httpx.Client, base_url=_address(url), headers=_headers(key), timeout=timeout, transport=transport
        )
        self._http, self._process = self._open(), os.getpid()

    predict = _blocking(operations.predict)
    predict_many = _blocking(operations.predict_many)
    predict_frame = _blocking(operations.predict_frame)
    upload = _blocking(operations.upload)
    labels = _blocking(operations.store_labels)
    event = _blocking(operations.find_event)
    correct = _blocking(operations.correct)
    task = _blocking(operations.find_task)
    tasks = _blocking(operations.list_tasks)
    is_ready = _blocking(operations.is_ready)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _carry_out(self, exchange: Exchange[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = exchange.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                reply = None
            else:
                reply = self._send(step)

    def _send(self, request: Request) -> httpx.Response | httpx.RequestError:
        if self._process != os.getpid():  # forked: two processes on one connection would read each other's answers
            self._http, self._process = self._open(), os.getpid()
        try:
            return self._http.send(_build(self._http, request))
        except httpx.RequestError as error:
            return error


class AsyncClient:
    """`Client` for asyncio: the same methods, to be awaited in the event loop that first used it."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience: float = PATIENCE_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
        timezone: tzinfo | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings = Settings(patience, timezone)
        self._http = httpx.AsyncClient(
            base_url=_address(url), headers=_headers(key), timeout=timeout, transport=transport
        )

    predict = _awaited(operations.predict)
    predict_many = _awaited(operations.predict_many)
    predict_frame = _awaited(operations.predict_frame)
    upload = _awaited(operations.upload)
    labels = _awaited(operations.store_labels)
    event = _awaited(operations.find_event)
    correct = _awaited(operations.correct)
    task = _awaited(operations.find_task)
    tasks = _awaited(operations.list_tasks)
    is_ready = _awaited(operations.is_ready)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _carry_out(self, exchange: Exchange[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = exchange.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                reply = None
            else:
                reply = await self._send(step)

    async def _send(self, request: Request) -> httpx.Response | httpx.RequestError:
        try:
            return await self._http.send(_build(self._http, request))
        except httpx.RequestError as error:
            return error
