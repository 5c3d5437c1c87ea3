"""The pages for people.

`/`              every task and its state
`/pages/{task}`  one task: its state, pictures, a form to ask it, and buttons to steer it
`/docs`          the operations of the API
`/problems/…`    the meaning of a type of problem

Words and tables say everything. Scripts add pictures, renew parts of a page and send its forms, through the same API
that programs use.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from fastapi import APIRouter, Depends
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from contracts.clock import to_micros
from contracts.errors import NotFound, Unavailable
from contracts.task import Task
from service.admin.cycles import describe_cycle
from service.admin.releases import describe_release
from service.admin.status import describe_champion, describe_live_errors
from service.dashboard.heatmap import tabulate
from service.dashboard.queries import Board, Overview, count_requests, read_board, read_intake, read_overviews
from service.dashboard.summary import summarize
from service.dashboard.timeline import Span, draw_timeline, list_spans
from service.database import Store
from service.metrics import Metrics
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.models.task_state import RegistryState, TaskState, state_of
from service.settings import ServiceSettings
from service.web.html import answer_page
from service.web.parameters import TaskInPath, takes_only
from service.web.problems import HTTP_KINDS, KINDS
from store.cycles import Cycle, find_gate


def pages_router(store: Store, follower: Follower, settings: ServiceSettings, metrics: Metrics) -> APIRouter:
    """The HTML routes."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(takes_only())])
    cycle_limit = timedelta(seconds=settings.cycle_limit_seconds)

    @router.get("/")
    async def get_dashboard(request: Request) -> HTMLResponse:
        now, forecasters = datetime.now(UTC), follower.forecasters
        try:
            overviews = await store.run(lambda connection: read_overviews(connection, forecasters, now))
        except Unavailable as error:
            shown = [_describe(follower, name, None, now, cycle_limit) for name in follower.tasks]
            return answer_page("tasks.html", request.url.path, tasks=shown, database=str(error), requests=[])
        shown = [_describe(follower, each.schema.task.name, each, now, cycle_limit) for each in overviews]
        counts = count_requests(metrics)
        return answer_page("tasks.html", request.url.path, tasks=shown, database=None, requests=counts)

    async def describe_board(name: str) -> dict[str, Any]:
        """The content of a task's page, and of the part of it that is renewed. Raises NotFound."""
        now, forecaster = datetime.now(UTC), follower.forecasters.get(name)
        try:
            board = await store.run(lambda connection: read_board(connection, name, forecaster, now))
            database = None
        except Unavailable as error:
            if name not in follower.tasks:
                raise
            board, database = None, str(error)
        task = _describe(follower, name, board, now, cycle_limit)
        return {**task, **_describe_history(board, forecaster, now), "database": database}

    @router.get("/pages/{task}")
    async def get_task_page(name: TaskInPath, request: Request) -> HTMLResponse:
        try:
            shown = await describe_board(name)
        except NotFound as error:
            kind = KINDS[NotFound]
            return answer_page("problem.html", request.url.path, kind.status, kind=kind, text=str(error))
        return answer_page("task.html", request.url.path, **shown)

    @router.get("/pages/{task}/state")
    async def get_state(name: TaskInPath) -> HTMLResponse:
        return answer_page("state.html", "/pages/" + name, **await describe_board(name))

    @router.get("/pages/{task}/events")
    async def get_events(name: TaskInPath) -> HTMLResponse:
        intake = None
        with suppress(Unavailable):
            intake = await store.run(lambda connection: read_intake(connection, name, datetime.now(UTC)))
        return answer_page("events.html", "/pages/" + name, intake=intake)

    @router.get("/docs")
    async def get_docs(request: Request) -> HTMLResponse:
        return answer_page("docs.html", request.url.path, document=request.app.openapi())

    @router.get("/problems/{name}")
    async def get_problem(name: str, request: Request) -> HTMLResponse:
        for error, kind in KINDS.items():
            if kind.name == name:
                said = (error.__doc__ or "").strip()
                return answer_page("problem.html", request.url.path, kind=kind, text=said)
        for kind in HTTP_KINDS.values():
            if kind.name == name:
                return answer_page("problem.html", request.url.path, kind=kind, text="")
        raise HTTPException(404, "There is no such type of problem.")

    return router


def _describe(
    follower: Follower, name: str, found: Overview | None, now: datetime, cycle_limit: timedelta
) -> dict[str, Any]:
    """A task in words, with the version that answers.

    While no database answers, `found` is None, and the state of the follower's last poll counts.
    """
    forecaster, registry = follower.forecasters.get(name), follower.registries.get(name, RegistryState())
    task_state: TaskState | None = follower.task_states.get(name) if found is None else found.task_state
    task: Task | None = forecaster.task if forecaster else None
    has_events: bool | None = None
    if found is not None:
        task, has_events = found.schema.task, found.has_events
    return {
        "name": name,
        "task": task,
        "revision": None if found is None else found.schema.revision,
        "state": state_of(forecaster, task_state, to_micros(now)),
        "sentences": summarize(task, forecaster, task_state, registry, has_events, now=now, cycle_limit=cycle_limit),
        "champion": None if forecaster is None else describe_champion(forecaster),
        "override": None if task_state is None else task_state.override,
        "newest": None if found is None or found.newest is None else describe_cycle(found.newest),
    }


def _describe_history(board: Board | None, forecaster: Forecaster | None, now: datetime) -> dict[str, Any]:
    """Pictures and tables of one task; without a database, only the promises of the version itself."""
    spans = [] if board is None else list_spans(board.releases)
    if forecaster is not None and forecaster.version not in {span.version for span in spans}:
        spans.insert(0, _span(forecaster))
    task = forecaster.task if forecaster else board.schema.task if board else None
    champion = None if forecaster is None else forecaster.version
    realised = () if board is None else board.task_state.realised
    cycles = [] if board is None else [describe_cycle(cycle) for cycle in board.cycles]
    live_errors = [] if forecaster is None else describe_live_errors(forecaster, realised)
    return {
        "mark": _mark(board, forecaster),
        "timeline": None if task is None else draw_timeline(spans, champion, task.clock, to_micros(now)),
        "live_errors": live_errors,
        "points": msgspec.to_builtins(live_errors),
        "matrix": None
        if board is None or task is None
        else tabulate(board.marks, task.training.method, task.error_name, task.clock),
        "error_name": None if task is None else task.error_name,
        "cycles": cycles,
        "held": [] if board is None else [describe_cycle(cycle) for cycle in find_overrulable(board.cycles)],
        "releases": [] if board is None else [describe_release(row) for row in board.releases],
        "former": [span.version for span in spans if span.version != champion],
        "asked": None if forecaster is None else forecaster.task,
        "default_at": None if forecaster is None else min(to_micros(now), forecaster.valid_until),
    }


def find_overrulable(cycles: Sequence[Cycle]) -> list[Cycle]:
    """Cycles that an override may release: held, but not by a gate, and without a newer released cutoff."""
    released = [cycle.cutoff for cycle in cycles if cycle.state == "released"]
    return [
        cycle
        for cycle in cycles
        if cycle.state == "held" and find_gate(cycle) is None and all(cutoff <= cycle.cutoff for cutoff in released)
    ]


def _span(forecaster: Forecaster) -> Span:
    manifest = forecaster.manifest
    return Span(forecaster.version, manifest.cutoff, manifest.valid_until, forecaster.valid_until)


def _mark(board: Board | None, forecaster: Forecaster | None) -> str:
    """A digest that changes if pictures and tables would show something new."""
    seen: list[object] = [None if forecaster is None else (forecaster.version, forecaster.valid_until)]
    if board is not None:
        seen += [(cycle.cycle_id, cycle.state, cycle.step, cycle.override_reason) for cycle in board.cycles]
        seen += [board.releases[0].release_id if board.releases else None]
        seen += [(mark.origin, mark.window, mark.num_rows) for mark in board.marks]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
