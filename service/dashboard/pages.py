"""The pages for people.

`/`              every task in one row, the worst first
`/pages/{task}`  one task: its health, pictures, a form to ask it, and buttons to steer it
`/docs`          the operations of the API
`/problems/…`    the meaning of a type of problem

Words and tables say everything. Scripts add pictures, renew parts of a page and send its forms, through the same API
that programs use.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse

from contracts.clock import to_micros
from contracts.errors import NotFound, Unavailable
from contracts.runtime.addresses import split_credentials
from service.advice.row_states import RowState
from service.dashboard.list_page import PAGE_SIZE, Followed, Wanted, find_list_page, read_list_page
from service.dashboard.queries import (
    Filling,
    count_requests,
    read_board,
    read_filling,
    read_intake,
)
from service.dashboard.reference_pages import add_reference_pages
from service.dashboard.task_page import describe_health, describe_history, describe_listed, find_known
from service.dashboard.task_rows import order_rows
from service.database import Store
from service.metrics import Metrics
from service.models.follower import Follower
from service.settings import ServiceSettings
from service.web.html import answer_page
from service.web.keys.task_access import tasks_of
from service.web.parameters import TaskInPath, read_moment, takes_only


def pages_router(store: Store, follower: Follower, settings: ServiceSettings, metrics: Metrics) -> APIRouter:
    """The HTML routes."""
    router = APIRouter(include_in_schema=False)
    plain = [Depends(takes_only())]
    cycle_limit = timedelta(seconds=settings.cycle_limit_seconds)
    links: dict[str, Any] = {"mlflow": find_mlflow_link(settings)}

    @router.get("/", dependencies=[Depends(takes_only("name", "state", "page", "archived"))])
    async def get_dashboard(
        request: Request,
        *,
        name: str = "",
        state: Annotated[RowState | None, Query()] = None,
        page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
        archived: bool = False,
    ) -> HTMLResponse:
        now, followed, wanted = (
            datetime.now(UTC),
            Followed.of(follower, tasks_of(request.scope)),
            Wanted(name, state, page, with_archived=archived),
        )
        database, requests = None, count_requests(metrics)
        try:
            listed = await store.run(
                lambda connection: read_list_page(connection, followed, wanted, now=now, cycle_limit=cycle_limit)
            )
        except Unavailable as error:
            database, requests = str(error), []
            listed = find_list_page(followed, wanted, now=now, cycle_limit=cycle_limit)
        rows = [
            describe_listed(find_known(follower, entry.name, found, now=now, cycle_limit=cycle_limit), found)
            for entry in listed.entries
            for found in [listed.overviews.get(entry.name)]
        ]
        return answer_page(
            "tasks.html",
            request.url.path,
            **links,
            now=to_micros(now),
            wanted=wanted,
            listed=listed,
            page_size=PAGE_SIZE,
            rows=order_rows(rows),
            database=database,
            requests=requests,
        )

    async def describe_board(name: str, before: int | None = None) -> dict[str, Any]:
        """The content of a task's page, and of the part of it that is renewed. Raises NotFound.

        The matrix shows windows that start before a moment, if one is given.
        """
        now, forecaster = datetime.now(UTC), follower.forecasters.get(name)
        try:
            board = await store.run(lambda connection: read_board(connection, name, forecaster, now, before))
            database = None
        except Unavailable as error:
            if name not in follower.tasks:
                raise
            board, database = None, str(error)
        health = describe_health(find_known(follower, name, board, now=now, cycle_limit=cycle_limit), board)
        return {**links, **health, **describe_history(board, forecaster, now, before), "database": database}

    async def find_filling(name: str) -> Filling | None:
        """What the form for a prediction is filled with."""
        forecaster = follower.forecasters.get(name)
        if forecaster is None:
            return None
        asked = forecaster.task
        with suppress(Unavailable, NotFound):
            return await store.run(lambda connection: read_filling(connection, name, asked))
        return None

    @router.get("/pages/{task}", dependencies=[Depends(takes_only("matrix"))])
    async def get_task_page(name: TaskInPath, request: Request, matrix: str | None = None) -> HTMLResponse:
        shown = await describe_board(name, None if matrix is None else read_moment(matrix, "matrix"))
        filling = await find_filling(name)
        return answer_page("task.html", request.url.path, **shown, filling=filling, most_rows=settings.max_rows)

    @router.get("/pages/{task}/state", dependencies=plain)
    async def get_state(name: TaskInPath) -> HTMLResponse:
        return answer_page("state.html", "/pages/" + name, **await describe_board(name))

    @router.get("/pages/{task}/events", dependencies=plain)
    async def get_events(name: TaskInPath) -> HTMLResponse:
        intake = None
        with suppress(Unavailable):
            intake = await store.run(lambda connection: read_intake(connection, name, datetime.now(UTC)))
        return answer_page("events.html", "/pages/" + name, intake=intake, now=to_micros(datetime.now(UTC)))

    add_reference_pages(router, links)
    return router


def find_mlflow_link(settings: ServiceSettings) -> str | None:
    """The address of MLflow for browsers, without user and password; None if no registry is configured."""
    address = settings.mlflow_link or settings.mlflow_url
    return None if address is None else split_credentials(address.rstrip("/"))[0]
