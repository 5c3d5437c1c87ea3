"""The routes of lineage: the rows that a version was fitted on, and the versions that an event has been part of."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from msgspec.structs import asdict
from sqlalchemy import Connection
from starlette.responses import Response

from contracts.clock import format_moment, to_micros
from service.admin import answers
from service.admin.stored_events import event_answers
from service.database import Store
from service.web.parameters import ID_PATTERN, WITHOUT_NUL, TaskInPath, check_texts, read_id, takes_only
from store.cycles.trained_versions import TrainedVersion, find_trained_version
from store.events.fitted_rows import FittedRow, count_withdrawn, list_fits_of_event, list_fitted_rows
from store.events.reading.unstored import is_withheld
from store.tasks.catalog import find_task

NUM_ROWS, MOST_ROWS = 100, 1000
NUM_CYCLES, MOST_CYCLES = 20, 100

_VersionInPath = Annotated[
    str,
    Path(
        alias="version",
        description="number of a version in the registry",
        json_schema_extra={"pattern": f"^{ID_PATTERN}$"},
    ),
]


def lineage_router(store: Store) -> APIRouter:
    """The routes below /tasks/{task}/versions and /tasks/{task}/events."""
    router = APIRouter(tags=["tasks"])

    @router.get(
        "/tasks/{task}/versions/{version}/rows",
        summary="Rows of a version",
        response_description="Their number and digest, and a page of them",
        dependencies=[Depends(takes_only("after", "limit"))],
    )
    async def get_rows(
        name: TaskInPath,
        given_version: _VersionInPath,
        *,
        after: Annotated[
            str | None,
            Query(
                description="begin after the event of this id: `next` of the page before",
                json_schema_extra=WITHOUT_NUL,
            ),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="most rows of the answer")] = NUM_ROWS,
    ) -> Response:
        """The events that the fit of a version has read, as it has read them: known at the cutoff, in the revision of
        then, with the features of the task as it was. Corrections that came later do not show. Erased events are
        marked, and only their ids are known; retracted ones are gone, and only counted.
        """
        version = str(read_id(given_version, "version"))
        check_texts({} if after is None else {"after": after})

        def read(connection: Connection) -> event_answers.FitRows:
            task_id = find_task(connection, name).task_id
            trained = find_trained_version(connection, task_id, version)
            page = list_fitted_rows(connection, trained, task_id, after=after, limit=limit)
            num_erased, num_retracted = count_withdrawn(connection, task_id, trained.read_at)
            return event_answers.FitRows(
                **asdict(describe_fit(trained)),
                num_rows=trained.num_rows,
                digest=trained.rows_digest,
                num_erased_since=num_erased,
                num_retracted_since=num_retracted,
                rows=[_describe_row(row) for row in page.rows],
                next=page.next,
            )

        return answers.respond(await store.run(read))

    @router.get(
        "/tasks/{task}/events/{event_id:path}/versions",
        summary="Versions of an event",
        response_description="The versions whose fits have read the event",
        dependencies=[Depends(takes_only("after", "limit"))],
    )
    async def get_versions(
        name: TaskInPath,
        event_id: Annotated[str, Path(description="id of a stored event")],
        *,
        after: Annotated[
            int | None, Query(ge=1, lt=10**18, description="begin after this cycle: `next` of the page before")
        ] = None,
        limit: Annotated[
            int, Query(ge=1, le=MOST_CYCLES, description="most cycles that are looked at for the answer")
        ] = NUM_CYCLES,
    ) -> Response:
        """Each version whose fit has read the event, and the revision that it read. A page may hold fewer versions
        than `limit`, or none, while `next` names another page.
        """

        def read(connection: Connection) -> event_answers.EventVersions:
            task_id = find_task(connection, name).task_id
            found = list_fits_of_event(connection, task_id, event_id, after=after, limit=limit)
            versions = [
                event_answers.EventVersion(
                    **asdict(describe_fit(one.trained)), revision=one.revision, withheld=is_withheld(event_id)
                )
                for one in found.fits
            ]
            return event_answers.EventVersions(event_id=event_id, versions=versions, next=found.next)

        return answers.respond(await store.run(read))

    return router


def describe_fit(trained: TrainedVersion) -> event_answers.FitRead:
    """A version with the moments that say which rows its fit has read."""
    return event_answers.FitRead(
        version=trained.version,
        cycle=trained.cycle_id,
        state=trained.state,
        cutoff=format_moment(trained.cutoff),
        read_at=format_moment(to_micros(trained.read_at)),
    )


def _describe_row(row: FittedRow) -> event_answers.FitRow:
    return event_answers.FitRow(
        event_id=row.event_id,
        revision=row.revision,
        at=format_moment(row.at),
        known_at=format_moment(row.known_at),
        received_at=format_moment(row.received_at),
        features=row.features,
        label=row.label,
        withheld=row.withheld,
        erased=row.is_erased,
    )
