"""The routes of tasks: define one, list them, show the status of one and the manifest of its version."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from msgspec.structs import asdict
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import to_micros
from contracts.errors import NotFound
from contracts.quality.skill import Skill
from contracts.task import Task
from service.admin import answers
from service.admin.cycles import describe_cycle
from service.admin.listed_tasks import MAX_TASKS, PAGE_SIZE, Wanted, describe_page, read_page
from service.admin.status import (
    describe_given_answers,
    describe_live_errors,
    describe_manifest,
    describe_revision,
    describe_task,
    describe_workers,
)
from service.admin.task_specs import parse_task
from service.advice.advice import advise
from service.advice.label_doubts import LabelDoubts, read_doubts
from service.advice.last_import import LastImport, read_last_import
from service.advice.next_step import find_situation
from service.advice.row_states import RowState
from service.advice.row_warnings import RowWarnings, read_row_warnings, warn_of_classes
from service.advice.task_differences import describe_differences, warn_of_former_name
from service.advice.task_warnings import (
    check_budget,
    warn_of_dead_letters,
    warn_of_gaps,
    warn_of_kinds,
    warn_of_renaming,
)
from service.database import Store
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.models.model_skills import find_part, read_skills
from service.models.task_states.stored_states import read_readable_state
from service.models.task_states.task_state import RegistryState, TaskState, next_cycle
from service.server.worker_heartbeats import WorkerHeartbeats
from service.settings import ServiceSettings
from service.web.bodies import read_body
from service.web.keys.task_access import tasks_of
from service.web.parameters import MAX_NAME, WITHOUT_NUL, TaskInPath, check_texts, takes_only
from service.web.preconditions import etag_of, read_preconditions
from store.cycles.ledger import Cycle, list_readable_cycles
from store.errors import SpecUnreadable
from store.events.reading.counts import find_newest, has_unreadable
from store.events.row_forms import read_held
from store.hooks.ledger import DeadLetters, list_dead_letters
from store.paired_errors import find_unreadable_cells
from store.predictions.answer_scores import ScoredAnswers, list_scored_answers
from store.tasks.catalog import Schema, define_task, find_task
from store.tasks.changes import find_renamed
from store.tasks.row_counts import RowCounts, count_rows

NUM_CYCLES_SHOWN = 10
_PLAIN = [Depends(takes_only())]


@dataclass(frozen=True)
class StoredStatus:
    """What the store says of one task; `faults` says which of its rows cannot be read."""

    schema: Schema
    task_state: TaskState
    skill: Skill | None
    counts: RowCounts
    cycles: Sequence[Cycle]
    rows: RowWarnings
    doubts: LabelDoubts
    last_import: LastImport | None
    dead_letters: Sequence[DeadLetters]
    answered: Sequence[ScoredAnswers]
    faults: Sequence[str]

    @property
    def num_events(self) -> int:
        return self.counts.num_events


def tasks_router(
    store: Store, follower: Follower, heartbeats: WorkerHeartbeats, settings: ServiceSettings
) -> APIRouter:
    """The routes below /tasks."""
    router = APIRouter(tags=["tasks"])
    cycle_limit = timedelta(seconds=settings.cycle_limit_seconds)
    _add_definition(router, store, follower, settings)
    _add_list(router, store, follower, cycle_limit)
    _add_status(router, store, follower, heartbeats, cycle_limit)
    _add_manifest(router, follower)
    return router


def _add_definition(router: APIRouter, store: Store, follower: Follower, settings: ServiceSettings) -> None:
    cycle_limit = timedelta(seconds=settings.cycle_limit_seconds)

    @router.put(
        "/tasks/{task}",
        dependencies=_PLAIN,
        summary="Define a task",
        status_code=200,
        response_description="The task; `changed` says whether this request changed it",
        responses={
            201: {"description": "The task is new"},
            409: {"description": "The task is archived, or a task that had this name is still leaving"},
            412: {"description": "`If-Match` or `If-None-Match` does not hold for the current revision"},
        },
    )
    async def put_task(name: TaskInPath, request: Request) -> Response:
        """Store a task's spec; a changed spec becomes a new revision. If its features change, the version that answers
        needs the old ones until a version of the new schema is released, and events may have either form until then.
        Fits read both forms: values that earlier rows lack count as missing. Rows of another target are no longer used.
        The ETag is the number of the revision; `If-Match` and `If-None-Match` are honoured.
        """
        preconditions = read_preconditions(request.scope)
        task = parse_task(name, await read_body(request, settings))
        check_budget(task, cycle_limit)
        now = datetime.now(UTC)
        schema, written, before, held, former_name_of = await store.run(
            lambda connection: _define(connection, task, now, preconditions.check), [name]
        )
        follower.add_task(task.name, schema.task_id)
        defined = answers.TaskDefined(
            **asdict(describe_revision(schema)),
            changed=written,
            changes=describe_differences(before, task, held),
            warnings=[
                *warn_of_former_name(task.name, former_name_of),
                *warn_of_gaps(task, cycle_limit),
                *warn_of_kinds(before, task, held),
                *warn_of_classes(task),
            ],
        )
        status = 201 if written and schema.revision == 1 else 200
        return answers.respond(defined, status, etag=etag_of(schema.revision))


def _add_list(router: APIRouter, store: Store, follower: Follower, cycle_limit: timedelta) -> None:
    @router.get(
        "/tasks",
        summary="List the tasks",
        response_description="The tasks, by name",
        dependencies=[Depends(takes_only("archived", "limit", "after", "state", "prefix", "q"))],
    )
    async def get_tasks(
        request: Request,
        *,
        archived: Annotated[bool, Query(description="whether to list archived tasks too")] = False,
        limit: Annotated[int, Query(ge=1, le=MAX_TASKS, description="most tasks of the answer")] = PAGE_SIZE,
        after: Annotated[
            str,
            Query(
                max_length=MAX_NAME,
                description="begin after this name: `next` of the page before",
                json_schema_extra=WITHOUT_NUL,
            ),
        ] = "",
        state: Annotated[
            RowState | None, Query(description="only tasks in this state; valid ones may be expiring as well")
        ] = None,
        prefix: Annotated[
            str,
            Query(
                max_length=MAX_NAME, description="only names that begin with this text", json_schema_extra=WITHOUT_NUL
            ),
        ] = "",
        part: Annotated[
            str,
            Query(
                alias="q",
                max_length=MAX_NAME,
                description="only names that hold this text, in any case",
                json_schema_extra=WITHOUT_NUL,
            ),
        ] = "",
    ) -> Response:
        """The next 50 tasks, or `limit`, each with its newest revision, the version that answers for it, and its state.
        If there are more, `next` is the name to give as `after`, and otherwise null. A task whose rows or spec cannot
        be read is listed as well: its `registry` is degraded and says why, and a spec that cannot be read is null.
        """
        now = datetime.now(UTC)
        check_texts({"after": after, "prefix": prefix, "q": part})
        wanted = Wanted(
            limit, after, state=state, prefix=prefix, part=part, with_archived=archived, allowed=tasks_of(request.scope)
        )

        def list_page(connection: Connection) -> Response:
            found = read_page(connection, follower, wanted, now, cycle_limit)
            return answers.respond(describe_page(found, follower, now=now, cycle_limit=cycle_limit))

        return await store.run(list_page)  # in its thread: many tasks would hold up other requests


def _add_status(
    router: APIRouter, store: Store, follower: Follower, heartbeats: WorkerHeartbeats, cycle_limit: timedelta
) -> None:
    @router.get("/tasks/{task}", summary="Status of a task", response_description="The status", dependencies=_PLAIN)
    async def get_task(name: TaskInPath) -> Response:
        """Spec, number of events, the champion with its skill and its expected and realised errors by age, how right
        logged answers were, why it may not answer, last and next cycle, and warnings."""
        forecaster, now = follower.forecasters.get(name), datetime.now(UTC)
        found = await store.run(lambda connection: read_status(connection, name, forecaster, now))
        schema, task_state = found.schema, found.task_state
        shown = [describe_cycle(cycle) for cycle in found.cycles]
        situation = find_situation(
            schema,
            forecaster,
            follower.registries.get(name, RegistryState()),
            task_state=task_state,
            skill=found.skill,
            cycles=found.cycles,
            now=now,
            cycle_limit=cycle_limit,
            doubts=found.doubts,
            last_import=found.last_import,
        )
        advice = advise(situation, found.rows)
        overview = describe_task(
            schema, forecaster, situation.registry, task_state, advice.skill, now=now, cycle_limit=cycle_limit
        )
        return answers.respond(
            answers.TaskStatus(
                **asdict(overview),
                workers=describe_workers(heartbeats.all(now.timestamp(), name), name),
                num_events=found.num_events,
                num_unlabelled=found.counts.num_unlabelled,
                num_waiting=found.counts.num_waiting,
                live_errors=[] if forecaster is None else describe_live_errors(forecaster, task_state.realised),
                answers=describe_given_answers(schema, found.answered),
                last_verdict=next((_shorten(cycle) for cycle in shown if cycle.verdict), None),
                cycles=shown,
                next_cycle=next_cycle(schema.task, to_micros(now)) if schema.lifecycle == "active" else None,
                next_step=advice.next_step,
                doubts=advice.doubts,
                commands=answers.FileCommands(situation.files.events, situation.files.questions),
                warnings=[
                    *found.faults,
                    *warn_of_renaming(schema),
                    *warn_of_dead_letters(found.dead_letters),
                    *advice.warnings,
                ],
            ),
            etag=etag_of(schema.revision),
        )


def _add_manifest(router: APIRouter, follower: Follower) -> None:
    @router.get(
        "/tasks/{task}/models/{version}",
        summary="What a version promises",
        response_description="Its manifest",
        dependencies=_PLAIN,
    )
    async def get_model(
        name: TaskInPath, version: Annotated[str, Path(description="the version that answers")]
    ) -> Response:
        """The manifest, without its probe, of the version that answers here."""
        forecaster = follower.forecasters.get(name)
        if forecaster is None or forecaster.version != version:
            raise NotFound("This version does not answer here; MLflow's registry lists every version.")
        return answers.respond(describe_manifest(forecaster))


def _define(
    connection: Connection, task: Task, now: datetime, check: Callable[[int | None], None]
) -> tuple[Schema, bool, Task | None, dict[str, set[bool]] | None, str | None]:
    """The stored revision, whether it is new, the task as it was before, what its features held in all revisions
    before (None if no row is stored), and the task that had a new one's name.

    Raises as `check` does.
    """
    try:
        former = find_task(connection, task.name)
        has_rows = find_newest(connection, former.task_id) is not None or has_unreadable(connection, former.task_id)
        before, held = former.written, read_held(connection, former.task_id, task) if has_rows else None
    except (NotFound, SpecUnreadable):
        before, held = None, None
    schema, written = define_task(connection, task, now, check)
    former_name_of = None if before is not None else find_renamed(connection, task.name, schema.task_id)
    return schema, written, before, held, former_name_of


def _shorten(cycle: answers.Cycle) -> dict[str, Any]:
    """The verdict of a cycle, with the cycle's id, cutoff and state."""
    return {"cycle": cycle.id, "cutoff": cycle.cutoff, "state": cycle.state, **(cycle.verdict or {})}


def read_status(connection: Connection, name: str, forecaster: Forecaster | None, now: datetime) -> StoredStatus:
    """What the store says of a task. Nothing is counted, so it takes as long however many events there are."""
    schema = find_task(connection, name)
    task_state, faults = read_readable_state(connection, schema, forecaster)
    cycles = list_readable_cycles(connection, schema.task_id, NUM_CYCLES_SHOWN)
    cells = find_unreadable_cells(connection, find_part(schema, forecaster, task_state))
    skills = read_skills(
        connection, [schema], {} if forecaster is None else {name: forecaster}, {schema.task_id: task_state}
    )
    return StoredStatus(
        schema=schema,
        task_state=task_state,
        skill=skills.get(schema.task_id),
        counts=count_rows(connection, schema.task_id),
        cycles=cycles.rows,
        rows=read_row_warnings(connection, schema, now),
        doubts=read_doubts(connection, schema, forecaster, task_state),
        last_import=read_last_import(connection, schema.task_id),
        dead_letters=list_dead_letters(connection, schema.task_id),
        answered=list_scored_answers(connection, schema.task_id),
        faults=list(dict.fromkeys(filter(None, (*faults, None if faults else cycles.fault, cells)))),
    )
