"""What no request completed: void halves go, labels of answers join the log, and overdue labels become refused rows."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, select

from contracts.clock import to_micros
from store.database import events, incomplete_events, predictions, rejected_events
from store.events.writes import append_events
from store.labels.late_labels import Label, append_labels
from store.labels.sweep import Swept, list_tasks_with_halves, sweep_halves
from store.predictions.ids import PredictionIds
from store.tasks.catalog import Schema, define_task
from store.tasks.row_counts import count_rows
from tests.integration.store.test_corrections import DEMAND, NOW, START, event

WAIT = timedelta(days=30)


@pytest.fixture
def schema(engine: Engine) -> Schema:
    with engine.begin() as connection:
        return define_task(connection, DEMAND, NOW)[0]


def keep_half(connection: Connection, schema: Schema, event_id: str, **half: Any) -> None:
    """A half as a writer leaves it that was as fast as the writer of the whole event."""
    key = {"task_id": schema.task_id, "event_id": event_id, "schema_id": schema.schema_id, "received_at": NOW}
    connection.execute(incomplete_events.insert().values({**key, **half}))


def test_void_halves_go_and_another_label_is_reported(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event("a"), event("b"), event("c")], NOW)
        keep_half(connection, schema, "a", at=NOW, numbers=[1.0], categories=["r"])
        keep_half(connection, schema, "b", label="yes")
        keep_half(connection, schema, "c", label="no")
        keep_half(connection, schema, "d", label="no")
        assert list_tasks_with_halves(connection) == [schema.task_id]
        assert sweep_halves(connection, schema, NOW, WAIT) == Swept(num_void=3)
        left = connection.execute(select(incomplete_events.c.event_id)).scalars().all()
        refused = connection.execute(select(rejected_events.c.event_id, rejected_events.c.payload)).all()
        assert (left, refused) == (["d"], [("c", "no")])
        assert count_rows(connection, schema.task_id).num_waiting == 1


def test_a_label_that_was_faster_than_the_log_joins_once(engine: Engine, schema: Schema) -> None:
    prediction_id = UUID(bytes=PredictionIds().make(START))
    row = {"id": prediction_id, "task_id": schema.task_id, "version": "1", "at": NOW, "answer": {}}
    with engine.begin() as connection:
        labels = [Label(str(prediction_id), "yes")]
        assert append_labels(connection, [schema], labels, NOW) == ["waiting"]
        assert sweep_halves(connection, schema, NOW, WAIT) == Swept()
        connection.execute(predictions.insert().values(row | {"features": {"load": 2.0, "region": "r"}}))
        assert sweep_halves(connection, schema, NOW, WAIT) == Swept(num_joined=1)
        assert sweep_halves(connection, schema, NOW, WAIT) == Swept()
        assert append_labels(connection, [schema], labels, NOW) == ["duplicate"]
        (stored,) = connection.execute(select(events)).all()
    assert (stored.event_id, stored.label, stored.numbers, to_micros(stored.at)) == (
        str(prediction_id),
        "yes",
        [2.0],
        START,
    )


def test_a_label_without_an_event_is_reported_after_the_time_limit(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_labels(connection, [schema], [Label("x", "yes")], NOW)
        assert sweep_halves(connection, schema, NOW + WAIT, WAIT) == Swept()
        assert sweep_halves(connection, schema, NOW + WAIT + timedelta(seconds=1), WAIT) == Swept(num_overdue=1)
        (row,) = connection.execute(select(rejected_events)).all()
        assert count_rows(connection, schema.task_id).num_waiting == 0
    assert (row.event_id, row.payload) == ("x", "yes")
    assert row.reason == "label: no event or answer of this id came within 30 days"
