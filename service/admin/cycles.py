"""The routes of cycles: request one, and list them."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fastapi import APIRouter, Depends
from msgspec.structs import asdict
from sqlalchemy import Connection, select
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import count_windows, format_moment, to_micros
from contracts.cutoffs import newest_cutoff, useful_cutoff
from contracts.errors import Fault, InvalidInput
from contracts.shown import say_count
from contracts.verdict import to_json
from service.admin import answers
from service.database import Store
from service.errors import QuotaUsed
from service.settings import ServiceSettings
from service.validation.values import is_in_calendar, json_moment
from service.web.bodies import read_body
from service.web.fields import json_flag, read_fields
from service.web.parameters import TaskInPath, takes_only
from store.cycles.ledger import Cycle, find_released_cutoff, list_readable_cycles, list_requested_since
from store.cycles.requests import let_follow, request_cycle
from store.database import cycles, is_readable, tasks
from store.errors import CutoffReleased
from store.events.arrivals import count_newcomers
from store.events.reading.counts import find_newest
from store.readable_rows import ReadRows
from store.tasks.catalog import Schema, find_task, is_revised_since

_DAY = timedelta(days=1)


def cycles_router(store: Store, settings: ServiceSettings) -> APIRouter:
    """The routes below /tasks/{task}/cycles."""
    router = APIRouter(tags=["tasks"], dependencies=[Depends(takes_only())])

    @router.post(
        "/tasks/{task}/cycles",
        summary="Retrain now",
        status_code=202,
        response_description="The cycle, which waits for the trainer",
        responses={409: {"description": "The cutoff has been released, or the task is paused or archived"}},
    )
    async def post_cycle(name: TaskInPath, request: Request) -> Response:
        """Request a retraining as of the newest window boundary, or of the boundary at or before `as_of`.

        If no event lies in the newest windows, the end of the newest window with events takes the place of the newest
        boundary, and `note` says so. A released cutoff is trained once more only with `again`, or if the recipe has
        changed since. If a cycle runs that began before the newest revision of the task, another attempt at its
        cutoff follows it (`followed`).
        """
        now = datetime.now(UTC)
        asked = parse_request(await read_body(request, settings), to_micros(now))
        most = settings.cycles_per_day
        cycle, note = await store.run(lambda connection: _request(connection, name, asked, now, most), [name])
        return answers.respond(answers.CycleRequested(**asdict(describe_cycle(cycle)), note=note), 202)

    @router.get("/tasks/{task}/cycles", summary="History of retrainings", response_description="The cycles")
    async def get_cycles(name: TaskInPath) -> Response:
        """Newest cutoff and attempt first; at most 1000."""
        found, running = await store.run(lambda connection: _list(connection, find_task(connection, name).task_id))
        shown = [describe_cycle(cycle) for cycle in found.rows]
        return answers.respond(answers.Cycles(shown, running, found.faults))

    return router


@dataclass(frozen=True)
class CycleRequest:
    """A request for a retraining: as of this moment (microseconds) or of the newest useful one, and released or not."""

    as_of: int | None
    again: bool


def parse_request(body: bytes, now: int) -> CycleRequest:
    """A body such as `{"as_of": moment, "again": true}`, which may be empty; microseconds. Raises InvalidInput."""
    given = read_fields(body, {"as_of": json_moment, "again": json_flag})
    as_of = given.get("as_of")
    if as_of is not None and as_of > now:
        raise InvalidInput([Fault("as_of", "lies in the future")])
    return CycleRequest(as_of, given.get("again", False))


def _request(
    connection: Connection, name: str, asked: CycleRequest, now: datetime, most: int | None
) -> tuple[Cycle, str | None]:
    """The requested cycle, and a note if its cutoff is not the newest boundary although no `as_of` is given.

    Raises QuotaUsed if it is a new one and the task has had `most` cycles in the last day.
    """
    schema = find_task(connection, name)
    task, newest = schema.task, newest_cutoff(schema.task, now)
    if asked.as_of is None:
        cutoff = useful_cutoff(task, now, find_newest(connection, schema.task_id, before=newest))
        # Nothing older can be released after the newest release.
        cutoff = max(cutoff, find_released_cutoff(connection, schema.task_id) or cutoff)
    else:
        cutoff = task.clock.window_start(asked.as_of)
    if not is_in_calendar(cutoff):
        raise InvalidInput([Fault("as_of", "lies in a window that begins before the year 1")])
    note = None
    if asked.as_of is None and cutoff < newest:
        windows = count_windows((newest - cutoff) // task.clock.window)
        note = f"the newest {windows} hold no event, so the cutoff is the end of the newest window with events"
    try:
        cycle = request_cycle(connection, schema.task_id, cutoff, now, recipe=task.recipe, again=asked.again)
    except CutoffReleased as error:
        newer = _say_newcomers(connection, schema, cutoff, error.began, max(cutoff, newest))
        raise CutoffReleased(error.version, error.began, newer) from error
    if _trains_earlier(connection, schema, cycle):
        # Of one that has just ended, the second request makes a new attempt.
        cycle = let_follow(connection, cycle) or request_cycle(
            connection, schema.task_id, cutoff, now, recipe=task.recipe, again=asked.again
        )
    if most is not None and cycle.requested_at == now:
        _check_quota(connection, schema, now, most)
    notes = [one for one in (note, *_note_wait(connection, schema, cycle, again=asked.again)) if one]
    return cycle, "; ".join(notes) or None


def _say_newcomers(connection: Connection, schema: Schema, cutoff: int, began: datetime, newest: int) -> str:
    """Which rows that came since a release began lie after its cutoff, and from when on a cycle trains them.

    `newest` is the newest boundary that has been reached.
    """
    found = count_newcomers(connection, schema.task_id, cutoff, began)
    if not found.num_after:
        return ""
    first = format_moment(newest + schema.task.clock.window)
    are = "is" if found.num_after == 1 else "are"
    told = (
        f"{found.num_after:,} of the {say_count(found.total, 'new row')} {are} dated after the cutoff "
        f"{format_moment(cutoff)}, and can be trained from {first} on. "
    )
    others = "new row" if found.num_before == 1 else f"{found.num_before:,}"
    return told + (f"--again takes in only the other {others}. " if found.num_before else "--again takes in none. ")


def _check_quota(connection: Connection, schema: Schema, now: datetime, most: int) -> None:
    """Raise QuotaUsed if the task has more cycles of the last day than this, which rolls the newest one back."""
    newest = list_requested_since(connection, schema.task_id, now - _DAY, count=most + 1)
    if len(newest) > most:
        seconds = (newest[most] + _DAY - now).total_seconds()
        raise QuotaUsed(
            f"{schema.task.name} has had {say_count(most, 'cycle')} within 24 hours, and may have no more: ask again "
            f"in {math.ceil(seconds):,} seconds, or raise MORROW_CYCLES_PER_DAY.",
            seconds,
        )


def _trains_earlier(connection: Connection, schema: Schema, cycle: Cycle) -> bool:
    """Whether a cycle is running that began before this revision of the task was stored."""
    if cycle.state != "running" or cycle.started_at is None:
        return False
    return is_revised_since(connection, schema, cycle.started_at)


def _note_wait(connection: Connection, schema: Schema, cycle: Cycle, *, again: bool) -> list[str]:
    """What a requested cycle waits for in MLflow, and that a running one is not what was asked for."""
    name = schema.task.name
    if schema.registry_name is not None:
        trouble = f" ({schema.renaming_trouble})" if schema.renaming_trouble else ""
        return [
            f"no cycle of {name} can begin before a trainer has renamed it in MLflow, where it is still called "
            f"{schema.registry_name}{trouble}"
        ]
    if _trains_earlier(connection, schema, cycle):
        return [
            f"this cycle was running when revision {schema.revision} was stored, and trains the revision before; "
            "another attempt at the same cutoff follows when it has ended"
        ]
    if again and cycle.state == "running":
        return [
            "this cycle is running already, and no other is added: run "
            f"morrow cycle {name} --again once more when it has ended"
        ]
    return []


def _list(connection: Connection, task_id: int) -> tuple[ReadRows[Cycle], list[answers.RunningCycle]]:
    """A task's cycles, and those of other tasks that run while one of the task is requested."""
    found = list_readable_cycles(connection, task_id, 1000)
    if all(cycle.state != "requested" for cycle in found.rows):
        return found, []
    others = (
        select(tasks.c.name, cycles.c.id, cycles.c.cutoff, cycles.c.step, cycles.c.started_at)
        .join(tasks, tasks.c.id == cycles.c.task_id)
        .where(cycles.c.state == "running", cycles.c.task_id != task_id)
        .where(is_readable(cycles.c.cutoff), is_readable(cycles.c.started_at))
        .order_by(cycles.c.started_at)
    )
    return found, [
        answers.RunningCycle(
            task=row.name,
            id=row.id,
            cutoff=format_moment(to_micros(row.cutoff)),
            step=row.step,
            started_at=_moment(row.started_at),
        )
        for row in connection.execute(others)
    ]


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
        replaces=cycle.replaces,
        followed=cycle.followed,
        run_id=cycle.run_id,
        requested_at=_moment(cycle.requested_at),
        started_at=_moment(cycle.started_at),
        ended_at=_moment(cycle.ended_at),
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(to_micros(moment))
