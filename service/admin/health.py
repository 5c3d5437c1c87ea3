"""Health for machines: alive, ready, and Prometheus metrics."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from service.metrics import Metrics
from service.models.follower import Follower


def health_router(follower: Follower, metrics: Metrics) -> APIRouter:
    """The routes /livez, /readyz and /metrics."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Alive", response_description="It is alive")
    async def get_livez() -> JSONResponse:
        """200 while the event loop turns; says nothing of stores or models."""
        return JSONResponse({"status": "ok"})

    @router.get("/readyz", summary="Ready", response_description="ready", responses={503: {"description": "not ready"}})
    async def get_readyz() -> JSONResponse:
        """200 where every task with a champion has a version that answers here, and where there is a model or, as on
        a fresh deployment, the database answers, so that events can be taken. Stores that are down do not matter to a
        process that has models: /predict goes on."""
        document = {
            "status": "ok" if follower.is_ready else "not ready",
            "database": "ok" if follower.database_answers else "unavailable",
            "tasks": {
                task: {
                    "version": follower.forecasters[task].version if task in follower.forecasters else None,
                    "registry": registry.state,
                }
                for task, registry in sorted(follower.registries.items())
            },
        }
        return JSONResponse(document, 200 if follower.is_ready else 503)

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"description": "In the text format", "content": {"text/plain": {}}}},
    )
    async def get_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
