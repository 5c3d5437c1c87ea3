"""Tasks: define, list, status; retrainings: ask for one, list them; what a local version promises."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import ValidationError
from sqlalchemy import Connection, func, select
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from contracts.catalog import Schema, define_task, find_task, list_tasks
from contracts.clock import format_moment, to_micros
from contracts.cycles import Cycle, list_cycles, request_cycle
from contracts.database import events
from contracts.errors import Fault, InvalidInput, NotFound
from contracts.manifest import Manifest
from contracts.task import Task
from service.bodies import JsonObject, decode_json, decode_text, limit_values, read_body
from service.follower import Follower
from service.forecaster import Forecaster
from service.literals import is_in_calendar, json_moment
from service.queries import takes_only
from service.rows import printable
from service.settings import ServiceSettings
from service.store import Store

NUM_CYCLES_SHOWN = 10
MAX_VALUES = 10_000

Name = Annotated[str, Path(alias="task", description="name of the task")]


def tasks_router(store: Store, follower: Follower, settings: ServiceSettings) -> APIRouter:
    """The routes below /tasks."""
    router = APIRouter(tags=["tasks"], dependencies=[Depends(takes_only())])

    @router.put(
        "/tasks/{task}",
        summary="Define a task",
        status_code=200,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Task"}}},
            }
        },
        responses={201: {"description": "There was no such task before"}},
    )
    async def put_task(name: Name, request: Request) -> JSONResponse:
        """Store a task's spec; a changed one becomes a new revision. Rows of another schema train no more."""
        task = parse_task(name, await read_body(request, settings.max_body_bytes))
        now = datetime.now(UTC)
        schema, written = await store.run(lambda connection: define_task(connection, task, now))
        follower.learn(task.name, schema.task_id)
        document = {**_describe(schema), "changed": written, "warnings": warn(task)}
        return JSONResponse(document, 201 if written and schema.revision == 1 else 200)

    @router.get("/tasks", summary="List the tasks")
    async def get_tasks() -> JSONResponse:
        """Every task with its newest revision and what answers for it."""
        schemas = await store.run(list_tasks)
        return JSONResponse(
            {"tasks": [_describe(schema) | status_of_model(follower, schema.task.name) for schema in schemas]}
        )

    @router.get("/tasks/{task}", summary="Status of a task")
    async def get_task(name: Name) -> JSONResponse:
        """Spec, events, champion and its errors by age, how following it goes, last cycles, next cycle."""
        schema, num_events, cycles = await store.run(lambda connection: _read_status(connection, name))
        forecaster = follower.forecasters.get(name)
        return JSONResponse(
            {
                **_describe(schema),
                "num_events": num_events,
                **status_of_model(follower, name),
                "cycles": [describe_cycle(cycle) for cycle in cycles],
                "next_cycle": next_cycle(schema.task, to_micros(datetime.now(UTC))),
                "warnings": warn(schema.task, forecaster.manifest.horizon if forecaster else None),
            }
        )

    @router.post("/tasks/{task}/cycles", summary="Retrain now", status_code=202)
    async def post_cycle(name: Name, request: Request) -> JSONResponse:
        """Ask for a retraining as of the newest window boundary, or of the one at or before `as_of`."""
        now = datetime.now(UTC)
        as_of = parse_as_of(await read_body(request, settings.max_body_bytes), to_micros(now))

        def ask(connection: Connection) -> Cycle:
            schema = find_task(connection, name)
            cutoff = schema.task.clock.window_start(as_of)
            if not is_in_calendar(cutoff):
                raise InvalidInput([Fault("as_of", "lies in a window that begins before the year 1")])
            return request_cycle(connection, schema.task_id, cutoff, now)

        return JSONResponse(describe_cycle(await store.run(ask)), 202)

    @router.get("/tasks/{task}/cycles", summary="History of retrainings")
    async def get_cycles(name: Name) -> JSONResponse:
        """Newest cutoff and attempt first; at most 1000."""
        cycles = await store.run(lambda connection: list_cycles(connection, find_task(connection, name).task_id))
        return JSONResponse({"cycles": [describe_cycle(cycle) for cycle in cycles]})

    @router.get("/tasks/{task}/models/{version}", summary="What a version promises")
    async def get_model(name: Name, version: str) -> JSONResponse:
        """The manifest, without its probe, of the version that answers here."""
        forecaster = follower.forecasters.get(name)
        if forecaster is None or forecaster.version != version:
            raise NotFound("This version does not answer here; MLflow's registry knows all of them.")
        return JSONResponse(_describe_manifest(forecaster))

    return router


def parse_task(name: str, body: bytes) -> Task:
    """The task of a JSON body, whose `name` may be left out. Raises InvalidInput, HTTPException 400 or 413."""
    limit_values(body, MAX_VALUES)
    try:
        spec = json.loads(decode_text(body), parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"The body is not JSON: {printable(str(error))}.") from None
    if not isinstance(spec, dict):
        raise InvalidInput([Fault("body", "is not a JSON object")])
    if spec.setdefault("name", name) != name:
        raise InvalidInput([Fault("name", "differs from the name in the path")])
    try:
        return Task.model_validate(spec)
    except ValidationError as error:
        raise InvalidInput(
            [Fault(printable(".".join(map(str, fault["loc"]))), fault["msg"]) for fault in error.errors()]
        ) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    spec = dict(pairs)
    if len(spec) < len(pairs):
        raise ValueError("a name is given more than once in one object")
    return spec


def parse_as_of(body: bytes, now: int) -> int:
    """`as_of` of a body `{"as_of": moment}`, which may be empty; microseconds. Raises InvalidInput."""
    limit_values(body, MAX_VALUES)
    given = decode_json(decode_text(body)) if body.strip() else JsonObject()
    if not isinstance(given, JsonObject):
        raise InvalidInput([Fault("body", "is not a JSON object")])
    if unknown := [name for name in (*given, *given.repeated) if name != "as_of" or name in given.repeated]:
        raise InvalidInput([Fault(printable(name), "is unknown or given twice") for name in unknown[:20]])
    if given.get("as_of") is None:
        return now
    try:
        as_of = json_moment(given["as_of"])
    except ValueError as error:
        raise InvalidInput([Fault("as_of", str(error))]) from None
    if as_of > now:
        raise InvalidInput([Fault("as_of", "lies in the future")])
    return as_of


def warn(task: Task, horizon: int | None = None) -> list[str]:
    """What leaves gaps between versions: the horizon of the one that answers, else the spec."""
    length, name = (task.guard.max_age, "guard.max_age") if horizon is None else (horizon, "the horizon")
    if length == 1:
        return [f"{name} is one window: every version expires while the next one trains"]
    if task.label_delay + task.window > length * task.window:
        return [
            f"label_delay and one window are longer than {name} of {length} windows: every version expires before the "
            "next one can be trained"
        ]
    return []


def next_cycle(task: Task, now: int) -> str | None:
    """The next window boundary; None where cycles run on request only."""
    if task.schedule == "manual":
        return None
    boundary = task.clock.window_start(now) + task.clock.window
    return format_moment(boundary) if is_in_calendar(boundary) else None


def status_of_model(follower: Follower, task: str) -> dict[str, Any]:
    """The version that answers for a task, or null, and how following the registry goes."""
    registry = follower.registries.get(task)
    forecaster = follower.forecasters.get(task)
    return {
        "champion": None if forecaster is None else _describe_champion(forecaster),
        "registry": {
            "state": registry.state if registry else "ok",
            "reason": registry.reason if registry else None,
            "champion": registry.champion if registry else None,
        },
    }


def describe_cycle(cycle: Cycle) -> dict[str, Any]:
    """A cycle as the API shows it; the lease is nobody's business."""
    return {
        "id": cycle.cycle_id,
        "cutoff": format_moment(cycle.cutoff),
        "attempt": cycle.attempt,
        "state": cycle.state,
        "step": cycle.step,
        "version": cycle.version,
        "num_rows": cycle.num_rows,
        "reason": cycle.reason,
        "verdict": cycle.verdict,
        "run_id": cycle.run_id,
        "requested_at": _moment(cycle.requested_at),
        "started_at": _moment(cycle.started_at),
        "ended_at": _moment(cycle.ended_at),
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(to_micros(moment))


def _describe(schema: Schema) -> dict[str, Any]:
    return {"task": schema.task.name, "revision": schema.revision, "spec": schema.task.model_dump(mode="json")}


def _describe_champion(forecaster: Forecaster) -> dict[str, Any]:
    manifest = forecaster.manifest
    return {
        "version": forecaster.version,
        "trained_from": format_moment(manifest.trained_from),
        "trained_until": format_moment(manifest.cutoff),
        "valid_until": format_moment(forecaster.valid_until),
        "horizon": manifest.horizon,
        "error_name": manifest.error_name,
        "errors": [
            {"age": age.age, "mean": age.mean, "low": age.low, "high": age.high, "num_windows": age.num_windows}
            for age in manifest.ages
        ],
    }


def _describe_manifest(forecaster: Forecaster) -> dict[str, Any]:
    manifest: Manifest = forecaster.manifest
    return {
        **_describe_champion(forecaster),
        "task": manifest.task,
        "recipe": manifest.recipe,
        "classes": manifest.classes,
        "num_rows": manifest.num_rows,
        "rows_digest": manifest.rows_digest,
        "read_at": format_moment(manifest.read_at),
        "seeds": manifest.seeds,
        "device": manifest.device,
        "git_sha": manifest.git_sha,
        "checksums": manifest.checksums,
    }


def _read_status(connection: Connection, name: str) -> tuple[Schema, int, list[Cycle]]:
    schema = find_task(connection, name)
    current = select(func.count()).where(events.c.task_id == schema.task_id, events.c.superseded_at.is_(None))
    num_events = connection.execute(current).scalar_one()
    return schema, num_events, list(list_cycles(connection, schema.task_id, NUM_CYCLES_SHOWN))
