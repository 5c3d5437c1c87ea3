"""The routes that pause, archive, rename or delete a task, and the history of that."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated

import anyio.to_thread
import httpx
from fastapi import APIRouter, Depends, Query
from msgspec.structs import asdict
from pydantic import JsonValue
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import format_moment, to_micros
from contracts.errors import Conflict, Fault, InvalidInput, Unavailable
from contracts.shown import say_count, shorten
from contracts.spec.spec_values import IDENTIFIER, NAMES_RULE, SCHEMA_PRINTABLE, suggest_name
from service.admin import answers
from service.database import Store
from service.models.registry.client import find_holder
from service.settings import ServiceSettings
from service.validation.values import json_text
from service.web.auth import actor_of
from service.web.bodies import read_body
from service.web.fields import MAX_ACTOR, MAX_REASON, Rule, json_actor, json_reason, read_fields
from service.web.parameters import TaskInPath, takes_only
from store.tasks.catalog import find_task_id, has_name
from store.tasks.changes import Action, Contents, TaskChange, list_changes
from store.tasks.lifecycle import Move, begin_deletion, count_contents, move_task, rename_task

EFFECTS: dict[Action, str] = {
    "pause": (
        "No cycle begins until the task is resumed; a running one ends as usual. Events are stored, and the version "
        "answers within its horizon. The alerts on cycles are silent."
    ),
    "resume": "Next come the newest window that is due, and the cutoffs that were requested.",
    "archive": (
        "The task takes no events, questions or cycles, is listed only if asked for, and has no metrics and no alerts. "
        "Its events, versions and runs in MLflow stay."
    ),
    "unarchive": "The task takes events and questions again, and its cycles go on.",
    "rename": (
        "Events, versions and history stay, and MLflow's experiment and model follow. A request with the old name "
        "is refused and told the new one, until another task takes the old name."
    ),
    "delete": (
        "The task is gone for every request. The trainer now deletes its rows, its model and alias in MLflow with "
        "their files, and its experiment. Its metrics and alerts end. After that, another task can have the name."
    ),
    "deleted": "The trainer has removed everything. Another task can have the name.",
}
_TEXTS: dict[str, Rule] = {"reason": json_reason, "actor": json_actor}
_MOVES: dict[Move, tuple[str, str]] = {
    "pause": ("Pause a task", "No cycle begins until it is resumed; the version answers as before."),
    "resume": ("Resume a task", "Cycles go on with the newest window that is due."),
    "archive": ("Archive a task", "It takes no events, questions or cycles, and leaves lists, metrics and alerts."),
    "unarchive": ("Unarchive a task", "It takes events and questions again, and its cycles go on."),
}


_PLAIN = [Depends(takes_only())]


def _printable(longest: int) -> dict[str, JsonValue]:
    """The schema of a text that `json_text` accepts."""
    return {"minLength": 1, "maxLength": longest, "pattern": SCHEMA_PRINTABLE}


ReasonInQuery = Annotated[
    str | None, Query(description="the reason, for the record", json_schema_extra=_printable(MAX_REASON))
]
ActorInQuery = Annotated[
    str | None, Query(description="the person, for the record", json_schema_extra=_printable(MAX_ACTOR))
]


def task_changes_router(store: Store, registry: httpx.Client | None, settings: ServiceSettings) -> APIRouter:
    """The routes below /tasks/{task} that change a task as a whole."""
    router = APIRouter(tags=["tasks"])
    _add_moves(router, store, settings)
    _add_renaming(router, store, registry, settings)
    _add_history(router, store)
    _add_deletion(router, store)
    return router


def _add_moves(router: APIRouter, store: Store, settings: ServiceSettings) -> None:
    """The routes that pause, resume, archive and unarchive a task."""

    def make_move(move: Move) -> Callable[[str, Request], Awaitable[Response]]:
        async def post_move(name: TaskInPath, request: Request) -> Response:
            given = read_fields(await read_body(request, settings), _TEXTS)
            actor, reason, now = actor_of(request, given.get("actor")), given.get("reason", ""), datetime.now(UTC)
            change = await store.run(
                lambda connection: move_task(connection, name, move, actor=actor, reason=reason, now=now), [name]
            )
            return answers.respond(describe_made(change))

        return post_move

    for move, (summary, explanation) in _MOVES.items():
        router.add_api_route(
            f"/tasks/{{task}}/{move}",
            make_move(move),
            methods=["POST"],
            summary=summary,
            description=explanation,
            response_description="The change",
            responses={409: {"description": "The task is in another state"}},
            dependencies=_PLAIN,
        )


def _add_renaming(router: APIRouter, store: Store, registry: httpx.Client | None, settings: ServiceSettings) -> None:
    @router.post(
        "/tasks/{task}/rename",
        summary="Rename a task",
        response_description="The change",
        responses={409: {"description": "The name is taken, or a cycle is running"}},
        dependencies=_PLAIN,
    )
    async def post_rename(name: TaskInPath, request: Request) -> Response:
        """Give it another name. Ids, events, versions and history stay, and MLflow follows within seconds. While MLflow
        refuses to follow, no cycle begins, and the task can be renamed once more, also back.
        """
        rules = {"name": _json_name, **_TEXTS}
        given = read_fields(await read_body(request, settings), rules, required=("name",))
        actor, reason, now = actor_of(request, given.get("actor")), given.get("reason", ""), datetime.now(UTC)
        if registry is not None and await store.run(lambda connection: _is_new(connection, name, given["name"])):
            await anyio.to_thread.run_sync(_require_free_in_registry, registry, given["name"])
        change = await store.run(
            lambda connection: rename_task(connection, name, given["name"], actor=actor, reason=reason, now=now),
            [name],
        )
        return answers.respond(describe_made(change))


def _add_history(router: APIRouter, store: Store) -> None:
    """The routes that say what a task holds and what was done with it."""

    @router.get(
        "/tasks/{task}/contents",
        summary="What a task holds",
        response_description="The counts",
        dependencies=_PLAIN,
    )
    async def get_contents(name: TaskInPath) -> Response:
        """What a deletion would remove."""
        contents = await store.run(lambda connection: count_contents(connection, find_task_id(connection, name)))
        return answers.respond(describe_contents(contents))

    @router.get(
        "/tasks/{task}/changes",
        summary="History of a task as a whole",
        response_description="The changes",
        dependencies=_PLAIN,
    )
    async def get_changes(name: TaskInPath) -> Response:
        """Who paused, archived or renamed it; newest first, at most 1000."""
        rows = await store.run(lambda connection: list_changes(connection, find_task_id(connection, name)))
        return answers.respond(answers.TaskChanges([describe_change(row) for row in rows]))


def _add_deletion(router: APIRouter, store: Store) -> None:
    @router.delete(
        "/tasks/{task}",
        summary="Delete a task",
        status_code=202,
        response_description="The task is gone for every request, and the trainer removes the rest",
        dependencies=[Depends(takes_only("confirm", "reason", "actor"))],
    )
    async def delete_task(
        name: TaskInPath,
        request: Request,
        confirm: Annotated[str | None, Query(description="the name of the task once more")] = None,
        reason: ReasonInQuery = None,
        actor: ActorInQuery = None,
    ) -> Response:
        """Delete its events, cycles, versions and models for ever. Without `confirm`, the problem says how many there
        are.

        Actor, reason and counts stay in the record.
        """
        why = "" if reason is None else _read("reason", reason)
        by, now = actor_of(request, None if actor is None else _read("actor", actor)), datetime.now(UTC)

        def delete(connection: Connection) -> TaskChange:
            if confirm != name:
                contents = count_contents(connection, find_task_id(connection, name))
                raise InvalidInput([Fault("confirm", _ask_for_confirmation(name, contents))])
            return begin_deletion(connection, name, actor=by, reason=why, now=now)

        return answers.respond(describe_made(await store.run(delete, [name])), 202)


def describe_change(change: TaskChange) -> answers.TaskChange:
    """A row of the history."""
    return answers.TaskChange(
        id=change.change_id,
        task=change.name,
        action=change.action,
        new_name=change.new_name,
        actor=change.actor,
        reason=change.reason,
        at=format_moment(to_micros(change.at)),
        contents=None if change.contents is None else describe_contents(change.contents),
    )


def describe_made(change: TaskChange) -> answers.TaskChanged:
    """A change that has just been made, and what it means."""
    return answers.TaskChanged(**asdict(describe_change(change)), effect=EFFECTS[change.action])


def describe_contents(contents: Contents) -> answers.TaskContents:
    """The counts of a task."""
    return answers.TaskContents(**asdict(contents), most_counted=contents.num_revisions)


def _is_new(connection: Connection, name: str, new_name: str) -> bool:
    """Whether a task never had this name, and no other has it. Raises NotFound."""
    task_id = find_task_id(connection, name)
    if has_name(connection, new_name):
        return False
    return new_name not in {row.name for row in list_changes(connection, task_id) if row.action == "rename"}


def _require_free_in_registry(registry: httpx.Client, name: str) -> None:
    """Raise Conflict if MLflow has something under this name. If it does not answer, the trainer finds that out."""
    try:
        holder = find_holder(registry, name)
    except Unavailable:
        return
    if holder is not None:
        raise Conflict(
            f"MLflow has {holder} named {name!r} already, so the task cannot have that name: choose another one, or "
            "rename what has it in MLflow."
        )


def _ask_for_confirmation(name: str, contents: Contents) -> str:
    return (
        f"must be {name!r}: this deletes {say_count(contents.num_events, 'event')}, "
        f"{say_count(contents.num_rejected, 'refused row')}, {say_count(contents.num_cycles, 'cycle')} and "
        f"{say_count(contents.num_versions, 'version')} for ever"
    )


def _json_name(value: object) -> str:
    """The name of a task. Raises ValueError."""
    name = json_text(value)
    if re.fullmatch(IDENTIFIER, name) is None:
        raise ValueError(f"is {shorten(name)!r}, which no path can hold. {NAMES_RULE}: name it {suggest_name(name)}")
    return name


def _read(name: str, text: str) -> str:
    """A text of a query, held to the rules of the same field in a body. Raises InvalidInput."""
    try:
        return str(_TEXTS[name](text))
    except ValueError as error:
        raise InvalidInput([Fault(name, str(error))]) from None
