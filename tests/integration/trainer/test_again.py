"""A cutoff that has been released is trained once more: with a new recipe, with more rows, or on request."""

from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from contracts.errors import Conflict
from store.cycles.leases import claim_cycle
from store.cycles.ledger import Cycle
from store.cycles.requests import request_cycle
from store.releases import list_releases
from store.tasks.catalog import Schema, define_task
from tests.integration.drifting_task import (
    HOUR,
    START,
    add_windows,
    carry_out,
    cutoff_after,
    cycles_of,
    define,
    drifting_task,
    now,
    retrain,
)
from trainer.tracking.registry import Registry

NUM_WINDOWS = 10


def retrain_again(engine: Engine, registry: Registry, schema: Schema, home: Path, *, again: bool = True) -> Cycle:
    """Another cycle at the same cutoff, as it ended."""
    with engine.begin() as connection:
        request_cycle(
            connection, schema.task_id, cutoff_after(NUM_WINDOWS), now(), recipe=schema.task.recipe, again=again
        )
        cycle = claim_cycle(connection, uuid4().hex, now(), 10 * HOUR)
    assert cycle is not None
    return carry_out(engine, registry, cycle, home)


@pytest.fixture
def schema(engine: Engine, registry: Registry, tmp_path: Path) -> Schema:
    """A task whose version 1 is released."""
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    assert retrain(engine, registry, schema, NUM_WINDOWS, tmp_path).version == "1"
    return schema


def test_a_new_recipe_is_released_for_a_cutoff_of_the_old_one(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path
) -> None:
    with pytest.raises(Conflict):
        retrain_again(engine, registry, schema, tmp_path, again=False)
    wider = schema.task.with_training(schema.task.training.model_copy(update={"width": 12}))
    with engine.begin() as connection:
        changed, _ = define_task(connection, wider, START)
    second = retrain_again(engine, registry, changed, tmp_path, again=False)
    assert (second.state, second.version, second.attempt) == ("released", "2", 2)
    champion = registry.champion(schema.task.name)
    assert champion is not None
    assert (champion.version, champion.cutoff) == ("2", cutoff_after(NUM_WINDOWS))
    with engine.connect() as connection:
        rows = list_releases(connection, schema.task_id)
    assert [(row.version, row.matrix.recipe if row.matrix else None) for row in rows] == [
        ("2", wider.recipe),
        ("1", schema.task.recipe),
    ]


def test_rows_that_came_later_are_trained_on_request(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 0)
    add_windows(engine, schema, 3, NUM_WINDOWS)
    first = retrain(engine, registry, schema, NUM_WINDOWS, tmp_path)
    add_windows(engine, schema, 0, 3)
    second = retrain_again(engine, registry, schema, tmp_path)
    assert (first.state, second.state) == ("released", "released")
    assert (first.version, second.version) == ("1", "2")
    assert (first.num_rows, second.num_rows) == (7 * 150, 10 * 150)
    assert second.replaces == first.cycle_id


def test_a_repetition_that_changes_nothing_is_the_same_version(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path
) -> None:
    second = retrain_again(engine, registry, schema, tmp_path)
    assert (second.state, second.version) == ("released", "1")
    assert [cycle.state for cycle in cycles_of(engine, schema)] == ["released", "released"]
