"""What a window holds by a moment: counted in PostgreSQL, and read in parts, as the whole read says."""

from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Connection, Engine

from store.events.reading.columns import read_events
from store.events.reading.counts import read_fingerprints
from store.events.writes import correct_event
from store.tasks.catalog import Schema, define_task
from tests.integration.drifting_task import START, cutoff_after, define, drifting_events, drifting_task
from tests.integration.live_job import append, moment
from trainer.data.snapshot import Reading

# An offset, so that boundaries are not those of the epoch's hours.
TASK = drifting_task(offset="PT20M")
MINUTE = 60_000_000


@pytest.fixture
def schema(engine: Engine) -> Schema:
    """Three hours of rows, half of the last known an hour late, and two corrections, one into another window."""
    schema = define(engine, TASK, 2)
    late = [
        replace(event, known_at=event.known_at + 60 * MINUTE * (k % 2)) for k, event in enumerate(drifting_events(2, 3))
    ]
    append(engine, schema, late)
    first, second, *_ = drifting_events(0, 1)
    with engine.begin() as connection:
        correct_event(connection, schema, replace(first, label="maybe"), moment(2))
        correct_event(connection, schema, replace(second, at=cutoff_after(2)), moment(2.5))
    return schema


def reading(connection: Connection, schema: Schema, cutoff: int) -> Reading:
    return Reading(schema, cutoff, cutoff, read_events(connection, schema.task_id, schema.task, cutoff))


@pytest.mark.parametrize("minutes", [40, 119, 120, 149, 150, 170, 239, 1000])
def test_counts_are_those_of_what_is_read_as_of_any_moment(engine: Engine, schema: Schema, minutes: int) -> None:
    cutoff = cutoff_after(0) + minutes * MINUTE
    since = TASK.clock.window_start(cutoff_after(0))
    with engine.connect() as connection:
        whole = reading(connection, schema, cutoff)
        assert read_fingerprints(connection, schema.task_id, TASK, cutoff, since=since) == whole.fingerprints
        later = read_fingerprints(connection, schema.task_id, TASK, cutoff, since=since + TASK.clock.window)
    assert later == {window: found for window, found in whole.fingerprints.items() if window > since}


def test_rows_of_another_target_are_not_counted(engine: Engine, schema: Schema) -> None:
    other = TASK.model_copy(update={"target": TASK.target.model_copy(update={"name": "z"})})
    with engine.begin() as connection:
        define_task(connection, other, START)
        assert read_fingerprints(connection, schema.task_id, other, cutoff_after(9), since=cutoff_after(-1)) == {}


def test_a_window_read_alone_holds_what_it_holds_in_the_whole(engine: Engine, schema: Schema) -> None:
    cutoff = cutoff_after(3)
    with engine.connect() as connection:
        whole = read_events(connection, schema.task_id, TASK, cutoff)
        parts = [
            read_events(connection, schema.task_id, TASK, cutoff, since=cutoff_after(k), until=cutoff_after(k + 1))
            for k in range(3)
        ]
        nothing = read_events(connection, schema.task_id, TASK, cutoff, since=cutoff, until=cutoff_after(4))
    assert np.concatenate([part.at for part in parts]).tolist() == whole.at.tolist()
    for k, part in enumerate(parts):
        inside = whole.select((whole.at >= cutoff_after(k)) & (whole.at < cutoff_after(k + 1)))
        assert part.digest == inside.digest
        assert part.superseded_at.tolist() == inside.superseded_at.tolist()
    assert len(nothing.as_of(cutoff)) == 0
