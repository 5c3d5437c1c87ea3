"""`Client` and `AsyncClient`: the same operations, carried out by httpx with and without waiting in place."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from datetime import tzinfo
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from morrow import operations
from morrow.exchanges import Exchange, Pause, Reply, Request
from morrow.operations import Settings

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_SECONDS = 30.0
TIMEOUT_SECONDS = 60.0


def _headers(key: str | None) -> dict[str, str]:
    key = os.environ.get("MORROW_KEY") if key is None else key
    if key and not (key.isascii() and key.isprintable()):
        raise ValueError("the key holds a character that no key has: copy it again")
    return {"authorization": f"Bearer {key}"} if key else {}


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
) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    @wraps(operation)
    def method(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return client._carry_out(operation(client.settings, *args, **kwargs))

    return method


class Client:
    """Calls the API at `url`, with a pool of connections that are kept open; safe to share between threads.

    `key` is MORROW_KEY's if left out. What can succeed later is tried again for `patience` seconds, as `Retry-After`
    says; what cannot is never repeated. `timezone` is that of moments that have none; without it they are refused.
    `transport` replaces the network in tests. Close the client, or use it as a context manager.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience: float = PATIENCE_SECONDS,
        timezone: tzinfo | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.settings = Settings(patience, timezone)
        self._http = httpx.Client(base_url=url, headers=_headers(key), timeout=TIMEOUT_SECONDS, transport=transport)

    predict = _blocking(operations.predict)
    predict_many = _blocking(operations.predict_many)
    predict_frame = _blocking(operations.predict_frame)
    upload = _blocking(operations.upload)
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

    def _send(self, request: Request) -> httpx.Response | httpx.TransportError:
        try:
            return self._http.send(_build(self._http, request))
        except httpx.TransportError as error:
            return error


class AsyncClient:
    """`Client` for asyncio: the same methods, to be awaited."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience: float = PATIENCE_SECONDS,
        timezone: tzinfo | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings = Settings(patience, timezone)
        self._http = httpx.AsyncClient(
            base_url=url, headers=_headers(key), timeout=TIMEOUT_SECONDS, transport=transport
        )

    predict = _awaited(operations.predict)
    predict_many = _awaited(operations.predict_many)
    predict_frame = _awaited(operations.predict_frame)
    upload = _awaited(operations.upload)
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

    async def _send(self, request: Request) -> httpx.Response | httpx.TransportError:
        try:
            return await self._http.send(_build(self._http, request))
        except httpx.TransportError as error:
            return error
