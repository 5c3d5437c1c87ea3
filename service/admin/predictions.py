"""GET /predictions/{prediction_id}: a logged answer, with what was asked."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from contracts.clock import format_moment, to_micros
from contracts.errors import NotFound
from service.admin import answers
from service.database import Store
from service.validation.json_types import Moment
from service.validation.names import printable
from service.web.keys.task_access import tasks_of
from service.web.parameters import takes_only
from store.predictions.ids import read_id
from store.predictions.lookups import LoggedPrediction, find_prediction


class LoggedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the log. It does not change, whatever becomes of its task or version."""

    id: Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
    task: Annotated[str, Meta(description="the present name of its task")]
    version: Annotated[str, Meta(description="the version that answered")]
    asked_at: Annotated[Moment, Meta(description="when it was answered, to the millisecond")]
    at: Annotated[Moment, Meta(description="the moment that was asked about")]
    key: Annotated[str | None, Meta(description="name of the key that asked; null if none was needed")]
    features: Annotated[
        dict[str, Any] | None,
        Meta(description="by name, null if missing; null in all if the task logs no features"),
    ]
    answer: Annotated[dict[str, Any], Meta(description="the answer as it was given, without its id")]


def predictions_router(store: Store) -> APIRouter:
    """The route of /predictions/{prediction_id}."""
    router = APIRouter(tags=["predict"], dependencies=[Depends(takes_only())])

    @router.get(
        "/predictions/{prediction_id}",
        summary="Show a logged answer",
        response_description="What was asked and what was answered",
    )
    async def get_prediction(
        prediction_id: Annotated[str, Path(description="the `id` of an answer")], request: Request
    ) -> Response:
        """An answer of `/predict` by its id. It is in the log within a second of the answer, if its task logs it, and
        until it is as old as `log.days` of the task, or erased.
        """
        found, allowed = read_id(prediction_id), tasks_of(request.scope)
        row = None if found is None else await store.run(lambda connection: find_prediction(connection, found, allowed))
        if row is None:
            raise NotFound(
                f"There is no logged prediction {printable(prediction_id)!r}: the log does not have it yet or any "
                "longer, or `log` of its task leaves it out."
            )
        return answers.respond(_describe(row))

    return router


def _describe(row: LoggedPrediction) -> LoggedAnswer:
    return LoggedAnswer(
        id=str(row.prediction_id),
        task=row.task,
        version=row.version,
        asked_at=format_moment(to_micros(row.asked_at)),
        at=format_moment(to_micros(row.at)),
        key=row.key_name,
        features=row.features,
        answer=row.answer,
    )
