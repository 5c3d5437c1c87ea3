"""What status, metrics and page say of a task: its state and why, expected and realised errors, what is stale."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import httpx
import pytest
from sqlalchemy import Engine, text

from contracts.clock import format_moment, from_micros, to_micros
from contracts.task import Task
from contracts.verdict import AgeFigures, LimitCheck, MatrixFigures, Verdict
from service.advice.task_warnings import warn_of_gaps
from service.models.task_states.task_state import RecentAttempt, TaskState, why_stale
from store.error_cells import Cell, record_cells
from store.events.batches import Event, EventBatch
from store.events.imports import add_import, retract_events
from store.events.writes import append_batch, append_events
from store.releases import Release
from store.tasks.catalog import Schema, define_task
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.published_versions import NOW, define, note, run_cycle, status_when
from tests.integration.service_app import TASK, service_settings, serving

pytestmark = pytest.mark.anyio

FOREVER = to_micros(datetime(2100, 1, 1, tzinfo=UTC))
LIMIT = timedelta(hours=1)


@pytest.fixture
async def client(database_url: str, schema: Schema, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A service that holds version 7 of the task."""
    place_version(tmp_path, "7", task=schema.task.name)
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def test_the_state_is_one_word_and_a_closing_is_explained(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    assert (await status_when(client, schema))["state"] == "expired"
    note(engine, schema, "7", "release", valid_until=FOREVER)
    valid = await status_when(client, schema, lambda found: found["state"] == "valid")
    assert valid["closed"] is None
    window = {"window": "2026-01-29T00:00:00Z", "age": 0, "num_rows": 50}
    figures = {"rule": "limit", **window, "error_name": "log_loss", "value": 0.9, "threshold": 0.7}
    note(engine, schema, "7", "close", valid_until=CUTOFF, reason="0.9 is above 0.7", verdict=figures)
    note(engine, schema, "7", "calibrate", valid_until=CUTOFF)
    closed = await status_when(client, schema, lambda found: found["state"] == "closed")
    assert (closed["closed"]["reason"], closed["closed"]["verdict"]) == ("0.9 is above 0.7", figures)
    note(engine, schema, "7", "reopen", valid_until=FOREVER)
    assert (await status_when(client, schema, lambda found: found["state"] == "valid"))["closed"] is None
    listed = (await client.get("/tasks")).json()["tasks"]
    assert [(task["task"], task["state"], task["stale"]) for task in listed] == [(schema.task.name, "valid", False)]


async def test_a_version_that_answers_but_was_never_released_is_warned_of(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    assert "version 7 answers but was never released" in (await status_when(client, schema))["warnings"][-1]
    note(engine, schema, "7", "release", valid_until=FOREVER)
    assert not any("never released" in warning for warning in (await status_when(client, schema))["warnings"])


async def test_an_event_of_a_far_year_is_stored_and_warned_of(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    typo = Event("typo", FOREVER, FOREVER, (1.0, 2.0), ("UA",), "late")
    with engine.begin() as connection:
        append_events(connection, schema, [typo], NOW)
    told = "the newest event is dated 2100-01-01T00:00:00Z, in the future: no fit reads it until then"
    (said,) = (one for one in (await status_when(client, schema))["warnings"] if one.startswith(told))
    assert "(1 event from 2100-01-01T00:00:00Z on: typo)" in said
    assert f'morrow events erase {schema.task.name} typo --reason "wrong date"' in said
    assert told in (await client.get(f"/pages/{schema.task.name}")).text


async def test_windows_that_contradict_the_promise_are_told_on_status_and_page(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine, schedule="manual")
    name, recipe = schema.task.name, schema.task.recipe
    spec = schema.task.model_dump(mode="json")
    gap = (CUTOFF - 30 * WEEK, CUTOFF - 20 * WEEK)
    place_version(tmp_path, "7", task=name, spec=spec, recipe=recipe, trained_from=CUTOFF - 39 * WEEK, gaps=[gap])
    note(engine, schema, "7", "release", valid_until=FOREVER)
    cells = [
        Cell(origin, origin, method, 50, error, error)
        for method, error in (("gi", 0.5), ("naive", 0.8))
        for origin in (CUTOFF - place * WEEK for place in range(7))
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, recipe, cells, NOW)
    async with serving(service_settings(database_url, tmp_path)) as client:
        status = await status_when(client, schema, lambda found: found["state"] == "valid")
        page = (await client.get(f"/pages/{name}")).text
    assert status["champion"]["gaps"] == [dict(zip(("begin", "end"), map(format_moment, gap), strict=True))]
    assert "but not from" in page
    assert status["trust"]["reason"] == "only 7 of the 8 windows needed are scored"
    told = "expected error of version 7 is too low: it is 0.4050 by 5 windows, but the error is 0.5000 on all 7"
    assert told in status["warnings"][0]
    assert told in page


async def test_a_task_without_a_model_says_so(client: httpx.AsyncClient, engine: Engine, schema: Schema) -> None:
    other = define(engine)
    status = await status_when(client, other)
    assert (status["state"], status["live_errors"], status["seconds_since_release"]) == ("no_model", [], None)
    assert (status["last_verdict"], status["better_method"]) == (None, None)


async def test_before_a_first_verdict_the_windows_that_are_still_needed_are_counted(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    other = define(engine)
    assert other.task.guard.min_pairs == 3
    path = f"/tasks/{other.task.name}"
    assert (await client.get(path)).json()["missing_windows"] == 4
    weeks = [CUTOFF - 3 * WEEK, CUTOFF - 2 * WEEK + 1, CUTOFF - 2 * WEEK + 2, to_micros(datetime.now(UTC))]
    rows = [Event(f"e{k}", at, at, (1.0, 2.0), ("UA",), "late") for k, at in enumerate(weeks)]
    with engine.begin() as connection:
        append_events(connection, other, rows, NOW)
    assert (await client.get(path)).json()["missing_windows"] == 2
    shown = {task["task"]: task["missing_windows"] for task in (await client.get("/tasks")).json()["tasks"]}
    assert shown[other.task.name] == 2
    run_cycle(engine, other, CUTOFF, "skipped", "too few rows (3)")
    assert (await client.get(path)).json()["missing_windows"] == 2
    run_cycle(engine, other, CUTOFF + WEEK, "held", "1 more", verdict={"missing_windows": 1})
    assert (await client.get(path)).json()["missing_windows"] == 1


async def test_expected_and_realised_errors_stand_side_by_side_by_age(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    cells = [
        Cell(CUTOFF, CUTOFF, "gi", 50, 0.45, 0.1),
        Cell(CUTOFF, CUTOFF + 2 * WEEK, "gi", 20, 0.8, 0.3, is_complete=False),
        Cell(CUTOFF, CUTOFF, "naive", 50, 0.69, 0.5),
        Cell(CUTOFF - WEEK, CUTOFF, "gi", 50, 0.5, 0.1),
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, NOW)
        record_cells(connection, schema.task_id, "other", [Cell(CUTOFF, CUTOFF + WEEK, "gi", 1, 9.0, 1.0)], NOW)
    fresh, unlabelled, beyond = (await status_when(client, schema))["live_errors"]
    assert fresh == {
        "age": 0,
        "window": format_moment(CUTOFF),
        "expected": 0.4,
        "low": 0.3,
        "high": 0.6,
        "limit": 0.7,
        "realised": 0.45,
        "num_rows": 50,
        "is_complete": True,
    }
    assert (unlabelled["age"], unlabelled["expected"], unlabelled["realised"]) == (1, 0.41, None)
    assert (beyond["age"], beyond["expected"], beyond["realised"], beyond["is_complete"]) == (2, None, 0.8, False)


async def test_the_newest_verdict_says_what_was_decided_missing_and_better(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    better = {"method": "gbdt", "num_windows": 9, "error": 0.4, "difference": -0.1, "upper": -0.05}
    decisions = [{"rule": "min_pairs", "passed": False, "value": 1, "threshold": 3, "reason": "2 more"}]
    run_cycle(engine, schema, CUTOFF - WEEK, "released", version="6", verdict={"missing_windows": 0})
    verdict = {
        "passed": False,
        "decisions": decisions,
        "missing_windows": 2,
        "better_method": better,
        "rivals": [better],
    }
    run_cycle(engine, schema, CUTOFF, "held", "2 more", verdict=verdict)
    status = await status_when(client, schema)
    assert (status["better_method"], status["rivals"], status["missing_windows"]) == (better, [better], 2)
    assert status["last_verdict"]["state"] == "held"
    assert status["last_verdict"]["cutoff"] == format_moment(CUTOFF)
    assert status["last_verdict"]["decisions"] == decisions
    skipped = {"passed": False, "decisions": [{"rule": "min_rows", "passed": False}]}
    run_cycle(engine, schema, CUTOFF + WEEK, "skipped", "too few rows", verdict=skipped)
    status = await status_when(client, schema)
    assert (status["last_verdict"]["state"], status["better_method"]) == ("skipped", better)


async def test_scheduled_failures_in_a_row_are_counted_and_stale(
    client: httpx.AsyncClient, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine, schedule="window")
    note(engine, schema, "7", "release")
    run_cycle(engine, schema, CUTOFF, "released", version="7")
    for week in (1, 2, 3):
        run_cycle(engine, schema, CUTOFF + week * WEEK, "failed", "no memory")
    status = await status_when(client, schema)
    assert (status["stale"], status["num_failed"]) == (True, 3)
    assert status["stale_reason"] == f"the cycle of {format_moment(CUTOFF + 3 * WEEK)} failed: no memory"
    assert status["seconds_since_release"] == pytest.approx((datetime.now(UTC) - NOW).total_seconds(), abs=60)


def task_state(*recent: RecentAttempt, released_at: datetime | None, newest: int | None = to_micros(NOW)) -> TaskState:
    released = None
    if released_at is not None:
        released = Release(1, "7", "release", CUTOFF, None, None, "trainer", "", released_at)
    return TaskState(NOW, None, None, released, None, recent, None, (), newest=newest)


@pytest.mark.parametrize(
    ("recent", "released", "elapsed", "words"),
    [
        ([RecentAttempt(CUTOFF, "held", "suspect")], True, timedelta(days=7, hours=1), None),
        ([RecentAttempt(CUTOFF, "held", "suspect")], True, timedelta(days=7, hours=1, seconds=1), "was held: suspect"),
        ([RecentAttempt(CUTOFF, "skipped", "too few rows")], False, timedelta(days=8), "was skipped: too few rows"),
        (
            [RecentAttempt(CUTOFF, "running", None), RecentAttempt(CUTOFF, "failed", "x")],
            True,
            timedelta(days=8),
            "failed: x",
        ),
        ([RecentAttempt(CUTOFF, "running", None)], True, timedelta(days=8), "has not ended yet"),
        ([RecentAttempt(CUTOFF, "released", None)], True, timedelta(days=8), "is the trainer running?"),
        ([], False, timedelta(days=8), "is the trainer running?"),
        ([], False, timedelta(days=7), None),
    ],
)
async def test_a_scheduled_task_is_stale_after_a_window_and_the_time_of_a_cycle(
    recent: list[RecentAttempt], released: bool, elapsed: timedelta, words: str | None
) -> None:
    found = task_state(*recent, released_at=NOW if released else None)
    scheduled = Task.model_validate({**TASK, "name": "flights", "schedule": "window"})
    why = why_stale(scheduled, found, NOW + elapsed, LIMIT)
    assert why is None if words is None else words in str(why)
    assert why_stale(scheduled.model_copy(update={"schedule": "manual"}), found, NOW + elapsed, LIMIT) is None


async def test_a_scheduled_task_that_waits_for_events_says_so() -> None:
    scheduled = Task.model_validate({**TASK, "name": "flights", "schedule": "window"})
    for newest, words in ((None, "no event is stored"), (CUTOFF, "the next cycle waits for newer events")):
        found = task_state(released_at=None, newest=newest)
        assert words in str(why_stale(scheduled, found, NOW + timedelta(days=80), LIMIT))


@pytest.mark.parametrize(
    ("label_delay", "horizon", "is_warned"),
    [
        (timedelta(days=7) - LIMIT, 2, False),
        (timedelta(days=7) - LIMIT + timedelta(microseconds=1), 2, True),
        (timedelta(0), 1, True),
        (timedelta(days=21) - LIMIT, None, False),
        (timedelta(days=21), None, True),
    ],
)
async def test_the_schedule_is_warned_of_exactly_where_a_gap_can_be(
    label_delay: timedelta, horizon: int | None, is_warned: bool
) -> None:
    task = Task.model_validate({**TASK, "name": "flights", "label_delay": label_delay})
    warnings = warn_of_gaps(task, LIMIT, horizon)
    assert bool(warnings) is is_warned
    if is_warned:
        assert ("guard.max_age" if horizon is None else "the horizon") in warnings[0]


async def read_metrics(client: httpx.AsyncClient, task: str) -> dict[str, float]:
    lines = (await client.get("/metrics")).text.splitlines()
    mine = [line.rsplit(" ", 1) for line in lines if f'task="{task}"' in line]
    return {name.replace(f'task="{task}",', "").replace(f',task="{task}"', ""): float(value) for name, value in mine}


async def test_metrics_tell_the_same_without_asking_the_database(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    task = schema.task.name
    better = {"method": "gbdt", "num_windows": 9, "error": 0.4, "difference": -0.1, "upper": -0.05}
    with engine.begin() as connection:
        cell = Cell(CUTOFF, CUTOFF, "gi", 50, 0.9, 0.1)
        record_cells(connection, schema.task_id, schema.task.recipe, [cell], NOW)
    note(engine, schema, "7", "release")
    note(engine, schema, "7", "close", valid_until=CUTOFF)
    run_cycle(engine, schema, CUTOFF, "held", "suspect", verdict={"better_method": better})
    with anyio.fail_after(20):
        while 'morrow_better_method{method="gbdt"}' not in await read_metrics(client, task):
            await anyio.sleep(0.03)
    with engine.begin() as blocker:
        for table in ("tasks", "releases", "cycles", "error_cells"):
            blocker.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        with anyio.fail_after(5):
            found = await read_metrics(client, task)
    assert found['morrow_expected_error{age="0"}'] == 0.4
    assert found['morrow_expected_error{age="1"}'] == 0.41
    assert found['morrow_realised_error{age="0"}'] == 0.9
    assert found[f'morrow_horizon_closed{{task="{task}"}}'] == 1
    assert found['morrow_better_method{method="gbdt"}'] == 1
    assert found[f'morrow_held{{task="{task}"}}'] == 1
    assert found[f'morrow_cycles_failed{{task="{task}"}}'] == 0
    age = (datetime.now(UTC) - NOW).total_seconds()
    assert found[f'morrow_seconds_since_release{{task="{task}"}}'] == pytest.approx(age, abs=60)


async def test_an_error_far_above_its_limit_leads_to_the_labels_before_a_retraining(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    """Version 7 promised 0.4, and an import of wrong labels closed its horizon; the version before promised 0.05."""
    wrong = LimitCheck(from_micros(CUTOFF), 0, "log_loss", 8.4, 0.5, 50)
    former = Verdict(passed=True, matrix=MatrixFigures(error_name="log_loss", ages=(AgeFigures(0, 9, 0.05),)))
    with engine.begin() as connection:
        begun = add_import(connection, schema.task_id, actor="who", source="wrong.csv", now=NOW)
        append_batch(
            connection,
            schema,
            EventBatch.of([Event("e", CUTOFF, CUTOFF, (1.0, 2.0), ("UA",), "late")]),
            NOW,
            begun.import_id,
        )
    note(engine, schema, "6", "release", verdict=former)
    note(engine, schema, "7", "release")
    note(engine, schema, "7", "close", valid_until=CUTOFF, verdict=wrong)
    with anyio.fail_after(20):
        while (status := (await client.get(f"/tasks/{schema.task.name}")).json())["state"] != "closed":
            await anyio.sleep(0.03)
    step = status["next_step"]
    assert step["text"].startswith("Check the newest labels first: the error 8.4 on the window of")
    assert f"`morrow events retract {schema.task.name} --import {begun.import_id}`" in step["text"]
    (doubt,) = status["doubts"]
    assert doubt.startswith("version 7 expects an error of 0.4, 8 times the 0.05 of version 6")
    assert doubt in status["warnings"]
    page = (await client.get(f"/pages/{schema.task.name}")).text
    assert "Check the newest labels first" in page
    assert "an error above its limit closed the horizon" in page
    ratio = f'morrow_closing_error_ratio{{task="{schema.task.name}"}}'
    assert (await read_metrics(client, schema.task.name))[ratio] == pytest.approx(16.8)
    assert "8 times the 0.05 of version 6" in page
    right = Event("right", CUTOFF - WEEK, CUTOFF - WEEK, (1.0, 2.0), ("UA",), "late")
    with engine.begin() as connection:
        append_events(connection, schema, [right], NOW)
        retract_events(connection, schema, begun.import_id, actor="who", reason="wrong", now=datetime.now(UTC))
    status = await status_when(client, schema, lambda found: "Check the newest" not in found["next_step"]["text"])
    assert status["next_step"]["text"].startswith("Import the right rows: an import was retracted after its errors")
    assert status["next_step"]["command"].startswith(f"morrow events import {schema.task.name} FILE")


async def test_the_page_shows_state_closing_and_realised_errors(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    with engine.begin() as connection:
        cell = Cell(CUTOFF, CUTOFF, "gi", 50, 0.9125, 0.1)
        record_cells(connection, schema.task_id, schema.task.recipe, [cell], NOW)
    note(engine, schema, "7", "release")
    note(engine, schema, "7", "close", valid_until=CUTOFF, reason="an error <b>above</b> its limit")
    with anyio.fail_after(20):
        while "0.9125" not in (page := (await client.get(f"/pages/{schema.task.name}")).text) or "closed" not in page:
            await anyio.sleep(0.03)
    assert "an error &lt;b&gt;above&lt;/b&gt; its limit" in page


async def test_a_task_of_another_recipe_shows_no_error_of_the_old_one(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    """The version that answers keeps its own recipe's cells, whatever the task's newest revision says."""
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, [Cell(CUTOFF, CUTOFF, "gi", 50, 0.45, 0.1)], NOW)
        changed = {**TASK, "name": schema.task.name, "training": {"method": "baseline"}}
        newer, _ = define_task(connection, Task.model_validate(changed), NOW)
        record_cells(
            connection, schema.task_id, newer.task.recipe, [Cell(CUTOFF, CUTOFF, "baseline", 50, 0.6, 0.2)], NOW
        )
    assert (await status_when(client, schema))["live_errors"][0]["realised"] == 0.45
