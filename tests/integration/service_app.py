"""The service's app in this process, with its lifespan, behind an httpx client; and a small task to speak of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from service.app import App, make_app
from service.settings import ServiceSettings

TASK: dict[str, Any] = {
    "features": [
        {"name": "distance", "kind": "number"},
        {"name": "carrier", "kind": "category"},
        {"name": "wind", "kind": "number", "optional": True},
    ],
    "target": {"name": "outcome", "kind": "classification", "classes": ["late", "on_time"]},
    "window": "P7D",
    "label_delay": "PT6H",
    "schedule": "manual",
}
# Where nothing answers.
DEAD_DATABASE = "postgresql+psycopg://nobody@127.0.0.1:9/morrow"
DEAD_REGISTRY = "http://127.0.0.1:9"


def an_event(event_id: str = "e1", **changes: Any) -> dict[str, Any]:
    """An event of that task; changes replace fields, `None` values included."""
    event = {
        "event_id": event_id,
        "at": "2026-01-05T12:00:00+01:00",
        "features": {"distance": 1400, "carrier": "UA", "wind": 3.5},
        "label": "on_time",
    }
    return event | changes


def service_settings(database_url: str, home: Path, **changes: Any) -> ServiceSettings:
    """Settings of a service that looks often and waits briefly."""
    given: dict[str, Any] = {"database_url": database_url, "home": home, "poll_seconds": 0.1}
    return ServiceSettings(**(given | changes))


def post_scope(path: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    """A POST as a server hands it to the app, for tests of how its body is read."""
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
        "http_version": "1.1",
        "scheme": "http",
        "server": ("morrow", 80),
        "client": ("127.0.0.1", 1),
    }


@asynccontextmanager
async def serving(settings: ServiceSettings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the running app."""
    async with running(make_app(settings)) as client:
        yield client


@asynccontextmanager
async def running(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """A client of this app while it runs."""
    transport = httpx.ASGITransport(as_served(app), raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://morrow") as client,
    ):
        yield client


def as_served(app: App) -> ASGIApp:
    """The app as `service.server.connection` asks it: by its fast path first."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        chosen: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
        app.try_fast_path(scope, lambda found: None if chosen.done() else chosen.set_result(found))
        await (await chosen)(scope, receive, send)

    return serve
