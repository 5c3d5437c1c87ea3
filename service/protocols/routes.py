"""The paths of the Open Inference Protocol that only look, and the health checks of MLflow's scoring client."""

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from contracts.errors import NotReady
from service.admin.answers import respond
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.protocols.endpoint import require_version
from service.protocols.open_inference import describe_version


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the server lives, or it or a version is ready."""

    live: bool | msgspec.UnsetType = msgspec.UNSET
    ready: bool | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET


class Server(msgspec.Struct, frozen=True):
    """The server's metadata."""

    name: str
    version: str
    extensions: list[str]


def protocols_router(follower: Follower, version: str) -> APIRouter:
    """The routes. The protocols describe them themselves, so they are not in the OpenAPI document."""
    router = APIRouter(include_in_schema=False)

    @router.get("/v2")
    async def get_server() -> Response:
        return respond(Server("morrow", version, []))

    @router.get("/v2/health/live")
    async def get_live() -> Response:
        return respond(Health(live=True))

    @router.get("/v2/health/ready")
    async def get_ready() -> Response:
        is_ready = follower.is_ready
        return respond(Health(ready=is_ready), 200 if is_ready else 503)

    @router.get("/v2/models/{task}")
    @router.get("/v2/models/{task}/versions/{version}")
    async def get_model(task: str, version: str | None = None) -> Response:
        return respond(describe_version(_find(follower, task, version)))

    @router.get("/v2/models/{task}/ready")
    @router.get("/v2/models/{task}/versions/{version}/ready")
    async def get_model_ready(task: str, version: str | None = None) -> Response:
        return respond(Health(name=_find(follower, task, version).task.name, ready=True))

    @router.get("/tasks/{task}/ping")
    async def ping(task: str) -> Response:
        _find(follower, task, None)
        return Response("\n", media_type="application/json")

    @router.get("/ping")
    async def ping_any() -> Response:
        if not follower.is_ready:
            raise NotReady
        return Response("\n", media_type="application/json")

    return router


def _find(follower: Follower, task: str, version: str | None) -> Forecaster:
    """The version that answers for a task. Raises as `Follower.find`, and NotFound if it is not the one asked for."""
    found: Any = follower.forecasters.get(task) or follower.find(task)
    require_version(found.version, version)
    assert isinstance(found, Forecaster)
    return found
