"""The page with all tasks: few statements however many tasks there are, and nothing older than the newest cycle."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from service.dashboard import queries
from service.dashboard.list_page import PAGE_SIZE, Followed, ListPage, Wanted, read_list_page
from service.models.task_states.stored_states import read_task_state
from store.error_cells import Cell, record_cells
from store.tasks.catalog import Schema, list_tasks
from store.tasks.lifecycle import move_task
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import NOW, define, note, run_cycle
from tests.integration.service_app import an_event, service_settings, serving
from tests.integration.statements import counting_statements

pytestmark = pytest.mark.anyio


LIMIT = timedelta(hours=1)


def followed(engine: Engine, schemas: Sequence[Schema]) -> Followed:
    """What a follower knows after its poll."""
    with engine.connect() as connection:
        states = {schema.task.name: read_task_state(connection, schema, None) for schema in schemas}
    return Followed(names=list(states), task_states=states)


def read(engine: Engine, known: Followed, wanted: Wanted | None = None) -> ListPage:
    with engine.connect() as connection:
        return read_list_page(connection, known, wanted or Wanted(), now=NOW, cycle_limit=LIMIT)


@pytest.mark.parametrize(("num_tasks", "are_newer"), [(2, False), (70, False), (70, True)])
def test_the_list_takes_as_many_statements_for_many_tasks_as_for_a_few(
    engine: Engine, num_tasks: int, are_newer: bool
) -> None:
    schemas = [define(engine) for _ in range(num_tasks)]
    known = followed(engine, schemas) if are_newer else None
    for schema in schemas:
        run_cycle(engine, schema, CUTOFF, "skipped", "too few rows")
    known = known or followed(engine, schemas)
    with counting_statements(engine) as statements:
        found = read(engine, known)
    assert (found.num_found, len(found.overviews)) == (num_tasks, min(num_tasks, PAGE_SIZE))
    assert {state.recent[0].reason for one in found.overviews.values() for state in [one.task_state]} == {
        "too few rows"
    }
    assert len([statement for statement in statements if "FROM" in statement]) == 3


def test_a_task_with_a_newer_cycle_than_the_last_poll_saw_is_read_again(engine: Engine) -> None:
    schema = define(engine)
    known = followed(engine, [schema])
    run_cycle(engine, schema, CUTOFF, "failed", "no memory")
    (found,) = read(engine, known).overviews.values()
    assert [attempt.reason for attempt in found.task_state.recent] == ["no memory"]


def test_a_task_that_no_poll_has_seen_yet_is_listed(engine: Engine) -> None:
    schema = define(engine)
    run_cycle(engine, schema, CUTOFF, "held", "suspect")
    found = read(engine, Followed())
    assert [entry.name for entry in found.entries] == [schema.task.name]
    assert found.overviews[schema.task.name].task_state.recent[0].state == "held"


def test_the_worst_tasks_stand_on_the_first_page_and_a_state_or_a_part_of_a_name_is_found_on_all(
    engine: Engine,
) -> None:
    schemas = [define(engine) for _ in range(PAGE_SIZE + 3)]
    failing, paused, archived = schemas[-3:]
    run_cycle(engine, failing, CUTOFF, "failed", "no memory")
    with engine.begin() as connection:
        move_task(connection, paused.task.name, "pause", actor="a", reason="r", now=NOW)
        move_task(connection, archived.task.name, "archive", actor="a", reason="r", now=NOW)
    with engine.connect() as connection:
        stored = list_tasks(connection, with_archived=True)
    known = followed(engine, stored)
    first, second = read(engine, known), read(engine, known, Wanted(page=2))
    assert (first.num_found, first.num_pages, first.num_tasks) == (PAGE_SIZE + 2, 2, PAGE_SIZE + 3)
    assert first.entries[0].name == failing.task.name
    assert second.entries[-1].name == paused.task.name
    assert not {entry.name for entry in first.entries} & {entry.name for entry in second.entries}
    assert read(engine, known, Wanted(page=9)).page == 2
    assert [(one.count, one.words) for one in first.strip] == [
        (PAGE_SIZE + 1, "without model"),
        (1, "paused"),
        (1, "archived"),
    ]
    assert [entry.name for entry in read(engine, known, Wanted(state="archived")).entries] == [archived.task.name]
    part = paused.task.name.removeprefix("flights").upper()
    assert [entry.name for entry in read(engine, known, Wanted(name=part)).entries] == [paused.task.name]


def test_the_strip_leads_to_the_tasks_of_a_state_and_back_to_all(engine: Engine) -> None:
    known = followed(engine, [define(engine)])
    (share,) = read(engine, known, Wanted(name="fl")).strip
    assert (share.address, share.is_shown) == ("?name=fl&state=no_model", False)
    (share,) = read(engine, known, Wanted(name="fl", state="no_model")).strip
    assert (share.address, share.is_shown) == ("?name=fl", True)


async def test_a_good_verdict_is_provisional_until_its_rivals_are_scored_or_given_up(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine)

    def record(*methods: tuple[str, float], at: datetime) -> None:
        cells = [
            Cell(origin, origin, method, 50, factor * (0.2 + place / 100), 0.1)
            for method, factor in methods
            for place in range(10)
            for origin in [CUTOFF - place * WEEK]
        ]
        with engine.begin() as connection:
            record_cells(connection, schema.task_id, schema.task.recipe, cells, at)

    now = datetime.now(UTC)
    record(("gi", 1.0), ("naive", 2.0), ("gbdt", 1.1), at=now)
    async with serving(service_settings(database_url, tmp_path)) as client:
        status = (await client.get(f"/tasks/{schema.task.name}")).json()
        assert status["trust"]["verdict"] == "good"
        assert status["trust"]["is_provisional"]
        assert status["skill"]["pending"] == ["baseline", "last_window"]
        own = (await client.get(f"/pages/{schema.task.name}")).text
        assert ">good, provisional<" in own
        assert "Rivals still being fitted: baseline, last window." in own
        assert "Good, provisional" in (await client.get("/")).text
        record(("baseline", 1.2), ("last_window", 1.3), at=now)
        status = (await client.get(f"/tasks/{schema.task.name}")).json()
        assert (status["trust"]["is_provisional"], status["skill"]["pending"]) == (False, [])
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM error_cells WHERE method = 'baseline'"))
            connection.execute(text("UPDATE error_cells SET scored_at = scored_at - interval '2 hours'"))
        status = (await client.get(f"/tasks/{schema.task.name}")).json()
        assert (status["trust"]["is_provisional"], status["skill"]["pending"]) == (False, [])


async def test_rivals_that_were_scored_before_rows_changed_are_said_to_be_scored_again(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    """The three newest of four windows got wrong rows, and the baseline was not scored on these yet."""
    schema = define(engine)

    def record(method: str, loss: float, places: range, revisions: int) -> None:
        cells = [
            Cell(CUTOFF - place * WEEK, CUTOFF - place * WEEK, method, 50, loss, 0.1, revisions) for place in places
        ]
        with engine.begin() as connection:
            record_cells(connection, schema.task_id, schema.task.recipe, cells, datetime.now(UTC))

    for method, loss in (("gi", 9.0), ("naive", 13.0)):
        record(method, loss, range(3), 24)
        record(method, 1.0, range(3, 10), 0)
    record("baseline", 0.5, range(4), 0)
    async with serving(service_settings(database_url, tmp_path)) as client:
        status = (await client.get(f"/tasks/{schema.task.name}")).json()
        assert status["skill"]["rescored"] == ["baseline"]
        assert "baseline" not in status["skill"]["pending"]
        assert not [one for one in status["skill"]["advice"] if "baseline" in one]
        own = (await client.get(f"/pages/{schema.task.name}")).text
        assert "Rivals being scored again, since rows have changed: baseline." in own


async def test_all_methods_are_compared_on_the_windows_that_all_were_scored_on(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine)
    cells = [
        Cell(CUTOFF - place * WEEK, CUTOFF - place * WEEK, method, 50, factor * (0.2 + place / 100), 0.1)
        for method, factor, num_windows in (("gi", 1.0, 10), ("naive", 2.0, 10), ("gbdt", 0.9, 5), ("baseline", 1.2, 4))
        for place in range(num_windows)
    ]
    # Too few windows to hold up the others.
    cells.append(Cell(CUTOFF, CUTOFF, "last_window", 50, 0.1, 0.1))
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, datetime.now(UTC))
    async with serving(service_settings(database_url, tmp_path)) as client:
        skill = (await client.get(f"/tasks/{schema.task.name}")).json()["skill"]
        page = (await client.get(f"/pages/{schema.task.name}")).text
    assert [(one["method"], one["num_windows"]) for one in skill["compared"]] == [
        ("naive", 4),
        ("gbdt", 4),
        ("baseline", 4),
    ]
    assert [one["ours"] for one in skill["compared"]] == pytest.approx([0.215] * 3)
    assert [one["error"] for one in skill["compared"]] == pytest.approx([0.43, 0.1935, 0.258])
    assert (skill["num_windows"], skill["error"]) == (10, pytest.approx(0.245))
    assert {one["method"]: one["num_windows"] for one in skill["rivals"]} == {
        "last_window": 1,
        "gbdt": 5,
        "baseline": 4,
    }
    assert "on the same 4 windows" in page


async def test_an_archived_task_keeps_its_version_and_its_figures(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE tasks SET lifecycle = 'archived'"))
    note(engine, schema, "3", "release", valid_until=CUTOFF, reason="better", verdict=None, now=NOW)
    async with serving(service_settings(database_url, tmp_path)) as client:
        status = (await client.get(f"/tasks/{schema.task.name}")).json()
        page = (await client.get(f"/pages/{schema.task.name}")).raise_for_status().text
    assert (status["lifecycle"], status["champion"], status["registry"]["champion"]) == ("archived", None, "3")
    assert "An archived task answers nothing. Version 3 is kept." in page
    assert "None while archived" in page
    assert 'id="ask"' not in page
    assert 'data-open="unarchive"' in page
    assert 'data-open="retrain"' not in page


async def test_the_page_of_an_empty_task_says_once_that_no_event_is_stored(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine)
    async with serving(service_settings(database_url, tmp_path)) as client:
        page = (await client.get(f"/pages/{schema.task.name}")).text
        page += (await client.get(f"/pages/{schema.task.name}/events")).text
    assert page.count("No event is stored") == 1


async def test_refused_rows_are_counted_by_reason_and_those_sent_again_are_told_apart(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine)
    async with serving(service_settings(database_url, tmp_path)) as client:
        path, query = f"/pages/{schema.task.name}/events", {"task": schema.task.name}
        assert "Rows refused in the last day: 0</p>" in (await client.get(path)).text
        for event_id, label, times in (("e1", "perhaps", 3), ("e2", "perhaps", 1), ("e3", None, 1)):
            for _ in range(times):
                refused = await client.post("/events", params=query, json=an_event(event_id, label=label))
                assert refused.status_code == 422
        page = (await client.get(path)).text
    assert "Rows refused in the last day: 5, 3 of them distinct." in page
    rows = re.findall('<th scope="row" class="prose">(.*?)</th><td>(.*?)</td><td>.*?</td><td>(.*?)</td>', page)
    assert [(count, event_id) for _, count, event_id in rows] == [("4", "e2"), ("1", "e3")]


async def test_only_so_many_events_of_the_newest_windows_are_counted(
    database_url: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = define(engine)
    async with serving(service_settings(database_url, tmp_path)) as client:

        async def rows_with(most: int) -> list[tuple[str, str]]:
            monkeypatch.setattr(queries, "MAX_COUNTED", most)
            page = (await client.get(f"/pages/{schema.task.name}/events")).text
            found = re.findall('<th scope="row">(.*?)</th><td>(.*?)</td>', page)
            return [(window[:10], count) for window, count in found]

        for week, count in ((0, 3), (1, 2), (2, 4)):
            at = f"2026-01-{6 + 7 * week:02}T00:00:00Z"
            body = [an_event(f"{week}-{k}", at=at) for k in range(count)]
            answer = await client.post("/events", params={"task": schema.task.name}, json=body)
            assert answer.status_code == 200
        assert [count for _, count in await rows_with(100)] == ["4", "2", "3"]
        assert [count for _, count in await rows_with(9)] == ["4", "2"]
        assert [count for _, count in await rows_with(6)] == ["4"]
        assert [count for _, count in await rows_with(3)] == ["at least 3"]


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
    assert status["trust"]["verdict"] == "too early to say"
    assert "Too early to say" in page
    assert ">too early to say<" in own
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
    assert skill["advice"][0].startswith("only 1 window is scored")
    assert 'set training.method = "base_time"' in skill["advice"][1]
    assert "25 % worse than naive" in page
    assert "base_time" in page
