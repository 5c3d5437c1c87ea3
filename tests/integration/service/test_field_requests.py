"""What producers and clients of such systems are known to send, and what must come back.

Cases of the field reports on timestamps, on parameters and JSON, and on security that one app answers in this process;
those that need a process of its own are in `test_field_processes`.
"""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, func, select

from contracts.clock import parse_moment, to_micros
from store.database import events
from store.events.batches import Event
from store.events.reading.columns import read_events
from store.events.writes import append_events
from tests.integration.artefacts import CUTOFF, place_version
from tests.integration.published_versions import define
from tests.integration.service_app import TASK, an_event, service_settings, serving

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    place_version(tmp_path)
    async with serving(service_settings(database_url, tmp_path)) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201
        yield client


def num_stored(engine: Engine) -> int:
    with engine.connect() as connection:
        found: int = connection.execute(select(func.count()).select_from(events)).scalar_one()
        return found


@pytest.mark.parametrize(
    "moment",
    [
        "2026-01-31T24:00:00Z",
        "2026-01-31T23:59:60Z",
        "2026-01-31T12:00:00+01:00:30",
        "2026-01-31",
        "2026-01-31T00:00:00",
        "2026-01-31T00:00",
        "1767225600",
    ],
)
async def test_a_doubtful_moment_has_the_same_verdict_everywhere_and_a_batch_names_its_row(
    client: httpx.AsyncClient, engine: Engine, moment: str
) -> None:
    row: dict[str, Any] = {"distance": 1400, "carrier": "UA"}
    good = "2026-01-31T00:00:00Z"
    one = await client.get("/predict", params={"task": "flights", "at": moment, **row})
    rows = await client.post("/predict", json={"rows": [{"at": at, "features": row} for at in (good, moment, good)]})
    many = await client.post("/predict", json={"features": row, "at": [good, moment]})
    event = await client.post("/events", json=an_event(at=moment))
    batch = await client.post("/events", params={"atomic": "true"}, json=[an_event("a"), an_event("b", at=moment)])
    words = {fault["reason"] for answer in (one, rows, many, event, batch) for fault in answer.json()["errors"]}
    places = [[fault["field"] for fault in answer.json()["errors"]] for answer in (one, rows, many, event, batch)]
    assert {answer.status_code for answer in (one, rows, many, event, batch)} == {422}
    assert len(words) == 1
    assert places == [["at"], ["rows[1].at"], ["at[1]"], ["at"], ["events[1].at"]]
    assert num_stored(engine) == 0


def test_an_event_at_a_windows_end_belongs_to_the_next_window(engine: Engine) -> None:
    schema = define(engine, label_delay="PT0S")
    end = schema.task.clock.window_start(CUTOFF)
    sent = [end - 1, end, end + 1]
    with engine.begin() as connection:
        rows = [Event(f"e{place}", at, at, (1.0, 1.0), ("UA",), "late") for place, at in enumerate(sent)]
        append_events(connection, schema, rows, datetime(2026, 3, 1, tzinfo=UTC))
    with engine.connect() as connection:
        past = read_events(connection, schema.task_id, schema.task, cutoff=end)
        both = read_events(connection, schema.task_id, schema.task, cutoff=end + schema.task.clock.window)
    assert past.at.tolist() == [end - 1]
    starts = schema.task.clock.window_starts(both.at).tolist()
    assert dict(zip(both.at.tolist(), starts, strict=True)) == {
        end - 1: end - schema.task.clock.window,
        end: end,
        end + 1: end,
    }


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", '"NaN"'])
@pytest.mark.parametrize("field", ["features.distance", "label", "at"])
async def test_what_json_does_not_know_as_a_number_is_422_with_its_row_and_field_and_stores_nothing(
    client: httpx.AsyncClient, engine: Engine, literal: str, field: str
) -> None:
    bad = json.dumps(an_event("bad", **{"features": {"distance": "HERE", "carrier": "UA"}, "label": "on_time"}))
    if field != "features.distance":
        bad = json.dumps(an_event("bad", **{field: "HERE"}))
    body = f"[{json.dumps(an_event('good'))}, {bad.replace(json.dumps('HERE'), literal)}]"
    answer = await client.post("/events", params={"atomic": "true"}, content=body, headers=JSON)
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["errors"]] == [f"events[1].{field}"]
    assert num_stored(engine) == 0


@pytest.mark.parametrize("sent", ['"' + "7" * 4300 + '"', "7" * 4300, "7"])
async def test_an_id_that_is_too_long_or_a_number_is_refused(
    client: httpx.AsyncClient, engine: Engine, sent: str
) -> None:
    body = json.dumps(an_event("HERE")).replace('"HERE"', sent)
    answer = await client.post("/events", content=body, headers=JSON)
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["errors"]] == ["event_id"]
    assert num_stored(engine) == 0


@pytest.mark.parametrize("sent", ["2147483648", "9007199254740992", "-9007199254740992"])
async def test_a_large_label_is_stored_as_it_is(client: httpx.AsyncClient, engine: Engine, sent: str) -> None:
    await client.put("/tasks/delays", json={**TASK, "target": {"name": "delay", "kind": "regression"}})
    body = json.dumps(an_event(label="HERE")).replace('"HERE"', sent)
    answer = await client.post("/events?task=delays", content=body, headers=JSON)
    assert answer.json()["created"] == 1
    with engine.connect() as connection:
        assert int(float(connection.execute(select(events.c.label)).scalar_one())) == int(sent)


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/metrics", "/", "/tasks"])
async def test_without_a_key_nothing_is_told_of_the_house(database_url: str, tmp_path: Path, path: str) -> None:
    async with serving(service_settings(database_url, tmp_path, host="0.0.0.0")) as client:
        answer = await client.get(path)
    assert answer.status_code in (401, 404, 503)
    assert "openapi" not in answer.text
    assert "morrow_requests" not in answer.text


SOURCES = [
    "file:///etc/passwd",
    "../../etc/passwd",
    "..\\..\\etc",
    "http://169.254.169.254/latest",
    "mlflow-artifacts:/../../etc",
    "models:/flights/1",
    "1/../../2",
    "1?x=y",
    "1#x",
]


@pytest.mark.parametrize("source", SOURCES)
async def test_no_request_chooses_where_a_model_comes_from(
    database_url: str, mlflow_url: str, tmp_path: Path, source: str
) -> None:
    async with serving(service_settings(database_url, tmp_path, mlflow_url=mlflow_url)) as client:
        await client.put("/tasks/flights", json=TASK)
        for path in ("rollback", "override"):
            answer = await client.post(f"/tasks/flights/{path}", json={"version": source, "reason": "r"})
            assert answer.status_code in (404, 409), answer.text
        for field in ("source", "run_id", "tracking_uri", "model"):
            body: dict[str, Any] = {field: source, "reason": "r"}
            answer = await client.post("/tasks/flights/rollback", json=body)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
        answer = await client.get("/tasks/flights/models/" + source.replace("/", "%2F").replace("?", "%3F"))
        assert answer.status_code == 404
        assert "root:" not in answer.text


@pytest.mark.parametrize("name", ["..%2Fx", "..", "%2E%2E%2Fx", "x%2Fy", "%00", "x%0d%0ay", "x" * 64, "1x", "models:"])
async def test_a_task_whose_name_could_lead_elsewhere_is_never_defined(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.put(f"/tasks/{name}", json=TASK)
    assert answer.status_code in (404, 405, 422)
    assert [task["task"] for task in (await client.get("/tasks")).json()["tasks"]] == ["flights"]


async def test_a_version_says_the_year_of_its_rows(client: httpx.AsyncClient) -> None:
    """Not January 1970, whatever unit a library keeps its timestamps in."""
    model = (await client.get("/tasks/flights/models/3")).json()
    for name in ("trained_until", "valid_until", "read_at"):
        assert datetime.fromisoformat(model[name]).year == 2026
    assert parse_moment(model["trained_until"]) == CUTOFF == to_micros(datetime(2026, 1, 29, tzinfo=UTC))
