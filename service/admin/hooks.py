"""The routes of hooks: made, listed, tested and removed, and their events looked at.

A hook is about no single task, and its address may hold a secret of its receiver. So every route needs a key with the
scope `admin` that is for every task. This process sends nothing: events go through the outbox to the trainer.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
import structlog
from fastapi import APIRouter, Depends, Path, Query
from msgspec import Meta, Struct
from msgspec.structs import asdict
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import format_moment, to_micros
from contracts.hooks.events import EVENT_TYPES
from contracts.hooks.receivers import MAX_URL, Network, read_receiver
from contracts.hooks.signatures import make_secret, show_secret
from contracts.spec.spec_values import IDENTIFIER, NAMES_RULE, find_near, list_names, suggest_name
from service.admin import answers
from service.database import Store
from service.settings import ServiceSettings
from service.validation.json_types import Count, Moment
from service.validation.names import printable
from service.validation.values import json_text
from service.web.auth import actor_of
from service.web.bodies import read_body
from service.web.fields import Rule, json_actor, read_fields
from service.web.parameters import takes_only
from store.hooks.ledger import Hook, add_hook, find_hook, list_hooks, remove_hook
from store.hooks.outbox import SentEvent, add_test, list_events, retry_dead
from store.tasks.catalog import find_task_id
from store.tasks.catalog import list_names as list_tasks

log = structlog.get_logger(__name__)

MAX_TASKS = 1000
MAX_EVENTS = 1000
_NUM_EVENTS = 100
_PLAIN = [Depends(takes_only())]
HookInPath = Annotated[
    str, Path(alias="hook", description="name of the hook", json_schema_extra={"pattern": f"^{IDENTIFIER}$"})
]


class HookState(Struct, frozen=True, kw_only=True):
    """A hook, with what became of its events."""

    name: str
    url: Annotated[str, Meta(description="the receiver")]
    tasks: Annotated[
        list[str] | None, Meta(description="the tasks that it is for, by their present names; null for all")
    ]
    types: Annotated[list[str] | None, Meta(description="the types of events that it is for; null for all")]
    actor: str
    created_at: Moment
    num_waiting: Annotated[Count, Meta(description="events that wait for their first attempt, or for another one")]
    num_dead: Annotated[Count, Meta(description="dead letters: events that were given up after the last attempt")]
    num_delivered: Annotated[Count, Meta(description="events that the receiver has taken")]
    num_failed: Annotated[Count, Meta(description="attempts that failed")]
    answer: Annotated[
        str | None, Meta(description="what the receiver answered last to an event that it has not taken, or why not")
    ]


class HookAdded(HookState, frozen=True, kw_only=True):
    """A new hook, with its secret, which is not shown again."""

    secret: Annotated[str, Meta(description="the key of the signatures, in the form of Standard Webhooks")]


class Hooks(Struct, frozen=True):
    """By name."""

    hooks: list[HookState]


class HookEvent(Struct, frozen=True, kw_only=True):
    """An event of a hook, and what became of it."""

    id: Annotated[str, Meta(description="the id that the receiver gets", extra_json_schema={"format": "uuid"})]
    type: str
    task: Annotated[str | None, Meta(description="the present name of its task; null for a test")]
    at: Annotated[Moment, Meta(description="when it happened")]
    state: Literal["waiting", "delivered", "dead"]
    num_attempts: Count
    due_at: Annotated[
        Moment | None, Meta(description="the next attempt; null if it may begin at once, or if there is none")
    ]
    answer: Annotated[str | None, Meta(description="what the receiver answered last, or why there is no answer")]
    ended_at: Moment | None


class HookEvents(Struct, frozen=True):
    """Newest first."""

    events: list[HookEvent]


class HookTested(Struct, frozen=True):
    """A test that the trainer sends within a second or two."""

    id: Annotated[str, Meta(description="id of the event", extra_json_schema={"format": "uuid"})]


class HookRetried(Struct, frozen=True):
    """Dead letters that are sent again."""

    num_events: Count


def hooks_router(store: Store, settings: ServiceSettings) -> APIRouter:
    """The routes of /hooks."""
    router = APIRouter(tags=["hooks"])
    _add_changes(router, store, settings)
    _add_views(router, store)
    _add_outbox(router, store, settings)
    return router


def _add_changes(router: APIRouter, store: Store, settings: ServiceSettings) -> None:
    rules = _make_rules(settings.hooks_allow_private)

    @router.post(
        "/hooks",
        summary="Add a hook",
        status_code=201,
        response_description="The hook, with its secret",
        responses={404: {"description": "There is no such task"}, 409: {"description": "There is a hook of this name"}},
        dependencies=_PLAIN,
    )
    async def post_hook(request: Request) -> Response:
        """Send events to a receiver: of these tasks and types, or of all. What happened before is not sent."""
        given = read_fields(await read_body(request, settings), rules, required=("name", "url"))
        actor, now, secret = actor_of(request, given.get("actor")), datetime.now(UTC), make_secret()
        tasks: list[str] | None = given.get("tasks")

        def add(connection: Connection) -> HookState:
            task_ids = None if tasks is None else [find_task_id(connection, task) for task in tasks]
            hook = add_hook(
                connection,
                given["name"],
                given["url"],
                secret,
                task_ids=task_ids,
                types=given.get("types"),
                actor=actor,
                now=now,
            )
            return _describe(hook, _name_tasks(connection))

        added = await store.run(add)
        log.info("hook.added", hook=added.name, actor=actor)
        return answers.respond(HookAdded(**asdict(added), secret=show_secret(secret)), 201)

    @router.delete(
        "/hooks/{hook}",
        summary="Remove a hook",
        response_description="The hook as it was",
        dependencies=_PLAIN,
    )
    async def delete_hook(name: HookInPath, request: Request) -> Response:
        """Remove it with its events: those that wait are not sent any more."""
        removed = await store.run(lambda connection: _describe(remove_hook(connection, name), _name_tasks(connection)))
        log.info("hook.removed", hook=name, actor=actor_of(request, None), num_waiting=removed.num_waiting)
        return answers.respond(removed)


def _add_views(router: APIRouter, store: Store) -> None:
    @router.get("/hooks", summary="List the hooks", response_description="The hooks", dependencies=_PLAIN)
    async def get_hooks() -> Response:
        """All hooks, with the numbers of their events. Secrets are not shown."""

        def read(connection: Connection) -> Hooks:
            names = _name_tasks(connection)
            return Hooks([_describe(hook, names) for hook in list_hooks(connection)])

        return answers.respond(await store.run(read))

    @router.get(
        "/hooks/{hook}/events",
        summary="Events of a hook",
        response_description="The events",
        dependencies=[Depends(takes_only("limit"))],
    )
    async def get_events(
        name: HookInPath,
        limit: Annotated[int, Query(ge=1, le=MAX_EVENTS, description="most events of the answer")] = _NUM_EVENTS,
    ) -> Response:
        """The newest events, delivered or not. A delivered one is kept for a week, a dead letter for 30 days."""
        found = await store.run(lambda connection: list_events(connection, find_hook(connection, name).hook_id, limit))
        return answers.respond(HookEvents([_describe_event(event) for event in found]))


def _add_outbox(router: APIRouter, store: Store, settings: ServiceSettings) -> None:
    rules: dict[str, Rule] = {"actor": json_actor}

    @router.post(
        "/hooks/{hook}/test",
        summary="Test a hook",
        status_code=202,
        response_description="The event, which the trainer sends",
        dependencies=_PLAIN,
    )
    async def post_test(name: HookInPath, request: Request) -> Response:
        """Send an event of the type `morrow.hook.test` once. Its entry in the list of events says what came back."""
        given, now = read_fields(await read_body(request, settings), rules), datetime.now(UTC)
        event_id = await store.run(lambda connection: add_test(connection, find_hook(connection, name).hook_id, now))
        log.info("hook.tested", hook=name, actor=actor_of(request, given.get("actor")), event_id=str(event_id))
        return answers.respond(HookTested(str(event_id)), 202)

    @router.post(
        "/hooks/{hook}/retry",
        summary="Retry dead letters",
        response_description="How many there are",
        dependencies=_PLAIN,
    )
    async def post_retry(name: HookInPath, request: Request) -> Response:
        """Send all events again that were given up, with the ids that they had."""
        given, now = read_fields(await read_body(request, settings), rules), datetime.now(UTC)
        count = await store.run(lambda connection: retry_dead(connection, find_hook(connection, name).hook_id, now))
        log.info("hook.retried", hook=name, actor=actor_of(request, given.get("actor")), num_events=count)
        return answers.respond(HookRetried(count))


def _make_rules(allowed: Sequence[Network]) -> dict[str, Rule]:
    def json_receiver(value: object) -> str:
        return read_receiver(json_text(value, MAX_URL), allowed)

    return {
        "name": _json_name,
        "url": json_receiver,
        "tasks": _json_tasks,
        "types": _json_types,
        "actor": json_actor,
    }


def _json_name(value: object) -> str:
    name = json_text(value)
    if re.fullmatch(IDENTIFIER, name) is None:
        raise ValueError(f"is {printable(name)!r}, which no path can hold. {NAMES_RULE}: name it {suggest_name(name)}")
    return name


def _json_tasks(value: object) -> list[str]:
    """Names of tasks, each once. Raises ValueError."""
    return _json_list(value, "tasks", MAX_TASKS)


def _json_types(value: object) -> list[str]:
    """Types of events, each once. Raises ValueError."""
    types = _json_list(value, "types of events", MAX_TASKS)
    for one in types:
        if one not in EVENT_TYPES:
            near = find_near(one, tuple(EVENT_TYPES))
            raise ValueError(
                f"holds {printable(one)!r}, which is no type of events: "
                + (f"write {near}" if near else f"write some of {list_names([*EVENT_TYPES])}")
            )
    return types


def _json_list(value: object, what: str, most: int) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"is not a list of {what}")
    if not value:
        raise ValueError(f"is an empty list: leave it out for all {what}")
    if len(value) > most:
        raise ValueError(f"holds more than {most} {what}")
    return list(dict.fromkeys(json_text(one) for one in value))


def _name_tasks(connection: Connection) -> Mapping[int, str]:
    return {one.task_id: one.name for one in list_tasks(connection, with_archived=True)}


def _describe(hook: Hook, names: Mapping[int, str]) -> HookState:
    return HookState(
        name=hook.name,
        url=hook.url,
        tasks=None
        if hook.task_ids is None
        else [names.get(task_id, f"task {task_id}, which is deleted") for task_id in hook.task_ids],
        types=None if hook.types is None else list(hook.types),
        actor=hook.actor,
        created_at=format_moment(to_micros(hook.created_at)),
        num_waiting=hook.num_waiting,
        num_dead=hook.num_dead,
        num_delivered=hook.num_delivered,
        num_failed=hook.num_failed,
        answer=hook.answer,
    )


def _describe_event(event: SentEvent) -> HookEvent:
    return HookEvent(
        id=str(event.event_id),
        type=event.event_type,
        task=event.task,
        at=format_moment(to_micros(event.at)),
        state=msgspec.convert(event.state, Literal["waiting", "delivered", "dead"]),
        num_attempts=event.num_attempts,
        due_at=_moment(event.due_at),
        answer=event.answer,
        ended_at=_moment(event.ended_at),
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(to_micros(moment))
