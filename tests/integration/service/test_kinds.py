"""Tasks with integers, booleans and bounds from a client's side, and answers that name what a version does not know."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from contracts.calibration import Calibration
from contracts.clock import format_moment
from tests.integration.artefacts import CUTOFF, WEEK, place_version, teach
from tests.integration.one_version import everywhere, placed, quantiles, unnamed
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving

pytestmark = pytest.mark.anyio

MARK = b"\xef\xbb\xbf"
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
ROW: dict[str, Any] = {"distance": 1400, "carrier": "UA"}
BIKES: dict[str, Any] = {
    "window": "P1D",
    "schedule": "manual",
    "features": [
        {"name": "holiday", "kind": "boolean"},
        {"name": "docks", "kind": "integer"},
        {"name": "weather", "kind": "number"},
        {"name": "region", "kind": "category"},
    ],
    "target": {"name": "rented", "kind": "classification"},
}


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


def an_event(event_id: str, **changes: Any) -> dict[str, Any]:
    features = {"holiday": True, "docks": 12, "weather": 1.0, "region": "north", **changes.pop("features", {})}
    return {"event_id": event_id, "at": "2026-01-05T12:00:00Z", "features": features, "label": "busy", **changes}


async def test_events_hold_booleans_as_one_and_zero_and_whole_numbers(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    await client.put("/tasks/bikes", json=BIKES)
    sent = [
        an_event("a"),
        an_event("b", features={"holiday": False, "docks": 3.0}),
        an_event("c", features={"docks": 1.5}),
    ]
    answer = (await client.post("/events", json=sent)).json()
    assert [result["status"] for result in answer["results"]] == ["created", "created", "rejected"]
    assert answer["results"][2]["errors"][0]["field"] == "features.docks"
    with engine.begin() as connection:
        stored = connection.execute(text("SELECT numbers FROM events ORDER BY event_id")).scalars().all()
    assert stored == [[1.0, 12.0, 1.0], [0.0, 3.0, 1.0]]
    again = (await client.post("/events", json=sent[0])).json()
    assert again["results"][0]["status"] == "duplicate"


@pytest.mark.parametrize("kind", ["one", "array", "lines", "correction", "task"])
async def test_a_byte_order_mark_before_a_body_says_nothing(client: httpx.AsyncClient, kind: str) -> None:
    await client.put("/tasks/bikes", json=BIKES)
    event = json.dumps(an_event("a")).encode()
    if kind == "task":
        answer = await client.put("/tasks/others", content=MARK + json.dumps(BIKES).encode(), headers=JSON)
        assert answer.status_code == 201
    elif kind == "lines":
        lines = MARK + b"\n" + MARK + event + b"\n" + json.dumps(an_event("b")).encode()
        assert (await client.post("/events", content=lines, headers=NDJSON)).json()["created"] == 2
    elif kind == "correction":
        await client.post("/events", content=event, headers=JSON)
        corrected = json.dumps(an_event("a", label="quiet")).encode()
        answer = await client.put("/events/a", content=MARK + corrected, headers=JSON)
        assert answer.json()["status"] == "corrected"
    else:
        body = event if kind == "one" else b"[" + event + b"," + json.dumps(an_event("b")).encode() + b"]"
        answer = await client.post("/events", content=MARK + body, headers=JSON)
        assert answer.json()["created"] == (1 if kind == "one" else 2)


async def test_a_body_in_utf_16_is_named(client: httpx.AsyncClient) -> None:
    await client.put("/tasks/bikes", json=BIKES)
    for path, method in (("/events", "POST"), ("/tasks/bikes", "PUT")):
        for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
            body = json.dumps(an_event("a")).encode(encoding)
            answer = await client.request(method, path, content=body, headers=JSON)
            assert (answer.status_code, answer.json()["detail"]) == (400, "The body is UTF-16: send it in UTF-8.")


async def test_the_status_warns_of_rows_that_look_wrong_and_a_new_kind_of_its_effect(client: httpx.AsyncClient) -> None:
    await client.put("/tasks/bikes", json=BIKES)
    rows = [
        an_event(str(place), label=("yes", "Yes")[place % 2], features={"weather": 1.0 + place % 3, "region": "North"})
        for place in range(150)
    ]
    assert (await client.post("/events", json=rows)).json()["created"] == 150
    labels, weather = (await client.get("/tasks/bikes")).json()["warnings"][-2:]
    assert "'Yes' and 'yes'" in labels
    assert 'feature weather is of kind number and has 3 whole values only (1, 2, 3): set kind = "category"' in weather
    features = [*BIKES["features"][:2], {"name": "weather", "kind": "integer"}, {"name": "region", "kind": "number"}]
    changed = (await client.put("/tasks/bikes", json={**BIKES, "features": features})).json()["warnings"]
    assert [warning.split(":")[0] for warning in changed] == [
        "feature weather was of kind number and is of kind integer now",
        "feature region was of kind category and is of kind number now",
    ]
    later = (await client.get("/tasks/bikes")).json()["warnings"]
    assert not [warning for warning in later if "weather" in warning]


async def test_answers_name_the_features_whose_category_is_unseen_and_metrics_count_them(tmp_path: Path) -> None:
    teach(place_version(tmp_path), "UA", "AA")
    at = format_moment(CUTOFF)
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        known = (await client.get("/predict", params={**ROW, "at": at})).json()
        assert "unseen" not in known
        for options in ({}, {"rate": "true"}):
            one = (await client.get("/predict", params={**ROW, "carrier": "ZZ", "at": at, **options})).json()
            assert one["unseen"] == ["carrier"]
        rows = [{"at": at, "features": {**ROW, "carrier": carrier}} for carrier in ("ZZ", "AA", "ua")]
        many = (await client.post("/predict", json={"rows": rows})).json()["answers"]
        assert [answer.get("unseen") for answer in many] == [["carrier"], None, ["carrier"]]
        metrics = (await client.get("/metrics")).text
        assert 'morrow_unseen_categories_total{feature="carrier",task="flights"} 4.0' in metrics


@pytest.mark.parametrize("known", ["true", "True"])
async def test_a_boolean_category_is_found_in_the_spelling_that_the_version_knows(tmp_path: Path, known: str) -> None:
    teach(place_version(tmp_path), known, "false", "FALSE", "UA")
    at = format_moment(CUTOFF)
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        for spelling in ("true", "True", "TRUE"):
            one = (await client.get("/predict", params={**ROW, "carrier": spelling, "at": at})).json()
            (many,) = (await client.post("/predict", json={"features": {**ROW, "carrier": spelling}, "at": at})).json()[
                "answers"
            ]
            assert "unseen" not in one
            assert "unseen" not in many
        as_boolean = {"features": {**ROW, "carrier": True}, "at": at}
        assert "unseen" not in (await client.post("/predict", json=as_boolean)).json()["answers"][0]
        two_are_known = (await client.get("/predict", params={**ROW, "carrier": "False", "at": at})).json()
        assert two_are_known["unseen"] == ["carrier"]


async def test_a_version_that_does_not_say_what_it_knows_names_nothing_as_unseen(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        answer = await client.get("/predict", params={**ROW, "carrier": "ZZ", "at": format_moment(CUTOFF)})
        assert "unseen" not in answer.json()


async def test_answers_and_intervals_stay_within_the_bounds_of_the_target(tmp_path: Path) -> None:
    spec = {"target": {"name": "delay", "kind": "regression", "minimum": 0, "maximum": 1.2}}
    calibration = Calibration(1.0, [quantiles(0, *everywhere(5.0, 5.0))])
    async with placed(tmp_path, spec=spec, calibration=calibration) as client:
        for distance, mean in ((-5000, 0.0), (5000, 1.2)):
            given = {**ROW, "distance": distance, "at": format_moment(CUTOFF + 1)}
            answer = (await client.get("/predict", params={**given, "rate": "true"})).json()
            assert (answer["prediction"], answer["mean"], answer["rate"]["mean"]) == (mean, mean, 0.0)
            assert 0 <= answer["interval"][0] <= answer["interval"][1] <= 1.2
            asked = (await client.get("/predict", params={**given, "coverage": "0.8"})).json()
            assert 0 <= asked["interval"][0] <= asked["interval"][1] <= 1.2


async def test_the_moment_at_which_training_ends_has_an_expected_error_and_coverage(tmp_path: Path) -> None:
    calibration = Calibration(1.0, [quantiles(0, *everywhere(1.0, 1.0))])
    async with placed(tmp_path, calibration=calibration) as client:
        at, before = format_moment(CUTOFF), format_moment(CUTOFF - 1)
        answer = (await client.get("/predict", params={**ROW, "at": at, "coverage": "0.8"})).json()
        assert (answer["lead"], answer["expected_error"], answer["coverage"]) == ("PT0S", 0.4, 0.8)
        earlier = (await client.get("/predict", params={**ROW, "at": before})).json()
        assert earlier["expected_error"] is None


async def test_a_body_with_one_moment_is_answered_as_a_query(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        at = format_moment(CUTOFF + WEEK)
        one = (await client.get("/predict", params={**ROW, "at": at})).json()
        many = await client.post("/predict", json={"features": ROW, "at": at})
        assert [unnamed(answer) for answer in many.json()["answers"]] == [unnamed(one)]
        beyond = await client.post("/predict", json={"features": ROW, "at": format_moment(CUTOFF + 9 * WEEK)})
        assert [fault["field"] for fault in beyond.json()["errors"]] == ["at"]


async def test_a_question_about_now_on_data_of_the_past_says_what_to_ask(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        for answer in (
            await client.get("/predict", params=ROW),
            await client.post("/predict", json={"features": ROW}),
            await client.post("/predict", json={"rows": [{"features": ROW}]}),
        ):
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/model-expired")
            detail = answer.json()["detail"]
            assert detail.startswith("Version 3 was valid until 2026-02-12T00:00:00Z. ")
            assert "trained until 2026-01-29T00:00:00Z" in detail
            assert "ask with at=2026-02-12T00:00:00Z or an earlier moment" in detail
        asked = await client.get("/predict", params={**ROW, "at": "2026-02-12T00:00:00Z"})
        assert asked.status_code == 200
