"""The routes of cycles: request one, and list them."""

from datetime import UTC, datetime

from fastapi import APIRouter, Depends
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import format_moment, to_micros
from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from contracts.verdict import to_json
from service.admin import answers
from service.database import Store
from service.settings import ServiceSettings
from service.validation.values import is_in_calendar, json_moment
from service.web.bodies import read_body
from service.web.fields import read_fields
from service.web.parameters import TaskInPath, takes_only
from store.catalog import find_task
from store.cycles import Cycle, list_cycles, request_cycle


def cycles_router(store: Store, settings: ServiceSettings) -> APIRouter:
    """The routes below /tasks/{task}/cycles."""
    router = APIRouter(tags=["tasks"], dependencies=[Depends(takes_only())])

    @router.post(
        "/tasks/{task}/cycles",
        summary="Retrain now",
        status_code=202,
        response_description="The cycle, which waits for the trainer",
    )
    async def post_cycle(name: TaskInPath, request: Request) -> Response:
        """Request a retraining as of the newest window boundary, or of the boundary at or before `as_of`."""
        now = datetime.now(UTC)
        as_of = parse_as_of(await read_body(request, settings), to_micros(now))

        def ask(connection: Connection) -> Cycle:
            schema = find_task(connection, name)
            cutoff = schema.task.clock.window_start(as_of)
            if not is_in_calendar(cutoff):
                raise InvalidInput([Fault("as_of", "lies in a window that begins before the year 1")])
            return request_cycle(connection, schema.task_id, cutoff, now)

        return answers.respond(describe_cycle(await store.run(ask)), 202)

    @router.get("/tasks/{task}/cycles", summary="History of retrainings", response_description="The cycles")
    async def get_cycles(name: TaskInPath) -> Response:
        """Newest cutoff and attempt first; at most 1000."""
        cycles = await store.run(lambda connection: list_cycles(connection, find_task(connection, name).task_id))
        return answers.respond(answers.Cycles([describe_cycle(cycle) for cycle in cycles]))

    return router


def parse_as_of(body: bytes, now: int) -> int:
    """`as_of` of a body `{"as_of": moment}`, which may be empty; microseconds. Raises InvalidInput."""
    as_of: int = read_fields(body, {"as_of": json_moment}).get("as_of", now)
    if as_of > now:
        raise InvalidInput([Fault("as_of", "lies in the future")])
    return as_of


def next_cycle(task: Task, now: int) -> str | None:
    """The next window boundary; None if cycles run on request only."""
    if task.schedule == "manual":
        return None
    boundary = task.clock.window_start(now) + task.clock.window
    return format_moment(boundary) if is_in_calendar(boundary) else None


def describe_cycle(cycle: Cycle) -> answers.Cycle:
    """A cycle as the API shows it, without its lease."""
    actor = cycle.override_actor
    return answers.Cycle(
        id=cycle.cycle_id,
        cutoff=format_moment(cycle.cutoff),
        attempt=cycle.attempt,
        state=cycle.state,
        step=cycle.step,
        version=cycle.version,
        num_rows=cycle.num_rows,
        reason=cycle.reason,
        verdict=None if cycle.verdict is None else to_json(cycle.verdict),
        override=None if actor is None else answers.Override(actor, cycle.override_reason),
        run_id=cycle.run_id,
        requested_at=_moment(cycle.requested_at),
        started_at=_moment(cycle.started_at),
        ended_at=_moment(cycle.ended_at),
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(to_micros(moment))
