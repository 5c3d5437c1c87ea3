"""Wires the service: settings in, a FastAPI app out."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import structlog
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.admin.cycles import cycles_router
from service.admin.erasures import erasures_router
from service.admin.health import health_router
from service.admin.releases import releases_router
from service.admin.tasks import tasks_router
from service.dashboard.pages import pages_router
from service.database import Store
from service.ingest.endpoint import events_router
from service.ingest.fast_path import ShortIngest
from service.ingest.group_commit import Writer
from service.ingest.schema_versions import find_schemas
from service.metrics import CountRequests, Metrics
from service.models.follower import Follower
from service.models.registry import make_client
from service.openapi.document import describe
from service.predict.endpoint import Predict, send_answer
from service.predict.fast_path import ShortPredict, Then
from service.server.gauges import StateGauges
from service.server.worker_heartbeats import WorkerHeartbeats
from service.settings import ServiceSettings
from service.web.api_keys import ApiKeys
from service.web.auth import Authenticate
from service.web.error_responses import handle_problems
from service.web.html import StaticPages
from store.database import make_engine

VERSION = "0.1.0"
DESCRIPTION = (
    "Labelled events in, time-conditioned answers out. Every answer names its version and until when that version "
    "is valid; a moment outside the validated horizon is refused. Errors are problem documents (RFC 9457)."
)

log = structlog.get_logger(__name__)


class App(FastAPI):
    """FastAPI's, with the short ways in front of it."""

    short_predict: ShortPredict | None = None
    short_ingest: ShortIngest | None = None

    def take(self, scope: Scope, then: Then) -> None:
        """Give `then` the body of a 200 in JSON, or None for a request that is to be judged; it is called once.

        `service.server.connection` asks so before all else, and saves a task for each request.
        """
        if self.short_predict is None:
            then(None)
        else:
            self.short_predict.take(scope, then)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.take(scope, lambda body: None if taken.done() else taken.set_result(body))
        body = await taken
        if body is None:
            await self.judge(scope, receive, send)
        else:
            await send_answer(send, body)

    async def judge(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The way of every request that `take` has not answered. HEAD is GET, whose body the server leaves out."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        rest = receive if self.short_ingest is None else await self.short_ingest.take(scope, receive, send)
        if rest is not None:
            await super().__call__(scope, rest, send)


def make_app(settings: ServiceSettings, workers: Path | None = None, stop: Callable[[], None] = lambda: None) -> App:
    """The app of one process, or of one of several workers: they meet in the folder `workers`, and `stop` stops one.

    Raises ValueError where `settings.database_url` is not set.
    """
    if settings.database_url is None:
        raise ValueError("The service needs a database: set MORROW_DATABASE_URL.")
    metrics = Metrics(workers)
    store = Store(
        make_engine(settings.database_url, pool_size=settings.pool_size),
        places=settings.pool_size,
        seconds=settings.database_seconds,
        queue_size=settings.queue_size,
    )
    follower = Follower(settings, store, metrics)
    heartbeats = WorkerHeartbeats(settings, follower, metrics, folder=workers, stop=stop)
    api_keys = ApiKeys(
        store, settings.home, settings.poll_seconds, share=1.0 if workers is None else 1 / settings.workers
    )
    registry = make_client(settings.mlflow_url) if settings.mlflow_url else None
    metrics.registry.register(StateGauges(follower, heartbeats))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(follower.restore)
        await anyio.to_thread.run_sync(api_keys.restore)
        async with anyio.create_task_group() as group:
            group.start_soon(follower.run)
            group.start_soon(api_keys.run)
            group.start_soon(heartbeats.run)
            # What is there now stays, but for one object in a hundred: the collector need not walk it, neither now nor
            # while requests make thousands of objects.
            gc.freeze()
            gc.enable()
            log.info("service.started", models=len(follower.forecasters))
            yield
            follower.stop()
            group.cancel_scope.cancel()
        follower.close()
        if registry is not None:
            registry.close()
        store.close()
        log.info("service.stopped")

    app = App(
        title="Morrow", version=VERSION, description=DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.add_middleware(Authenticate, api_keys=api_keys, settings=settings)
    app.add_middleware(CountRequests, metrics=metrics)
    # uvicorn would put this in front of the short ways, which do not ask where a request came through.
    app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1"))
    handle_problems(app, metrics)
    predict = Predict(follower, settings)
    app.router.routes.insert(0, predict.route())
    writer = Writer(store, settings.queue_size, lambda connection, task: find_schemas(connection, follower, task))
    app.include_router(events_router(store, follower, writer, settings, metrics))
    app.include_router(tasks_router(store, follower, heartbeats, settings))
    app.include_router(cycles_router(store, settings))
    app.include_router(releases_router(store, registry, settings))
    app.include_router(erasures_router(store, settings))
    app.include_router(health_router(follower, metrics))
    app.include_router(pages_router(store, follower, settings, metrics))
    app.mount("/static", StaticPages())
    describe(app)
    app.short_predict = ShortPredict(predict, api_keys, metrics, settings)
    app.short_ingest = ShortIngest(writer, api_keys, metrics, settings)
    return app
