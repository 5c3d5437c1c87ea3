"""Wire the service: make a FastAPI app from the settings."""

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog
from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.admin.cycles import cycles_router
from service.admin.health import health_router
from service.admin.hooks import hooks_router
from service.admin.predictions import predictions_router
from service.admin.releases import releases_router
from service.admin.stored_events.erasures import erasures_router
from service.admin.stored_events.events import events_router
from service.admin.stored_events.imports import imports_router
from service.admin.stored_events.lineage import lineage_router
from service.admin.task_changes import task_changes_router
from service.admin.tasks import tasks_router
from service.dashboard.pages import pages_router
from service.database import Store
from service.gauges import StateGauges
from service.ingest.endpoint import EventsEndpoint
from service.ingest.group_commit import GroupCommit
from service.ingest.labels import PATH as LABELS
from service.ingest.labels import LabelsEndpoint
from service.ingest.quota import find_open_schemas
from service.metrics import METHODS, Metrics
from service.models.follower import Follower
from service.models.registry.client import make_client
from service.openapi.document import describe
from service.predict.answer_log import AnswerLog
from service.predict.endpoint import PredictEndpoint, Reply
from service.predict.log_writer import LogWriter
from service.protocols.endpoint import ProtocolEndpoint
from service.protocols.routes import protocols_router
from service.server.worker_heartbeats import WorkerHeartbeats
from service.settings import ServiceSettings
from service.web.access_log import AccessLog
from service.web.answered_requests import AnsweredRequests, NoteAnswers
from service.web.auth import AuthenticationMiddleware, Authenticator
from service.web.body_budget import BodyBudget
from service.web.error_responses import handle_errors
from service.web.html import StaticPages
from service.web.keys.api_keys import ApiKeys
from service.web.keys.task_access import require_task
from service.web.preconditions import RefusePreconditions
from service.web.raw_endpoint import RawEndpoint
from service.web.request_ids import RequestIds
from store.engine import make_engine

VERSION = "0.1.0"
DESCRIPTION = (
    "Labelled events in, time-conditioned answers out. Every answer names its version and the end of that version's "
    "validity; a moment outside the validated horizon is refused. Errors are problem documents (RFC 9457)."
)

log = structlog.get_logger(__name__)


class App(FastAPI):
    """FastAPI for most paths; /predict and /events are applications of their own (`service.web.raw_endpoint`)."""

    predict: PredictEndpoint
    events: RawEndpoint
    event: RawEndpoint
    protocols: ProtocolEndpoint
    labels: RawEndpoint
    answered: AnsweredRequests
    body_budget: BodyBudget
    request_ids: RequestIds

    def try_fast_path(self, scope: Scope, reply: Reply) -> None:
        """Call `reply` once, with the application that answers a request; a response is one too.

        `service.server.connection` calls this before it makes a task; a GET of /predict mostly needs none.
        """
        if scope["path"] == "/predict" and scope["method"] == "GET":
            self.predict.try_fast_path(scope, reply)
        else:
            reply(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if scope["method"] in ("GET", "HEAD"):  # HEAD is answered as GET; the server omits the body
            await self._route({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, receive, send)
            return
        with self.body_budget.lend(scope):
            await self._route(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "*" and scope["method"] == "OPTIONS":  # about the server, not about a path
            await Response(status_code=204, headers={"Allow": ", ".join(METHODS)})(scope, receive, send)
        elif path == "/predict":
            await self.predict(scope, receive, send)
        elif path == "/events":
            await self.events(scope, receive, send)
        elif path.startswith("/events/"):
            await self.event(scope, receive, send)
        elif self.protocols.find(path) is not None:
            await self.protocols(scope, receive, send)
        elif LABELS.fullmatch(path):
            await self.labels(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def make_app(settings: ServiceSettings, workers: Path | None = None, stop: Callable[[], None] = lambda: None) -> App:
    """The app of one process, or of one of several workers, which exchange heartbeats in the folder `workers`.

    `stop` asks this process to stop. Raises ValueError if `settings.database_url` is not set.
    """
    if settings.database_url is None:
        raise ValueError("The service needs a database: set MORROW_DATABASE_URL.")
    metrics = Metrics(workers)
    engine = make_engine(settings.database_url, pool_size=settings.pool_size)
    store = Store(
        engine,
        places=settings.pool_size,
        seconds=settings.database_seconds,
        queue_size=settings.queue_size,
    )
    follower = Follower(settings, store, metrics)
    heartbeats = WorkerHeartbeats(settings, follower, metrics, folder=workers, stop=stop)
    num_sharing = settings.replicas * (1 if workers is None else settings.workers)
    api_keys = ApiKeys(store, settings.home, settings.poll_seconds, share=1 / num_sharing)
    log_writer = LogWriter(engine, settings.home / "predictions", metrics) if settings.log_predictions else None
    registry = make_client(settings.mlflow_url) if settings.mlflow_url else None
    metrics.registry.register(StateGauges(follower, heartbeats))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(follower.restore)
        await anyio.to_thread.run_sync(api_keys.restore)
        if log_writer is not None:
            await anyio.to_thread.run_sync(log_writer.start)
        async with anyio.create_task_group() as group:
            group.start_soon(follower.run)
            group.start_soon(api_keys.run)
            group.start_soon(heartbeats.run)
            # All but one in a hundred of the present objects stay. So the collector need not walk them, now or while
            # requests make thousands of objects.
            gc.freeze()
            gc.enable()
            log.info("service.started", models=len(follower.forecasters))
            yield
            follower.stop()
            group.cancel_scope.cancel()
        follower.close()
        if log_writer is not None:
            await anyio.to_thread.run_sync(log_writer.close)
        if registry is not None:
            registry.close()
        store.close()
        log.info("service.stopped")

    app = App(
        title="Morrow", version=VERSION, description=DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.body_budget = BodyBudget(settings.body_budget_bytes)
    app.request_ids = RequestIds()
    authenticator = Authenticator(api_keys, settings, follower.task_id, partial(_require_task, store))
    app.answered = answered = AnsweredRequests(metrics, AccessLog(settings.access_log, lambda: follower.tasks))
    _add_middleware(app, authenticator, answered, settings)
    handle_errors(app, metrics)
    _add_ingest(app, store, follower, authenticator, settings=settings, metrics=metrics)
    app.predict = PredictEndpoint(follower, authenticator, answered, settings, AnswerLog(follower, log_writer))
    app.protocols = ProtocolEndpoint(app.predict, authenticator, answered, settings)
    app.router.routes.append(Route("/predict", app.predict, include_in_schema=False))  # so that /predict/ is redirected
    for router in (
        tasks_router(store, follower, heartbeats, settings),
        cycles_router(store, settings),
        releases_router(store, registry, settings),
        erasures_router(store, settings),
        events_router(store),
        imports_router(store, settings),
        lineage_router(store),
        task_changes_router(store, registry, settings),
        predictions_router(store),
        hooks_router(store, settings),
        health_router(follower, metrics),
        protocols_router(follower, VERSION),
        pages_router(store, follower, settings, metrics),
    ):
        app.include_router(router)
    app.mount("/static", StaticPages())
    describe(app)
    return app


def _add_ingest(
    app: App,
    store: Store,
    follower: Follower,
    authenticator: Authenticator,
    *,
    settings: ServiceSettings,
    metrics: Metrics,
) -> None:
    """The paths that store events and labels."""
    group_commit = GroupCommit(store, settings.queue_size, partial(find_open_schemas, follower, settings.rows_per_task))
    events = EventsEndpoint(store, follower, group_commit, settings, metrics)
    labels = LabelsEndpoint(store, follower, settings, metrics)
    answered = app.answered
    app.events = RawEndpoint("/events", {"POST": events.post}, authenticator, answered)
    app.event = RawEndpoint("/events/{event_id}", {"GET": events.get, "PUT": events.put}, authenticator, answered)
    app.labels = RawEndpoint("/tasks/{task}/labels", {"POST": labels.post}, authenticator, answered)


async def _require_task(store: Store, name: str, allowed: frozenset[int]) -> None:
    await store.run(lambda connection: require_task(connection, name, allowed))


def _add_middleware(
    app: App, authenticator: Authenticator, answered: AnsweredRequests, settings: ServiceSettings
) -> None:
    """What stands in front of the framework's routes, the innermost first."""
    app.add_middleware(RefusePreconditions)
    app.add_middleware(AuthenticationMiddleware, authenticator=authenticator, settings=settings)
    app.add_middleware(NoteAnswers, answered=answered)
    # uvicorn would also put this in front of the hot paths, which do not use the client's address.
    app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=settings.trusted_proxies)
