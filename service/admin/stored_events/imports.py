"""Imports over HTTP: begun before their rows are sent, listed, and retracted if they were a mistake."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from msgspec.structs import asdict
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import format_moment, to_micros
from service.admin import answers
from service.admin.stored_events import event_answers
from service.admin.stored_events.given_options import json_import_options
from service.admin.stored_events.sealed_files import rewrite_files
from service.advice.future_events import CLOCKS_APART, warn_of_future, warn_of_import
from service.advice.last_import import read_options
from service.advice.row_warnings import RowWarnings, read_row_warnings
from service.database import Store
from service.settings import ServiceSettings
from service.web.auth import actor_of
from service.web.bodies import read_body
from service.web.fields import Rule, json_actor, json_reason, read_fields
from service.web.parameters import ID_PATTERN, TaskInPath, read_id, takes_only
from store.events.far_rows import find_future
from store.events.imports import (
    Import,
    ImportedEvents,
    add_import,
    count_imports,
    find_import,
    list_imports,
    read_import,
    retract_events,
)
from store.events.sealed.rewriting import list_stale
from store.tasks.catalog import Schema, find_live_task, find_task

ImportInPath = Annotated[
    str, Path(alias="import", description="id of the import", json_schema_extra={"pattern": f"^{ID_PATTERN}$"})
]
_PLAIN = [Depends(takes_only())]


def imports_router(store: Store, settings: ServiceSettings) -> APIRouter:
    """The routes of /tasks/{task}/imports."""
    router = APIRouter(tags=["tasks"])

    @router.post(
        "/tasks/{task}/imports",
        summary="Begin an import",
        status_code=201,
        response_description="The import",
        responses={409: {"description": "The task is archived"}},
        dependencies=_PLAIN,
    )
    async def post_import(name: TaskInPath, request: Request) -> Response:
        """Rows that are then sent to `/events` with `import=` and its id can be retracted together.

        A `digest` of the content lets senders recognise it in the list of imports, if they have sent it before.
        `options` say how the file was read. Next steps of the task repeat them in commands.
        """
        rules: dict[str, Rule] = {
            "source": json_reason,
            "actor": json_actor,
            "digest": json_actor,
            "options": json_import_options,
        }
        given = read_fields(await read_body(request, settings), rules, required=("source",))
        actor, now = actor_of(request, given.get("actor")), datetime.now(UTC)

        def begin(connection: Connection) -> Import:
            task_id = find_live_task(connection, name).task_id
            return add_import(
                connection,
                task_id,
                actor=actor,
                source=given["source"],
                now=now,
                digest=given.get("digest"),
                options=given.get("options"),
            )

        return answers.respond(describe_import(await store.run(begin, [name])), 201)

    @router.get(
        "/tasks/{task}/imports",
        summary="List the imports",
        response_description="The imports",
        dependencies=[Depends(takes_only("counted"))],
    )
    async def get_imports(
        name: TaskInPath,
        *,
        counted: Annotated[bool, Query(description="whether to count the events of each, which takes longer")] = False,
    ) -> Response:
        """Newest first; at most 1000. The counts of events are those of now, without retracted and erased ones."""

        def read(connection: Connection) -> event_answers.Imports:
            task_id = find_task(connection, name).task_id
            rows = list_imports(connection, task_id)
            if not counted:
                return event_answers.Imports([event_answers.ListedImport(**_fields(row)) for row in rows])
            counts = count_imports(connection, task_id, [row.import_id for row in rows])
            return event_answers.Imports([_describe_counted(row, *counts.get(row.import_id, (0, 0))) for row in rows])

        return answers.respond(await store.run(read))

    @router.get(
        "/tasks/{task}/imports/{import}",
        summary="One import",
        response_description="What is left of it",
        dependencies=_PLAIN,
    )
    async def get_import(name: TaskInPath, given_id: ImportInPath) -> Response:
        """The events that a retraction would remove, those that it would keep, and the versions trained on them."""
        import_id = read_id(given_id, "import")

        def read(connection: Connection) -> event_answers.ImportContent:
            schema, now = find_task(connection, name), datetime.now(UTC)
            found = find_import(connection, schema.task_id, import_id)
            left = read_import(connection, schema.task_id, import_id)
            rows = read_row_warnings(connection, schema, now)
            ahead = _warn_of_future(connection, schema, found, rows, now)
            return _describe_content(found, left, rows, ahead)

        return answers.respond(await store.run(read))

    @router.post(
        "/tasks/{task}/imports/{import}/retract",
        summary="Retract an import",
        response_description="The import, and what is left of it",
        dependencies=_PLAIN,
    )
    async def post_retraction(name: TaskInPath, given_id: ImportInPath, request: Request) -> Response:
        """Remove the events of an import, at most 20,000 at once: repeat the request while `num_events` is not 0.

        No fit will see them, and their ids can be stored again. Events that were corrected since stay. `versions` lists
        the versions that were trained on any of the events; they answer as before. Nothing can join the import then.
        """
        import_id = read_id(given_id, "import")
        rules: dict[str, Rule] = {"reason": json_reason, "actor": json_actor}
        given = read_fields(await read_body(request, settings), rules, required=("reason",))
        actor, now = actor_of(request, given.get("actor")), datetime.now(UTC)

        def retract(connection: Connection) -> tuple[event_answers.ImportContent, list[int]]:
            schema = find_task(connection, name)
            before = read_import(connection, schema.task_id, import_id)
            found, _ = retract_events(connection, schema, import_id, actor=actor, reason=given["reason"], now=now)
            left = read_import(connection, schema.task_id, import_id)
            rows = read_row_warnings(connection, schema, now)
            content = _describe_content(found, replace(left, versions=before.versions), rows)
            return content, list_stale(connection, schema.task_id)

        content, stale = await store.run(retract, [name])
        await rewrite_files(store, stale, now)
        return answers.respond(content)

    return router


def describe_import(found: Import) -> event_answers.Import:
    """A row of the list."""
    return event_answers.Import(
        id=found.import_id,
        at=format_moment(to_micros(found.at)),
        actor=found.actor,
        source=found.source,
        digest=found.digest,
        options=read_options(found),
        retracted_at=None if found.retracted_at is None else format_moment(to_micros(found.retracted_at)),
        retraction_actor=found.retraction_actor,
        retraction_reason=found.retraction_reason,
        num_retracted=found.num_retracted,
    )


def _fields(found: Import) -> dict[str, Any]:
    return asdict(describe_import(found))


def _describe_counted(found: Import, num_events: int, num_corrected: int) -> event_answers.ListedImport:
    return event_answers.ListedImport(**_fields(found), num_events=num_events, num_corrected=num_corrected)


def _warn_of_future(
    connection: Connection, schema: Schema, found: Import, rows: RowWarnings, now: datetime
) -> list[str]:
    """Warn of events of the future: how to undo the import if it brought them, else how to correct them."""
    own = find_future(connection, schema.task_id, now + CLOCKS_APART, found.import_id)
    if own is not None:
        return [warn_of_import(schema.task.name, found.import_id, own, now)]
    return [] if rows.future is None else [warn_of_future(schema.task.name, rows.future.newest, rows.future)]


def _describe_content(
    found: Import, left: ImportedEvents, rows: RowWarnings, ahead: Sequence[str] = ()
) -> event_answers.ImportContent:
    return event_answers.ImportContent(
        **_fields(found),
        num_events=left.num_events,
        num_corrected=left.num_corrected,
        versions=list(left.versions),
        warnings=[*ahead, *rows.mistakes, *rows.far],
    )
