"""Tasks, their status and their retrainings over HTTP, against a real PostgreSQL."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment
from contracts.task import Training
from store.cycles.requests import request_cycle
from store.recipe_choices import Choice, record_choice
from store.tasks.catalog import find_task
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.service_app import TASK, an_event, service_settings, serving

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 2, 1, tzinfo=UTC)
DEAD = "postgresql+psycopg://someone:secret@127.0.0.1:9/morrow"


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def test_a_task_is_created_kept_and_revised(client: httpx.AsyncClient) -> None:
    created = await client.put("/tasks/flights", json=TASK)
    assert (created.status_code, created.json()["revision"]) == (201, 1)
    assert created.json()["spec"]["training"]["method"] == "gi"
    same = await client.put("/tasks/flights", json={"name": "flights", **TASK})
    assert (same.status_code, same.json()["revision"], same.json()["changed"]) == (200, 1, False)
    revised = await client.put("/tasks/flights", json={**TASK, "window": "P1D"})
    assert (revised.status_code, revised.json()["revision"], revised.json()["changed"]) == (200, 2, True)
    listed = (await client.get("/tasks")).json()["tasks"]
    assert [(task["task"], task["revision"], task["champion"]) for task in listed] == [("flights", 2, None)]


async def test_taking_back_a_change_of_features_is_told_what_earlier_rows_keep(client: httpx.AsyncClient) -> None:
    first, *others = TASK["features"]
    turned = {**first, "kind": "category" if first["kind"] != "category" else "number"}
    created = (await client.put("/tasks/flights", json=TASK)).json()
    assert created["changes"] == []
    assert (await client.post("/events", json=[an_event("e1")])).json()["created"] == 1
    answers = [
        (await client.put("/tasks/flights", json={**TASK, "features": features})).json()
        for features in ([turned, *others], TASK["features"], others, TASK["features"])
    ]
    changed, back, removed, again = answers
    assert "count as missing; to use them, store the rows again" in changed["warnings"][-1]
    assert "keep their values, and those with" in back["warnings"][-1]
    assert removed["changes"][0].startswith(f"feature {first['name']} is removed")
    assert again["changes"][0].startswith(f"feature {first['name']} is back: rows that were stored with it keep its")


async def test_a_change_of_features_warns_of_no_earlier_rows_while_none_is_stored(client: httpx.AsyncClient) -> None:
    first, *others = TASK["features"]
    turned = {**first, "kind": "category" if first["kind"] != "category" else "number"}
    await client.put("/tasks/flights", json=TASK)
    changed = (await client.put("/tasks/flights", json={**TASK, "features": [turned, *others]})).json()
    assert changed["changes"]
    assert not any("rows" in said for said in (*changed["changes"], *changed["warnings"]))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "other"}, "name"),
        ({"windows": "P7D"}, "windows"),
        ({"window": "PT0S"}, "window"),
        ({"target": {"name": "y", "kind": "classification", "classes": ["a", "b\u0000"]}}, "target.classes.1"),
        ({"features": [{"name": "at", "kind": "number"}]}, ""),
        ({"features": [{"name": "x", "kind": "text"}]}, "features.x.kind"),
        ({"features": [{"name": "x"}]}, "features.x.kind"),
        ({"features": [{"name": "air temp", "kind": "number"}]}, "features.air temp.name"),
        ({"features": [{"kind": "number"}]}, "features.0.name"),
        ({"guard": {"tolerance": 0}}, "guard.tolerance"),
    ],
)
async def test_a_broken_spec_is_a_problem_that_names_its_field(
    client: httpx.AsyncClient, changes: dict[str, Any], field: str
) -> None:
    answer = await client.put("/tasks/flights", json={**TASK, **changes})
    assert answer.status_code == 422
    assert field in {fault["field"] for fault in answer.json()["errors"]}


async def test_choosing_for_longer_than_half_a_cycle_is_refused(client: httpx.AsyncClient) -> None:
    asked = {**TASK, "training": {"tune": True, "tune_seconds": 1801}}
    answer = await client.put("/tasks/flights", json=asked)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"field": "training.tune_seconds", "reason": "is more than half the time limit of a cycle: 1800 s"}
    ]
    allowed = await client.put("/tasks/flights", json={**TASK, "training": {"tune": True, "tune_seconds": 1800}})
    assert (allowed.status_code, allowed.json()["choice"]) == (201, None)


async def test_a_chosen_recipe_stands_beside_what_was_written(client: httpx.AsyncClient, engine: Engine) -> None:
    asked = {**TASK, "training": {"tune": True, "width": 32}}
    await client.put("/tasks/flights", json=asked)
    with engine.begin() as connection:
        schema = find_task(connection, "flights")
        training = schema.task.training
        choice = Choice(training, Training(width=16), CUTOFF, 0.5, 0.6, 24, 61.5, "run", NOW)
        record_choice(connection, schema.task_id, schema.task.recipe, choice)
    status = (await client.get("/tasks/flights")).json()
    assert status["spec"]["training"] == training.model_dump(mode="json")
    told = status["choice"]
    assert told["training"] == Training(width=16).model_dump(mode="json")
    assert (told["error"], told["error_before"], told["num_trials"], told["run_id"]) == (0.5, 0.6, 24, "run")
    assert (told["seconds"], told["chosen_at"]) == (61.5, "2026-02-01T00:00:00Z")
    same = await client.put("/tasks/flights", json=asked)
    assert (same.json()["revision"], same.json()["changed"]) == (1, False)


@pytest.mark.parametrize("body", [b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"[" * 100_000, b"1" * 5000, b"\xff"])
async def test_a_spec_that_is_no_json_is_malformed(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.put("/tasks/flights", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed")


async def test_a_horizon_that_can_never_be_long_enough_is_warned_of(client: httpx.AsyncClient) -> None:
    slow = await client.put("/tasks/slow", json={**TASK, "label_delay": "P28D"})
    assert "guard.max_age" in slow.json()["warnings"][0]
    assert (await client.put("/tasks/quick", json=TASK)).json()["warnings"] == []


async def test_a_version_whose_horizon_is_one_window_is_warned_of(
    database_url: str, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    await client.put("/tasks/flights", json=TASK)
    place_version(tmp_path, "7", valid_until=CUTOFF + WEEK, horizon=1, num_rows=200)
    async with serving(service_settings(database_url, tmp_path)) as restarted:
        short, hasty, unreleased = (await restarted.get("/tasks/flights")).json()["warnings"]
    assert short.startswith("the horizon is one window")
    assert unreleased.startswith("version 7 answers but was never released")
    assert hasty.startswith("the fit took only 63 steps: 200 rows in minibatches of 32, 10 times over")


async def test_a_version_whose_fit_ended_while_it_still_improved_is_warned_of(
    database_url: str, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    await client.put("/tasks/flights", json=TASK)
    place_version(tmp_path, "7", num_rows=2048, batch_size=64, late_gain=0.13)
    async with serving(service_settings(database_url, tmp_path)) as restarted:
        warnings = (await restarted.get("/tasks/flights")).json()["warnings"]
    (told,) = (warning for warning in warnings if "budget" in warning)
    assert told.startswith(
        "the fit stopped at its budget of 320 steps while its loss on withheld rows still fell, by 13 %"
    )
    assert told.endswith("set training.pretrain_steps = 1280")


async def test_the_status_tells_of_events_champion_and_next_cycle(
    database_url: str, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    await client.put("/tasks/flights", json={**TASK, "schedule": "window"})
    await client.post("/events", json=[an_event(f"e{i}") for i in range(3)])
    place_version(tmp_path, "7", valid_until=CUTOFF + WEEK, batch_size=50)
    async with serving(service_settings(database_url, tmp_path)) as restarted:
        status = (await restarted.get("/tasks/flights")).json()
        manifest = (await restarted.get("/tasks/flights/models/7")).json()
        unknown = await restarted.get("/tasks/flights/models/8")
    assert status["num_events"] == 3
    assert status["champion"]["version"] == "7"
    assert status["champion"]["valid_until"] == "2026-02-05T00:00:00Z"
    assert [age["mean"] for age in status["champion"]["errors"]] == [0.40, 0.41]
    assert status["registry"]["state"] in ("ok", "degraded")
    assert status["next_cycle"].endswith("T00:00:00Z")
    assert manifest["num_rows"] == 1000
    assert status["champion"]["batch_size"] == manifest["batch_size"] == 50
    assert unknown.status_code == 404


async def test_a_cycle_is_asked_for_at_the_window_boundary_and_only_once(client: httpx.AsyncClient) -> None:
    await client.put("/tasks/flights", json=TASK)
    first = await client.post("/tasks/flights/cycles", json={"as_of": "2026-01-31T05:00:00+02:00"})
    assert first.status_code == 202
    assert (first.json()["cutoff"], first.json()["state"]) == ("2026-01-29T00:00:00Z", "requested")
    again = await client.post("/tasks/flights/cycles", json={"as_of": "2026-01-30T00:00:00Z"})
    assert again.json()["id"] == first.json()["id"]
    now = await client.post("/tasks/flights/cycles")
    assert now.status_code == 202
    listed = (await client.get("/tasks/flights/cycles")).json()["cycles"]
    assert [cycle["cutoff"] for cycle in listed] == sorted((cycle["cutoff"] for cycle in listed), reverse=True)
    assert (await client.get("/tasks/flights")).json()["next_cycle"] is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"as_of": "2999-01-01T00:00:00Z"}', 422),
        (b'{"as_of": "2026-01-01T00:00:00"}', 422),
        (b'{"as_of": 5}', 422),
        (b'{"asof": "2026-01-01T00:00:00Z"}', 422),
        (b'{"as_of": "2026-01-01T00:00:00Z", "as_of": "2026-01-01T00:00:00Z"}', 422),
        (b'{"as_of": "0001-01-01T00:00:00Z"}', 422),
        (b"[]", 422),
        (b"{", 400),
    ],
)
async def test_a_cycle_that_cannot_be_meant_is_refused(client: httpx.AsyncClient, body: bytes, status: int) -> None:
    await client.put("/tasks/flights", json=TASK)
    answer = await client.post("/tasks/flights/cycles", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert (await client.get("/tasks/flights/cycles")).json()["cycles"] == []


async def test_what_is_not_there_is_a_404_problem(client: httpx.AsyncClient) -> None:
    for name in ("no", "%00", "no%00", "%ED%A0%80", "%1B[31m"):
        for verb, path in [
            ("GET", "/tasks/%s"),
            ("GET", "/tasks/%s/cycles"),
            ("POST", "/tasks/%s/cycles"),
            ("GET", "/%s"),
        ]:
            answer = await client.request(verb, path % name)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert (await client.get("/tasks?count=5")).status_code == 422


async def test_a_spec_of_more_values_than_any_task_has_is_refused_unread(client: httpx.AsyncClient) -> None:
    body = b'{"features": [' + b"{}," * 10_001 + b"{}]}"
    for verb, path in (("PUT", "/tasks/flights"), ("POST", "/tasks/flights/cycles")):
        answer = await client.request(verb, path, content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")


async def test_a_new_task_is_known_to_predict_at_once(client: httpx.AsyncClient) -> None:
    await client.put("/tasks/flights", json=TASK)
    answer = await client.get("/predict", params={"distance": "1", "carrier": "UA"})
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/no-model")
    assert int(answer.headers["retry-after"]) > 0


async def test_the_page_shows_what_answers_and_escapes_what_others_wrote(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    await client.put("/tasks/flights", json=TASK)
    with engine.begin() as connection:
        cycle = request_cycle(connection, find_task(connection, "flights").task_id, CUTOFF, NOW)
        connection.exec_driver_sql(
            "UPDATE cycles SET state = 'failed', reason = '<script>alert(1)</script>' WHERE id = %s", (cycle.cycle_id,)
        )
    page = await client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "flights" in page.text
    assert "&lt;script&gt;" in page.text
    assert "<script>" not in page.text


async def test_the_page_shows_ages_with_their_limits_and_what_to_be_warned_of(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    await client.put("/tasks/flights", json=TASK)
    place_version(tmp_path / "offline", "7", valid_until=CUTOFF + WEEK)
    async with serving(service_settings(DEAD, tmp_path / "offline", cycle_limit_seconds=1e6)) as offline:
        page = (await offline.get("/pages/flights")).text
    assert "<th>limit</th>" in page
    assert f">{format_moment(CUTOFF + WEEK)[:10]} 00:00:00Z</td>" in page  # the window of age 1
    assert "a version may expire before the next one is released" in page


async def test_a_page_of_a_task_that_is_not_there_is_a_page_too(client: httpx.AsyncClient) -> None:
    answer = await client.get("/pages/nosuch", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (404, "text/html")
    assert "There is no such thing" in answer.text
    assert "nosuch" in answer.text


async def test_what_may_be_asked_is_a_page_that_needs_no_internet(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    for shown in ("/tasks/{task}/override", "coverage", "openapi.json"):
        assert shown in page
    for copied in ("&#39;http://morrow/", "https://example.com/hooks/morrow"):  # in requests and bodies
        page = page.replace(copied, "")
    assert "://" not in page


async def test_without_a_database_the_page_still_shows_what_answers(tmp_path: Path) -> None:
    place_version(tmp_path, "7", valid_until=CUTOFF + WEEK)
    async with serving(service_settings(DEAD, tmp_path)) as client:
        page = await client.get("/")
        assert (page.status_code, "2026-02-05 00:00:00Z" in page.text) == (200, True)
        assert "secret" not in page.text
        tasks = await client.get("/tasks")
        assert (tasks.status_code, tasks.headers["retry-after"]) == (503, "1")


async def test_each_type_of_problem_has_its_page(client: httpx.AsyncClient) -> None:
    for name in ("outside-horizon", "no-model", "malformed"):
        assert (await client.get(f"/problems/{name}")).status_code == 200
    assert (await client.get("/problems/none")).status_code == 404


async def test_a_fresh_deployment_is_ready_as_soon_as_its_database_answers(client: httpx.AsyncClient) -> None:
    with anyio.fail_after(10):
        while (answer := await client.get("/readyz")).status_code != 200:
            await anyio.sleep(0.02)
    assert answer.json()["database"] == "ok"
    assert (await client.get("/livez")).status_code == 200
