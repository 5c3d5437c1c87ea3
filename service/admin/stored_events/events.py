"""GET /tasks/{task}/events: stored events by their moments, also to find the ids of rows that were sent without one."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from msgspec import Meta, Struct
from pydantic import JsonValue
from sqlalchemy import Connection
from starlette.responses import Response

from contracts.clock import to_micros
from contracts.spec.spec_values import SCHEMA_PRINTABLE
from service.admin import answers
from service.database import Store
from service.ingest.stored_event import EventFound, describe_event
from service.web.parameters import TaskInPath, read_moment, takes_only
from store.database import FIRST_MOMENT, LAST_MOMENT
from store.events.stored_event import list_events
from store.tasks.catalog import find_task

MAX_LISTED = 1000
PAGE_SIZE = 100
_MOMENT: dict[str, JsonValue] = {"format": "date-time"}


class ListedEvents(Struct, frozen=True):
    """Newest first; of one moment, the greatest id first."""

    events: list[EventFound]
    next: Annotated[str | None, Meta(description="`after` of the next page; null if there is none")]


def events_router(store: Store) -> APIRouter:
    """The route of /tasks/{task}/events."""
    router = APIRouter(tags=["events"])

    @router.get(
        "/tasks/{task}/events",
        summary="List stored events",
        response_description="The events",
        dependencies=[Depends(takes_only("from", "until", "limit", "after"))],
    )
    async def get_events(
        name: TaskInPath,
        *,
        since: Annotated[
            str | None,
            Query(alias="from", description="only events of this moment or later", json_schema_extra=_MOMENT),
        ] = None,
        until: Annotated[
            str | None, Query(description="only events before this moment", json_schema_extra=_MOMENT)
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="most events of the answer")] = PAGE_SIZE,
        after: Annotated[
            str | None,
            Query(
                min_length=1,
                description="begin after the event of this id: `next` of the page before",
                json_schema_extra={"pattern": SCHEMA_PRINTABLE},
            ),
        ] = None,
    ) -> Response:
        """Labelled events by their moments, each in its present revision and in the form in which PUT takes it back.

        It finds the id of a row that was sent without one. Events that wait for their label are not listed.
        """
        first = to_micros(FIRST_MOMENT) if since is None else read_moment(since, "from")
        last = to_micros(LAST_MOMENT) if until is None else read_moment(until, "until") - 1

        def read(connection: Connection) -> ListedEvents:
            task_id = find_task(connection, name).task_id
            if last < first:
                return ListedEvents([], None)
            found = list_events(connection, task_id, first=first, last=last, after=after, limit=limit + 1)
            page = found[:limit]
            return ListedEvents([*map(describe_event, page)], page[-1].event_id if len(found) > limit else None)

        return answers.respond(await store.run(read))

    return router
