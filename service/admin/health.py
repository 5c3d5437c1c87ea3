"""Health for machines: alive, ready, and Prometheus metrics."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from service.admin import answers
from service.metrics import Metrics
from service.models.follower import Follower
from service.web.json_answers import answer_json


def health_router(follower: Follower, metrics: Metrics) -> APIRouter:
    """The routes /livez, /readyz and /metrics."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Alive", response_description="It is alive")
    async def get_livez() -> Response:
        """200 while the event loop turns; says nothing of stores or models."""
        return answer_json(answers.Liveness())

    @router.get("/readyz", summary="Ready", response_description="ready", responses={503: {"description": "not ready"}})
    async def get_readyz() -> Response:
        """200 where every task with a champion has a version that answers here, and where there is a model or, as on
        a fresh deployment, the database answers, so that events can be taken. Stores that are down do not matter to a
        process that has models: /predict goes on."""
        is_ready, forecasters = follower.is_ready, follower.forecasters
        readiness = answers.Readiness(
            "ok" if is_ready else "not ready",
            "ok" if follower.database_answers else "unavailable",
            {
                task: answers.TaskReadiness(forecasters[task].version if task in forecasters else None, registry.state)
                for task, registry in sorted(follower.registries.items())
            },
        )
        return answer_json(readiness, 200 if is_ready else 503)

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"description": "In the text format", "content": {"text/plain": {}}}},
    )
    async def get_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
