"""The list of tasks: few statements however many tasks there are, and nothing older than the newest cycle."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from service.dashboard.queries import read_overviews
from service.models.task_state import TaskState, read_task_state
from store.error_cells import Cell, record_cells
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import NOW, define, run_cycle
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio


def states_of(engine: Engine, schemas: list[Schema]) -> dict[str, TaskState]:
    """What a follower reads at its poll."""
    with engine.connect() as connection:
        return {schema.task.name: read_task_state(connection, schema, None) for schema in schemas}


@pytest.mark.parametrize("num_tasks", [2, 30])
def test_the_list_takes_as_many_statements_for_many_tasks_as_for_a_few(engine: Engine, num_tasks: int) -> None:
    schemas = [define(engine) for _ in range(num_tasks)]
    for schema in schemas:
        run_cycle(engine, schema, CUTOFF, "skipped", "too few rows")
    task_states, statements = states_of(engine, schemas), list[str]()
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    with engine.connect() as connection:
        found = read_overviews(connection, {}, task_states)
    assert len(found) == num_tasks
    assert len([statement for statement in statements if "FROM" in statement]) == 3


def test_a_task_with_a_newer_cycle_than_the_last_poll_saw_is_read_again(engine: Engine) -> None:
    schema = define(engine)
    task_states = states_of(engine, [schema])
    run_cycle(engine, schema, CUTOFF, "failed", "no memory")
    with engine.connect() as connection:
        (found,) = read_overviews(connection, {}, task_states)
    assert [attempt.reason for attempt in found.task_state.recent] == ["no memory"]


async def test_a_row_shows_the_skill_and_the_newest_errors(database_url: str, engine: Engine, tmp_path: Path) -> None:
    schema = define(engine)
    cells = [
        Cell(origin, origin, method, 50, factor * (0.2 + place / 100), 0.1)
        for method, factor in (("gi", 1.0), ("naive", 2.0))
        for place in range(4)
        for origin in [CUTOFF - place * WEEK]
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, NOW)
    async with serving(service_settings(database_url, tmp_path)) as client:
        page = (await client.get("/")).text
        status = (await client.get(f"/tasks/{schema.task.name}")).json()
        own = (await client.get(f"/pages/{schema.task.name}")).text
    assert "50 % better than naive" in page
    assert "Realised error of the newest 4 windows: 0.23 at first, 0.2 at last" in page
    assert "1 without model" in page
    assert status["skill"]["skill"] == pytest.approx(50)
    assert (status["skill"]["num_windows"], status["skill"]["advice"]) == (4, [])
    assert "50 % better than naive" in own


async def test_a_newer_window_counts_as_soon_as_it_is_scored(database_url: str, engine: Engine, tmp_path: Path) -> None:
    schema = define(engine)
    path = f"/tasks/{schema.task.name}"
    async with serving(service_settings(database_url, tmp_path)) as client:
        assert (await client.get(path)).json()["skill"] is None
        for method, loss in (("gi", 0.5), ("naive", 0.4), ("base_time", 0.3)):
            with engine.begin() as connection:
                cell = Cell(CUTOFF, CUTOFF, method, 50, loss, 0.1)
                record_cells(connection, schema.task_id, schema.task.recipe, [cell], NOW)
        skill = (await client.get(path)).json()["skill"]
        page = (await client.get(f"/pages/{schema.task.name}")).text
    assert (skill["naive"], skill["error"], skill["skill"]) == (0.4, 0.5, pytest.approx(-25))
    assert [(rival["method"], rival["error"]) for rival in skill["rivals"]] == [("base_time", 0.3)]
    assert 'set training.method = "base_time"' in skill["advice"][0]
    assert "25 % worse than naive" in page
    assert "base_time" in page
