"""The pages that people open: `/`, what answers now and how the last cycles ended; `/docs`, what may be asked; and
`/problems/…`, what a type of problem means.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from contracts.catalog import list_tasks
from contracts.clock import to_micros
from contracts.cycles import list_cycles
from contracts.errors import Unavailable
from contracts.task import Task
from service.cycles import describe_cycle, next_cycle
from service.follower import Follower
from service.problems import HTTP_KINDS, KINDS
from service.settings import ServiceSettings
from service.standing import state_of
from service.status import describe_live_errors, describe_model, warn, warn_of_version
from service.store import Store
from service.templates import render_dashboard, render_docs, render_problem

NUM_CYCLES_SHOWN = 5


def pages_router(store: Store, follower: Follower, settings: ServiceSettings) -> APIRouter:
    """The HTML routes."""
    router = APIRouter(include_in_schema=False)
    cycle_limit = timedelta(seconds=settings.cycle_limit_seconds)

    @router.get("/")
    async def get_dashboard() -> HTMLResponse:
        now = to_micros(datetime.now(UTC))
        try:
            tasks = await store.run(lambda connection: _read_tasks(connection, now))
            database = None
        except Unavailable as error:
            tasks = [{"name": name, "spec": None, "cycles": [], "next_cycle": None} for name in follower.tasks]
            database = str(error)
        shown = [{**task, **_describe(follower, task["name"], task["spec"], now, cycle_limit)} for task in tasks]
        return HTMLResponse(render_dashboard(tasks=shown, database=database))

    @router.get("/docs")
    async def get_docs(request: Request) -> HTMLResponse:
        return HTMLResponse(render_docs(request.app.openapi()))

    @router.get("/problems/{name}")
    async def get_problem(name: str) -> HTMLResponse:
        for error, kind in KINDS.items():
            if kind.name == name:
                return HTMLResponse(render_problem(kind=kind, text=(error.__doc__ or "").strip()))
        for kind in HTTP_KINDS.values():
            if kind.name == name:
                return HTMLResponse(render_problem(kind=kind, text=""))
        raise HTTPException(404, "There is no such type of problem.")

    return router


def _describe(follower: Follower, task: str, spec: Task | None, now: int, cycle_limit: timedelta) -> dict[str, Any]:
    """What answers and how it stands, as the follower saw it last; `spec` is None while no database answers."""
    forecaster, standing = follower.forecasters.get(task), follower.standings.get(task)
    known = (
        standing if forecaster is not None and standing is not None and standing.version == forecaster.version else None
    )
    defined = forecaster.task if spec is None and forecaster is not None else spec
    warnings = []
    if defined is not None:
        warnings += warn(defined, cycle_limit, forecaster.manifest.horizon if forecaster else None)
    if known is not None:
        warnings += warn_of_version(forecaster, known)
    closing, override = (standing.closing, standing.override) if standing is not None else (None, None)
    return {
        **describe_model(follower, task, forecaster),
        "state": state_of(forecaster, standing, now),
        "closed": None if closing is None else closing.reason,
        "better_method": None if standing is None else standing.better_method,
        "override": None if override is None else override.actor,
        "live_errors": [] if forecaster is None else describe_live_errors(forecaster, known.realised if known else ()),
        "warnings": warnings,
    }


def _read_tasks(connection: Connection, now: int) -> list[dict[str, Any]]:
    return [
        {
            "name": schema.task.name,
            "spec": schema.task,
            "revision": schema.revision,
            "next_cycle": next_cycle(schema.task, now),
            "cycles": [describe_cycle(cycle) for cycle in list_cycles(connection, schema.task_id, NUM_CYCLES_SHOWN)],
        }
        for schema in list_tasks(connection)
    ]
