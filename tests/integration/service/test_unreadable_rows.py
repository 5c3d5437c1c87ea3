"""Rows that no process can read, written past the API: new ones are refused, and old ones harm their own task only."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from markupsafe import escape
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from structlog.testing import capture_logs

from contracts.clock import to_micros
from contracts.errors import OutsideHorizon
from service.advice.row_warnings import read_row_warnings
from store.database import FIRST_MOMENT, LAST_MOMENT, metadata
from store.error_cells import Cell, record_cells
from store.errors import SpecUnreadable
from store.events.batches import Event
from store.events.reading.columns import read_events
from store.events.reading.counts import count_windows, find_newest
from store.events.sample import read_sample
from store.events.stored_event import list_events
from store.events.writes import append_events
from store.tasks.catalog import Schema, find_task, list_tasks
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import define, note, publish_and_release, run_cycle, wait_for
from tests.integration.service_app import TASK, service_settings, serving

NOW = datetime(2026, 2, 1, tzinfo=UTC)
GOOD = {"event_id": "'e'", "revision": "1", "at": "now()", "known_at": "now()", "received_at": "now()"}
GOOD |= {"superseded_at": "NULL", "numbers": "'{1,NaN}'", "categories": "'{UA}'", "label": "'late'"}


# What a newer release may store, with a key that this one does not know.
NEWER_SPEC = "UPDATE schemas SET spec = spec || '{\"invented_later\": 1}' WHERE task_id = :id"


def insert_event(engine: Engine, schema: Schema, **changes: str) -> None:
    values = {**GOOD, **changes}
    columns, given = ", ".join(values), ", ".join(values.values())
    statement = f"INSERT INTO events (task_id, schema_id, {columns}) VALUES (:task, :schema, {given})"  # noqa: S608 our own words
    with engine.begin() as connection:
        connection.execute(text(statement), {"task": schema.task_id, "schema": schema.schema_id})


def allow_anything(engine: Engine, *tables: str) -> None:
    """Take the constraints away: the rows were written before there were any."""
    with engine.begin() as connection:
        for table in tables:
            for constraint in metadata.tables[table].constraints:
                if constraint.name and str(constraint.name).endswith("_check"):
                    connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {constraint.name}"))


BAD: list[dict[str, str]] = [
    *({column: f"'{value}'"} for column in ("at", "known_at", "received_at") for value in ("infinity", "-infinity")),
    {"at": "'12000-01-01Z'"},
    {"at": "'0044-03-15 BC'"},
    {"superseded_at": "'infinity'"},
    {"event_id": "''"},
    {"revision": "0"},
    {"label": "''"},
    {"numbers": "'{1,Infinity}'"},
    {"numbers": "'{-Infinity,1}'"},
    {"numbers": "'{1,NULL}'"},
    {"numbers": "'{{1,2},{3,4}}'"},
    {"categories": "'{NULL}'"},
]


@pytest.mark.parametrize("changes", BAD, ids=str)
def test_a_row_that_no_process_could_read_is_refused_by_the_table(
    engine: Engine, schema: Schema, changes: dict[str, str]
) -> None:
    with pytest.raises(SQLAlchemyError):
        insert_event(engine, schema, **changes)
    insert_event(engine, schema)
    insert_event(engine, schema, event_id="'first'", at="'0001-01-01Z'", known_at="'9999-12-31T23:59:59.999999Z'")


def test_no_ledger_takes_a_moment_that_no_process_could_read(engine: Engine, schema: Schema) -> None:
    note(engine, schema, "1", "release")
    for statement in (
        "UPDATE releases SET valid_until = 'infinity'",
        "UPDATE releases SET at = '-infinity'",
        "UPDATE tasks SET created_at = 'infinity'",
        "UPDATE tasks SET name = ''",
        "UPDATE schemas SET spec = '[]'",
    ):
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(text(statement))


def test_each_constraint_of_the_tables_is_in_the_database(engine: Engine) -> None:
    named = {
        str(constraint.name)
        for table in metadata.tables.values()
        for constraint in table.constraints
        if str(constraint.name).endswith("_check")
    }
    with engine.connect() as connection:
        found = connection.execute(text("SELECT conname FROM pg_constraint WHERE contype = 'c'")).scalars()
        assert named == {name for name in found if name.endswith("_check")} & named
    assert len(named) >= 20


def test_a_follower_obeys_every_task_although_the_rows_of_one_cannot_be_read(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    spoilt, garbled, other = define(engine), define(engine), define(engine)
    for schema in (spoilt, garbled, other):
        publish_and_release(mlflow_url, engine, schema, tmp_path)
    follower = make_follower()
    follower.poll(0)
    allow_anything(engine, "events", "releases", "cycles", "schemas")
    insert_event(engine, spoilt, at="'infinity'")
    with engine.begin() as connection:
        columns, values = "task_id, cutoff, attempt, state, requested_at", ":id, 'infinity', 1, 'failed', now()"
        statement = text(f"INSERT INTO cycles ({columns}) VALUES ({values})")  # noqa: S608 our own words
        connection.execute(statement, {"id": garbled.task_id})
    for schema in (spoilt, garbled, other):
        note(engine, schema, "1", "close", valid_until=CUTOFF + WEEK)
    follower.poll(10)
    for schema in (spoilt, garbled, other):
        with pytest.raises(OutsideHorizon):
            ask(follower, schema.task.name, CUTOFF + WEEK + 1)
    states = {schema.task.name: follower.registries[schema.task.name] for schema in (spoilt, garbled, other)}
    assert states[other.task.name].state == "ok"
    assert "moment before the year 1 or after 9999" in str(states[spoilt.task.name].reason)
    assert "cannot be read" in str(states[garbled.task.name].reason)
    assert {states[one.task.name].state for one in (spoilt, garbled)} == {"degraded"}
    assert follower.is_ready
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM events"))
        connection.execute(text("DELETE FROM cycles"))
    follower.poll(20)
    assert {follower.registries[one.task.name].state for one in (spoilt, garbled)} == {"ok"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE releases SET verdict = '5' WHERE task_id = :id AND action = 'release'",
        "UPDATE releases SET verdict = '[]' WHERE task_id = :id AND action = 'close'",
        "UPDATE releases SET calibration = '5' WHERE task_id = :id AND action = 'release'",
        "UPDATE cycles SET verdict = '\"text\"' WHERE task_id = :id",
    ],
)
def test_a_document_of_another_form_is_named_once_and_the_version_answers_after_a_restart(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path, statement: str
) -> None:
    spoilt, other = define(engine), define(engine)
    for schema in (spoilt, other):
        publish_and_release(mlflow_url, engine, schema, tmp_path)
        note(engine, schema, "1", "close", valid_until=CUTOFF + WEEK, verdict=LIMIT)
        run_cycle(engine, schema, CUTOFF + 5 * WEEK, "held", "the newest window is suspect", verdict={"passed": False})
    with engine.begin() as connection:
        connection.execute(text(statement), {"id": spoilt.task_id})
        query = text(f"SELECT id {rows_of(statement)}")
        (row_id,) = connection.execute(query, {"id": spoilt.task_id}).scalars()
    follower = make_follower()
    with capture_logs() as logs:
        for moment in range(0, 50, 10):
            follower.poll(moment)
    for schema in (spoilt, other):
        with pytest.raises(OutsideHorizon):
            ask(follower, schema.task.name, CUTOFF + WEEK + 1)
        assert ask(follower, schema.task.name, CUTOFF + 1).version == "1"
    assert follower.registries[other.task.name].state == "ok"
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    if "'5' WHERE task_id = :id AND action = 'release'" not in statement or "calibration" in statement:
        (error,) = errors
        assert (error["event"], error["task"]) == ("task.unreadable", spoilt.task.name)
        assert f"table {statement.split()[1]} " in error["reason"]
        assert f"id {row_id}: " in error["reason"]
        assert follower.registries[spoilt.task.name].reason == error["reason"]
    else:  # which no follower reads
        assert errors == []


LIMIT = {
    "rule": "limit", "window": "2026-01-29T00:00:00Z", "age": 0, "num_rows": 50, "error_name": "log_loss", "value": 0.9,
    "threshold": 0.7,
}  # fmt: skip


def rows_of(statement: str) -> str:
    """FROM and WHERE of the same rows as an update."""
    table, _, rest = statement.removeprefix("UPDATE ").partition(" SET ")
    return f"FROM {table} WHERE {rest.partition(' WHERE ')[2]}"


@pytest.mark.anyio
async def test_a_task_with_such_an_event_is_shown_as_degraded_and_its_status_answers(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    spoilt, other = define(engine), define(engine)
    publish_and_release(mlflow_url, engine, spoilt, tmp_path)
    allow_anything(engine, "events")
    insert_event(engine, spoilt, at="'12000-01-01Z'")
    async with serving(service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url)) as client:
        name = spoilt.task.name

        async def get(path: str) -> Any:
            return (await client.get(path)).raise_for_status().json()

        await wait_for(client, f"/tasks/{name}", lambda found: found["registry"]["state"] == "degraded")
        status = await get(f"/tasks/{name}")
        assert "written past the API" in status["registry"]["reason"]
        assert (await get("/readyz"))["tasks"][name]["registry"] == "degraded"
        assert f'morrow_registry_degraded{{task="{name}"}} 1.0' in (await client.get("/metrics")).text
        assert {one["task"] for one in (await get("/tasks"))["tasks"]} == {name, other.task.name}


def test_such_events_count_for_nothing(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [Event("good", CUTOFF, CUTOFF, (1.0, 2.0), ("UA",), "late")], NOW)
    allow_anything(engine, "events")
    for number, moment in enumerate(("infinity", "-infinity", "12000-01-01Z", "0044-03-15 BC")):
        insert_event(engine, schema, event_id=f"'{number}'", at=f"'{moment}'", known_at="'2020-01-01Z'")
    snapshot = engine.connect().execution_options(isolation_level="REPEATABLE READ")
    with snapshot as connection, connection.begin():
        assert find_newest(connection, schema.task_id) == CUTOFF
        assert count_windows(connection, schema.task_id, schema.task.clock, until=CUTOFF + 4 * WEEK, most=5) == 1
        assert read_events(connection, schema.task_id, schema.task, CUTOFF + WEEK).at.tolist() == [CUTOFF]


def test_such_events_are_left_out_of_lists_and_samples_of_rows(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [Event("good", CUTOFF, CUTOFF, (1.0, 2.0), ("UA",), "late")], NOW)
    allow_anything(engine, "events")
    insert_event(engine, schema, event_id="'far'", at="'12000-01-01Z'")
    insert_event(engine, schema, event_id="'never'", at="'2020-01-01Z'", known_at="'infinity'")
    first, last = to_micros(FIRST_MOMENT), to_micros(LAST_MOMENT)
    with engine.connect() as connection:
        listed = list_events(connection, schema.task_id, first=first, last=last, limit=5)
        assert [event.event_id for event in listed] == ["good"]
        assert len(read_sample(connection, schema).labels) == 2  # of moments, it reads `at` alone


def test_a_row_with_more_numbers_than_its_task_has_stops_no_fit_and_is_named(engine: Engine, schema: Schema) -> None:
    insert_event(engine, schema, at="'2020-01-01Z'", known_at="'2020-01-01Z'", numbers="'{1,2,3}'")
    snapshot = engine.connect().execution_options(isolation_level="REPEATABLE READ")
    with snapshot as connection, connection.begin():
        rows = read_events(connection, schema.task_id, schema.task, CUTOFF)
        assert rows.numbers.tolist() == [[1.0, 2.0]]
        (said,) = read_row_warnings(connection, schema, NOW).mistakes
    assert "1 event has more or fewer values than" in said
    assert "Written past the API" in said


def test_a_spec_that_cannot_be_read_hides_no_other_task(make_follower: MakeFollower, engine: Engine) -> None:
    odd, other = define(engine), define(engine)
    with engine.begin() as connection:
        connection.execute(text(NEWER_SPEC), {"id": odd.task_id})
        assert [schema.task.name for schema in list_tasks(connection)] == [other.task.name]
        with pytest.raises(SpecUnreadable, match="a newer one has stored it"):
            find_task(connection, odd.task.name)
    follower = make_follower()
    follower.poll(0)
    assert follower.registries[other.task.name].state == "ok"
    assert follower.registries[odd.task.name].state == "degraded"
    assert "cannot be read by this release" in str(follower.registries[odd.task.name].reason)


@pytest.mark.anyio
async def test_an_unreadable_task_is_a_503_that_says_why(engine: Engine, database_url: str, tmp_path: Path) -> None:
    odd = define(engine)
    with engine.begin() as connection:
        connection.execute(text(NEWER_SPEC), {"id": odd.task_id})
    async with serving(service_settings(database_url, tmp_path)) as client:
        answer: httpx.Response = await client.get(f"/tasks/{odd.task.name}")
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
        assert "cannot be read by this release" in answer.json()["detail"]
        again = await client.put(f"/tasks/{odd.task.name}", json={**TASK, "window": "P1D"})
        assert (again.status_code, again.json()["revision"]) == (200, 2)
        assert (await client.get(f"/tasks/{odd.task.name}")).status_code == 200


SPOIL = (
    "INSERT INTO cycles (task_id, cutoff, attempt, state, requested_at) VALUES (:id, 'infinity', 1, 'failed', now())",
    "INSERT INTO cycles (task_id, cutoff, attempt, state, requested_at, ended_at) "
    "VALUES (:id, '2026-01-01Z', 1, 'held', now(), '12000-01-01Z')",
    "INSERT INTO cycles (task_id, cutoff, attempt, state, requested_at, verdict) "
    "VALUES (:id, '2026-01-01Z', 1, 'held', now(), '{\"decisions\": 7}')",
    "UPDATE releases SET valid_until = 'infinity' WHERE task_id = :id",
    "UPDATE releases SET at = '0044-03-15 BC' WHERE task_id = :id",
    "UPDATE releases SET verdict = '{\"cutoff\": 7}' WHERE task_id = :id",
    "UPDATE releases SET verdict = '5' WHERE task_id = :id",
    "UPDATE cycles SET verdict = '[]' WHERE task_id = :id",
    "UPDATE error_cells SET origin = 'infinity' WHERE task_id = :id",
    "UPDATE error_cells SET \"window\" = '-infinity' WHERE task_id = :id",
)


@pytest.mark.anyio
@pytest.mark.parametrize("statement", SPOIL)
async def test_rows_of_one_task_that_cannot_be_read_hide_no_other_task_in_any_list(
    engine: Engine, database_url: str, tmp_path: Path, statement: str
) -> None:
    spoilt, other = define(engine), define(engine)
    for schema in (spoilt, other):
        note(engine, schema, "1", "release")
        cells = [Cell(CUTOFF, CUTOFF, method, 50, loss, 0.1) for method, loss in (("gi", 0.2), ("naive", 0.4))]
        with engine.begin() as connection:
            record_cells(connection, schema.task_id, schema.task.recipe, cells, NOW)
    allow_anything(engine, "releases", "cycles", "error_cells")
    with engine.begin() as connection:
        connection.execute(text(statement), {"id": spoilt.task_id})
    async with serving(service_settings(database_url, tmp_path / "home")) as client:
        listed = {one["task"]: one for one in (await client.get("/tasks")).raise_for_status().json()["tasks"]}
        page = (await client.get("/")).raise_for_status().text
        own = (await client.get(f"/pages/{spoilt.task.name}")).raise_for_status().text
    assert listed[other.task.name]["skill"]["skill"] == pytest.approx(50)
    if "error_cells" not in statement and "UPDATE cycles" not in statement:  # of which there is none
        assert "cannot be read" in own
    if "error_cells" not in statement and " verdict = " not in statement:  # which no list reads
        assert listed[spoilt.task.name]["registry"]["state"] == "degraded"
        assert "cannot be read" in listed[spoilt.task.name]["registry"]["reason"]
    assert all(f'href="pages/{schema.task.name}"' in page for schema in (spoilt, other))


# What is spoilt -> what status and page must name.
NAMED = {
    SPOIL[0]: ("cycles", "cutoff is out of the years 1 to 9999"),
    SPOIL[1]: ("cycles", "ended_at is out of the years 1 to 9999"),
    SPOIL[2]: ("cycles", "ValidationError"),
    SPOIL[3]: ("releases", "valid_until is out of the years 1 to 9999"),
    SPOIL[4]: ("releases", "at is out of the years 1 to 9999"),
    SPOIL[5]: ("releases", "ValidationError"),
    SPOIL[6]: ("releases", "ValidationError: Expected `object`, got `int`"),
    SPOIL[8]: ("error_cells", "(2)"),
    SPOIL[9]: ("error_cells", "(2)"),
    "UPDATE error_cells SET scored_at = 'infinity' WHERE task_id = :id": ("error_cells", "(2)"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("statement", NAMED)
async def test_the_status_and_the_page_of_such_a_task_show_what_can_be_read_and_name_what_cannot(
    engine: Engine, database_url: str, tmp_path: Path, statement: str
) -> None:
    schema = define(engine)
    note(engine, schema, "1", "release")
    run_cycle(engine, schema, CUTOFF, "held", "the newest window is suspect", verdict={"passed": False})
    cells = [Cell(CUTOFF, CUTOFF, method, 50, loss, 0.1) for method, loss in (("gi", 0.2), ("naive", 0.4))]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, NOW)
    allow_anything(engine, "releases", "cycles", "error_cells")
    with engine.begin() as connection:
        connection.execute(text(statement.replace(", 1, ", ", 2, ")), {"id": schema.task_id})
    table, what = NAMED[statement]
    name = schema.task.name
    async with serving(service_settings(database_url, tmp_path / "home")) as client:
        status = (await client.get(f"/tasks/{name}")).raise_for_status().json()
        cycles = (await client.get(f"/tasks/{name}/cycles")).raise_for_status().json()
        releases = (await client.get(f"/tasks/{name}/releases")).raise_for_status().json()
        page = (await client.get(f"/pages/{name}")).raise_for_status().text
        part = (await client.get(f"/pages/{name}/state")).raise_for_status().text
    said = [one for one in status["warnings"] if "cannot be read" in one]
    # The status tells nothing of a release's figures.
    (warning,) = releases["warnings"] if " SET verdict = " in statement else said
    assert f"table {table} " in warning
    assert what in warning
    assert all(str(escape(warning)) in html for html in (page, part))
    assert [one["reason"] for one in status["cycles"]] == ["the newest window is suspect"]
    assert cycles["cycles"] == status["cycles"]
    assert cycles["warnings"] == ([warning] if table == "cycles" else [])
    assert releases["warnings"] == ([warning] if table == "releases" else [])
    assert len(releases["releases"]) == (0 if table == "releases" else 1)
    assert not status["stale"]
    assert "the newest window is suspect" in page
    assert (status["skill"] is None) == (table == "error_cells" and "scored_at" not in statement)
