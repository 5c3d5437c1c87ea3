"""Erasure on request over HTTP: the values of events are deleted for good, and actor and reason are recorded."""

from datetime import UTC, datetime

from fastapi import APIRouter, Depends
from msgspec.structs import asdict
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import format_moment, to_micros
from service.admin import answers
from service.admin.stored_events import event_answers
from service.admin.stored_events.sealed_files import rewrite_files
from service.database import Store
from service.settings import ServiceSettings
from service.web.auth import actor_of
from service.web.bodies import read_body
from service.web.fields import Rule, json_actor, json_ids, json_reason, read_fields
from service.web.parameters import TaskInPath, takes_only
from store.events.erasures import Erasure, erase_events, find_trained, list_erasures
from store.events.sealed.rewriting import list_stale
from store.tasks.catalog import find_task


def erasures_router(store: Store, settings: ServiceSettings) -> APIRouter:
    """The routes of /tasks/{task}/erasures."""
    router = APIRouter(tags=["tasks"], dependencies=[Depends(takes_only())])

    @router.post("/tasks/{task}/erasures", summary="Erase events", response_description="What was erased")
    async def post_erasure(name: TaskInPath, request: Request) -> Response:
        """Erase all revisions of these events, and the refused rows and logged answers with their ids, for good.

        A tombstone keeps each id from being stored again. `versions` lists the versions that were trained on any of
        the events; they answer as before. A running cycle has already read its rows. An id that is not stored is
        `unknown`.
        """
        rules: dict[str, Rule] = {"event_ids": json_ids, "reason": json_reason, "actor": json_actor}
        given = read_fields(await read_body(request, settings), rules, required=("event_ids", "reason"))
        actor, now = actor_of(request, given.get("actor")), datetime.now(UTC)

        def erase(connection: Connection) -> tuple[event_answers.ErasureResult, list[int]]:
            schema, event_ids = find_task(connection, name), given["event_ids"]
            versions = find_trained(connection, schema.task_id, event_ids)
            erasure, outcomes = erase_events(
                connection, schema, event_ids, actor=actor, reason=given["reason"], now=now
            )
            results = [event_answers.ErasedEvent(*one) for one in zip(event_ids, outcomes, strict=True)]
            erased = event_answers.ErasureResult(
                **asdict(describe_erasure(erasure)), versions=versions, results=results
            )
            return erased, list_stale(connection, schema.task_id)

        result, stale = await store.run(erase, [name])
        await rewrite_files(store, stale, now)
        return answers.respond(result)

    @router.get("/tasks/{task}/erasures", summary="History of erasures", response_description="The erasures")
    async def get_erasures(name: TaskInPath) -> Response:
        """Newest first; at most 1000. Ids are not shown."""
        rows = await store.run(lambda connection: list_erasures(connection, find_task(connection, name).task_id))
        return answers.respond(event_answers.Erasures([describe_erasure(row) for row in rows]))

    return router


def describe_erasure(erasure: Erasure) -> event_answers.Erasure:
    """A row of the history."""
    return event_answers.Erasure(
        id=erasure.erasure_id,
        at=format_moment(to_micros(erasure.at)),
        actor=erasure.actor,
        reason=erasure.reason,
        num_events=erasure.num_events,
        num_revisions=erasure.num_revisions,
        num_rejected=erasure.num_rejected,
        num_predictions=erasure.num_predictions,
    )
