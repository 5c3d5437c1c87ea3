"""Tasks: define, list, status; and what the version that answers here promises."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import ValidationError
from sqlalchemy import Connection, func, select
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from contracts.clock import format_moment, to_micros
from contracts.errors import Fault, InvalidInput, NotFound
from contracts.manifest import Manifest
from contracts.task import Task
from service.admin.cycles import describe_cycle, next_cycle
from service.admin.status import (
    batch_size_of,
    check_budget,
    describe_champion,
    describe_choice,
    describe_live_errors,
    describe_model,
    describe_standing,
    describe_workers,
    warn,
    warn_of_events,
    warn_of_fit,
    warn_of_version,
)
from service.database import Store
from service.models.follower import Follower
from service.models.model import Forecaster
from service.models.task_state import Standing, read_standing
from service.server.worker_heartbeats import WorkerHeartbeats
from service.settings import ServiceSettings
from service.validation.lossless_json import decode_text, limit_values
from service.validation.names import printable
from service.validation.values import EXACT_INTEGER
from service.web.bodies import read_body
from service.web.fields import MAX_VALUES
from service.web.parameters import TaskInPath, takes_only
from store.catalog import Schema, define_task, find_task, list_tasks
from store.cycles import Cycle, list_cycles
from store.database import events

NUM_CYCLES_SHOWN = 10


def tasks_router(
    store: Store, follower: Follower, heartbeats: WorkerHeartbeats, settings: ServiceSettings
) -> APIRouter:
    """The routes below /tasks."""
    router = APIRouter(tags=["tasks"], dependencies=[Depends(takes_only())])
    cycle_limit = timedelta(seconds=settings.cycle_limit_seconds)

    @router.put(
        "/tasks/{task}",
        summary="Define a task",
        status_code=200,
        response_description="The task as it stands; `changed` says whether this made it so",
        responses={201: {"description": "There was no such task before"}},
    )
    async def put_task(name: TaskInPath, request: Request) -> JSONResponse:
        """Store a task's spec; a changed one becomes a new revision. Where features change, the version that answers
        goes on asking for the old ones until one of the new schema is released, and events are taken in both forms
        until then. Fits read both: what the earlier rows lack counts as missing. Rows of another target train no more.
        """
        task = parse_task(name, await read_body(request, settings))
        check_budget(task, cycle_limit)
        now = datetime.now(UTC)
        schema, written = await store.run(lambda connection: define_task(connection, task, now))
        follower.learn(task.name, schema.task_id)
        document = {**_describe(schema), "changed": written, "warnings": warn(task, cycle_limit)}
        return JSONResponse(document, 201 if written and schema.revision == 1 else 200)

    @router.get("/tasks", summary="List the tasks", response_description="The tasks, by name")
    async def get_tasks() -> JSONResponse:
        """Every task with its newest revision, what answers for it and how it stands."""
        forecasters, now = follower.forecasters, datetime.now(UTC)
        found = await store.run(lambda connection: _read_standings(connection, forecasters))
        return JSONResponse(
            {
                "tasks": [
                    {
                        **_describe(schema),
                        **describe_model(follower, schema.task.name, forecasters.get(schema.task.name)),
                        **describe_standing(schema.task, forecasters.get(schema.task.name), standing, now, cycle_limit),
                    }
                    for schema, standing in found
                ]
            }
        )

    @router.get("/tasks/{task}", summary="Status of a task", response_description="How the task stands")
    async def get_task(name: TaskInPath) -> JSONResponse:
        """Spec, events, the champion with its expected and realised errors by age, why it may not answer, last cycles,
        next cycle, and what to be warned of."""
        forecaster, now = follower.forecasters.get(name), datetime.now(UTC)
        schema, standing, num_events, cycles = await store.run(
            lambda connection: _read_status(connection, name, forecaster)
        )
        shown = [describe_cycle(cycle) for cycle in cycles]
        return JSONResponse(
            {
                **_describe(schema),
                "num_events": num_events,
                **describe_model(follower, name, forecaster),
                "workers": describe_workers(heartbeats.all(now.timestamp()), name),
                **describe_standing(schema.task, forecaster, standing, now, cycle_limit),
                "live_errors": [] if forecaster is None else describe_live_errors(forecaster, standing.realised),
                "last_verdict": next((_shorten(cycle) for cycle in shown if cycle["verdict"]), None),
                "cycles": shown,
                "next_cycle": next_cycle(schema.task, to_micros(now)),
                "warnings": [
                    *warn(schema.task, cycle_limit, forecaster.manifest.horizon if forecaster else None),
                    *(
                        warn_of_fit(forecaster.task.training, forecaster.manifest.num_rows, batch_size_of(forecaster))
                        if forecaster
                        else ()
                    ),
                    *warn_of_version(forecaster, standing),
                    *warn_of_events(schema.task, standing, now),
                ],
            }
        )

    @router.get(
        "/tasks/{task}/models/{version}", summary="What a version promises", response_description="Its manifest"
    )
    async def get_model(
        name: TaskInPath, version: Annotated[str, Path(description="the version that answers")]
    ) -> JSONResponse:
        """The manifest, without its probe, of the version that answers here."""
        forecaster = follower.forecasters.get(name)
        if forecaster is None or forecaster.version != version:
            raise NotFound("This version does not answer here; MLflow's registry knows all of them.")
        return JSONResponse(_describe_manifest(forecaster))

    return router


def parse_task(name: str, body: bytes) -> Task:
    """The task of a JSON body, whose `name` may be left out; each value has its type as it is, `"4"` is no number.

    Raises InvalidInput, HTTPException 400 or 413.
    """
    limit_values(body, MAX_VALUES)
    try:
        spec = json.loads(
            decode_text(body),
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            object_pairs_hook=_refuse_repeated,
        )
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"The body is not JSON: {printable(str(error))}.") from None
    if not isinstance(spec, dict):
        raise InvalidInput([Fault("body", "is not a JSON object")])
    if spec.setdefault("name", name) != name:
        raise InvalidInput([Fault("name", "differs from the name in the path")])
    try:
        return Task.model_validate_json(json.dumps(spec, ensure_ascii=False).encode(), strict=True)
    except UnicodeEncodeError:
        raise InvalidInput([Fault("body", "holds a lone surrogate")]) from None
    except ValidationError as error:
        raise InvalidInput(
            [
                Fault(printable(".".join(map(str, fault["loc"]))), fault["msg"].removeprefix("Value error, "))
                for fault in error.errors()
            ]
        ) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(literal: str) -> float:
    """To JSON, 4.0 is the integer 4."""
    number = float(literal)
    return int(number) if number.is_integer() and abs(number) <= EXACT_INTEGER else number


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    spec = dict(pairs)
    if len(spec) < len(pairs):
        raise ValueError("a name is given more than once in one object")
    return spec


def _describe(schema: Schema) -> dict[str, Any]:
    return {
        "task": schema.task.name,
        "revision": schema.revision,
        "spec": schema.written.model_dump(mode="json"),
        "choice": None if schema.choice is None else describe_choice(schema.choice),
    }


def _describe_manifest(forecaster: Forecaster) -> dict[str, Any]:
    manifest: Manifest = forecaster.manifest
    return {
        **describe_champion(forecaster),
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


def _shorten(cycle: dict[str, Any]) -> dict[str, Any]:
    """The verdict of a cycle that has one, and whose it is."""
    return {"cycle": cycle["id"], "cutoff": cycle["cutoff"], "state": cycle["state"], **cycle["verdict"]}


def _read_standings(connection: Connection, forecasters: Mapping[str, Forecaster]) -> list[tuple[Schema, Standing]]:
    return [
        (schema, read_standing(connection, schema, forecasters.get(schema.task.name)))
        for schema in list_tasks(connection)
    ]


def _read_status(
    connection: Connection, name: str, forecaster: Forecaster | None
) -> tuple[Schema, Standing, int, list[Cycle]]:
    schema = find_task(connection, name)
    standing = read_standing(connection, schema, forecaster)
    current = select(func.count()).where(events.c.task_id == schema.task_id, events.c.superseded_at.is_(None))
    num_events = connection.execute(current).scalar_one()
    return schema, standing, num_events, list(list_cycles(connection, schema.task_id, NUM_CYCLES_SHOWN))
