"""Health for machines: liveness, readiness and Prometheus metrics."""

from collections.abc import Collection, Mapping

import anyio
import anyio.to_thread
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from service.admin import answers
from service.metrics import CurrentTasks, Metrics
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.models.replaced_mappings import Derived
from service.models.task_states.task_state import RegistryState
from service.web.keys.task_access import tasks_of


def health_router(follower: Follower, metrics: Metrics) -> APIRouter:
    """The routes /livez, /readyz and /metrics."""
    router = APIRouter(tags=["health"])
    shown = CollectorRegistry()
    # The text of thousands of tasks takes a tenth of a second, in which the event loop answers questions.
    one_at_a_time = anyio.CapacityLimiter(1)
    shown.register(CurrentTasks(metrics.registry, lambda: follower.tasks))
    readiness_of_tasks = Derived(_describe_tasks)

    def of_tasks(task_ids: Collection[int]) -> CollectorRegistry:
        """What a key for these tasks may see."""
        own = CollectorRegistry()
        own.register(
            CurrentTasks(
                metrics.registry,
                lambda: [one for one in follower.tasks if follower.task_id(one) in task_ids],
                with_hooks=False,
            )
        )
        return own

    @router.get("/livez", summary="Alive", response_description="The process is alive")
    async def get_livez() -> Response:
        """200 while the event loop turns; stores and models do not matter."""
        return answers.respond(answers.Liveness())

    @router.get("/readyz", summary="Ready", response_description="ready", responses={503: {"description": "not ready"}})
    async def get_readyz() -> Response:
        """200 if every task with a champion has a version that answers here, and if there is a model. On a fresh
        deployment without models, the database must answer instead, so that events can be stored. A process that has
        models stays ready while stores are down: /predict goes on."""
        is_ready = follower.is_ready
        readiness = answers.Readiness(
            "ok" if is_ready else "not ready",
            "ok" if follower.database_answers else "unavailable",
            readiness_of_tasks.of(follower.registries, follower.forecasters),
        )
        return answers.respond(readiness, 200 if is_ready else 503)

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"description": "In Prometheus' text format", "content": {"text/plain": {}}}},
    )
    async def get_metrics(request: Request) -> Response:
        allowed = tasks_of(request.scope)
        registry = shown if allowed is None else of_tasks(allowed)
        text = await anyio.to_thread.run_sync(generate_latest, registry, limiter=one_at_a_time)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return router


def _describe_tasks(
    registries: Mapping[str, RegistryState], forecasters: Mapping[str, Forecaster]
) -> dict[str, answers.TaskReadiness]:
    return {
        task: answers.TaskReadiness(forecasters[task].version if task in forecasters else None, registry.state)
        for task, registry in sorted(registries.items())
    }
