"""One logged prediction: what was asked, and what was answered."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from store.database import predictions, tasks
from store.predictions.ids import moment_of


@dataclass(frozen=True)
class LoggedPrediction:
    """A row of the log. `features` is None if the task logs none; `task` is the present name of its task."""

    prediction_id: UUID
    task_id: int
    task: str
    version: str
    at: datetime
    key_name: str | None
    features: dict[str, Any] | None
    answer: dict[str, Any]

    @property
    def asked_at(self) -> datetime:
        """When it was answered, to the millisecond."""
        return moment_of(self.prediction_id)


def find_prediction(
    connection: Connection, prediction_id: UUID, task_ids: Collection[int] | None = None
) -> LoggedPrediction | None:
    """The logged prediction of this id; None if it is not logged, or not of one of these tasks."""
    columns = predictions.c
    query = (
        select(
            columns.id,
            columns.task_id,
            tasks.c.name,
            columns.version,
            columns.at,
            columns.key_name,
            columns.features,
            columns.answer,
        )
        .join(tasks, tasks.c.id == columns.task_id)
        .where(columns.id == prediction_id, tasks.c.lifecycle != "deleting")
    )
    if task_ids is not None:
        query = query.where(columns.task_id.in_(task_ids))
    row = connection.execute(query).one_or_none()
    return None if row is None else LoggedPrediction(*row)
