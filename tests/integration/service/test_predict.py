"""GET and POST /predict from a local copy alone: no database and no registry answer, and none is needed."""

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest

from contracts.clock import format_moment
from tests.integration.artefacts import CUTOFF, TRAINED_FROM, WEEK, place_version
from tests.integration.one_version import unnamed
from tests.integration.service_app import DEAD_DATABASE, DEAD_REGISTRY, service_settings, serving

pytestmark = pytest.mark.anyio

VALID_UNTIL = CUTOFF + 2 * WEEK
ROW: dict[str, Any] = {"distance": 1400, "carrier": "UA", "wind": 3.5}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    place_version(tmp_path)
    async with serving(service_settings(DEAD_DATABASE, tmp_path, mlflow_url=DEAD_REGISTRY)) as client:
        yield client


async def ask(client: httpx.AsyncClient, at: int | str, **changes: Any) -> httpx.Response:
    moment = at if isinstance(at, str) else format_moment(at)
    return await client.get("/predict", params={"task": "flights", "at": moment, **ROW, **changes})


async def test_an_answer_says_which_version_it_is_from_and_how_far_it_may_be_trusted(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    at = CUTOFF + WEEK + WEEK // 2
    answer = unnamed((await ask(client, at)).json())
    graph = onnxruntime.InferenceSession(tmp_path / "models" / "flights" / "3" / "model.onnx")
    feed = {"at": np.array([at]), "numbers": np.array([[1400.0, 3.5]]), "categories": np.array([["UA"]], object)}
    late, on_time = graph.run(None, feed)[0][0].tolist()
    assert answer == {
        "task": "flights",
        "prediction": "on_time",
        "probabilities": {"late": late, "on_time": on_time},
        "at": "2026-02-08T12:00:00Z",
        "lead": "P10DT12H",
        "expected_error": 0.41,
        "error_name": "log_loss",
        "version": "3",
        "trained_until": "2026-01-29T00:00:00Z",
        "valid_until": "2026-02-12T00:00:00Z",
    }


async def test_answers_of_a_mixture_name_the_weights_of_its_experts(tmp_path: Path) -> None:
    weights = {"gi": 0.6, "gbdt": 0.4}
    place_version(tmp_path, weights=weights)
    async with serving(service_settings(DEAD_DATABASE, tmp_path, mlflow_url=DEAD_REGISTRY)) as client:
        assert (await ask(client, CUTOFF)).json()["weights"] == weights
        answers = await client.post("/predict", json={"rows": [{"features": ROW, "at": format_moment(CUTOFF)}]})
        assert [one["weights"] for one in answers.json()["answers"]] == [weights]


@pytest.mark.parametrize(
    ("at", "status"),
    [
        (TRAINED_FROM - 1, 422),
        (TRAINED_FROM, 200),
        (CUTOFF, 200),
        (VALID_UNTIL, 200),
        (VALID_UNTIL + 1, 422),
    ],
)
async def test_the_guard_is_exact_to_the_microsecond_and_names_both_bounds(
    client: httpx.AsyncClient, at: int, status: int
) -> None:
    one = await ask(client, at)
    many = await client.post("/predict", json={"features": ROW, "at": [format_moment(at)]})
    assert (one.status_code, many.status_code) == (status, status)
    if status == 422:
        for problem in (one.json(), many.json()):
            assert problem["type"].endswith("/outside-horizon")
            assert problem["valid_from"] == format_moment(TRAINED_FROM)
            assert problem["valid_until"] == format_moment(VALID_UNTIL)
            assert problem["version"] == "3"
            assert problem["side"] == ("before" if at < CUTOFF else "beyond")
        assert one.json()["errors"][0]["field"] == "at"
        assert many.json()["errors"][0]["field"] == "at[0]"


async def test_nothing_is_answered_in_a_long_gap_between_the_rows_of_training(tmp_path: Path) -> None:
    begin, end = CUTOFF - 300 * WEEK, CUTOFF - 8 * WEEK
    place_version(tmp_path, trained_from=begin - 9 * WEEK, gaps=[(begin, end)])
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        for at, status in ((begin - 1, 200), (begin, 422), (end - 1, 422), (end, 200), (begin - 10 * WEEK, 422)):
            one = await ask(client, at)
            around = [format_moment(moment) for moment in (begin - 1, at, CUTOFF)]
            many = await client.post("/predict", json={"features": ROW, "at": around})
            assert (one.status_code, many.status_code) == (status, status), at
            if begin <= at < end:
                problem = many.json()
                assert (problem["type"], problem["side"]) == ("/problems/outside-horizon", "between")
                assert (problem["gap_from"], problem["gap_until"]) == (format_moment(begin), format_moment(end))
                said = (
                    "at[1]: is in a long gap between the rows of training of version 3: ask for a moment outside of it"
                )
                assert problem["detail"].startswith(said)
                assert f"before {format_moment(begin)} or from {format_moment(end)} on" in problem["detail"]
                assert one.json()["gap_until"] == problem["gap_until"]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (CUTOFF - WEEK, None),
        (CUTOFF - 1, None),
        (CUTOFF, 0.40),
        (CUTOFF + 1, 0.40),
        (CUTOFF + WEEK, 0.41),
        (VALID_UNTIL, 0.41),
    ],
)
async def test_the_expected_error_is_that_of_the_age_and_null_before_the_cutoff(
    client: httpx.AsyncClient, at: int, expected: float | None
) -> None:
    answer = (await ask(client, at)).json()
    assert answer["expected_error"] == expected
    assert answer["lead"].startswith("-") == (at < CUTOFF)


async def test_a_closed_horizon_stays_closed_after_a_restart_offline(tmp_path: Path) -> None:
    place_version(tmp_path, valid_until=CUTOFF + WEEK)
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        assert (await ask(client, CUTOFF + WEEK)).status_code == 200
        refused = await ask(client, CUTOFF + WEEK + 1)
        assert (refused.status_code, refused.json()["valid_until"]) == (422, "2026-02-05T00:00:00Z")
        assert (await client.get("/readyz")).status_code == 200


async def test_without_at_an_expired_version_is_503_with_retry_after(client: httpx.AsyncClient) -> None:
    answer = await client.get("/predict", params=ROW)
    assert answer.status_code == 503
    assert answer.json()["type"].endswith("/model-expired")
    assert int(answer.headers["retry-after"]) > 0


async def test_without_at_the_answer_is_for_now(tmp_path: Path) -> None:
    place_version(tmp_path, valid_until=CUTOFF + 5000 * WEEK)
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        one = (await client.get("/predict", params=ROW)).json()
        many = (await client.post("/predict", json={"rows": [{"features": ROW}]})).json()["answers"][0]
    assert one["at"] > "2026-02-12"
    assert one["at"][:10] == many["at"][:10]


async def test_a_plus_must_be_escaped_and_is_never_read_as_another_moment(client: httpx.AsyncClient) -> None:
    features = "distance=1400&carrier=UA"
    escaped = await client.get(f"/predict?at=2026-02-01T02:00:00%2B02:00&{features}")
    assert escaped.json()["at"] == "2026-02-01T00:00:00Z"
    raw = await client.get(f"/predict?at=2026-02-01T02:00:00+02:00&{features}")
    assert raw.status_code == 422
    assert "%2B" in raw.json()["detail"]


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("distance=1&distance=1&carrier=UA", {"features.distance"}),
        ("distance=1&Carrier=UA", {"features.Carrier"}),
        ("distance=nan&carrier=UA", {"features.distance"}),
        ("distance=1e400&carrier=", {"features.distance", "features.carrier"}),
        ("distance=true&carrier=UA", {"features.distance"}),
        ("at=2026-02-01T00:00:00&distance=1&carrier=UA", {"at"}),
        ("at=2026-02-01T00:00:00Z&at=2026-02-01T00:00:00Z&distance=1&carrier=UA", {"at"}),
        ("carrier=%0d%0aERROR%20fake&distance=1", {"features.carrier"}),
        ("rate=yes&distance=1&carrier=UA", {"rate"}),
        ("coverage=0.9&coverage=0.8&rate=1&task=a&task=b&distance=1", {"coverage", "rate", "task"}),
        ("coverage=2&rate=1&distance=nan", {"coverage", "rate", "features.distance", "features.carrier"}),
        ("", {"features.distance", "features.carrier"}),
        ("task=flights&task=flights&distance=1&carrier=UA", {"task"}),
    ],
)
async def test_a_query_that_breaks_a_rule_is_422_and_names_each_field(
    client: httpx.AsyncClient, query: str, fields: set[str]
) -> None:
    answer = await client.get(f"/predict?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert {fault["field"] for fault in answer.json()["errors"]} == fields


async def test_a_batch_names_faults_of_its_query_and_of_its_body_together(client: httpx.AsyncClient) -> None:
    rows = [{"at": "2026-02-01", "features": ROW}]
    answer = await client.post("/predict?coverage=2&color=red", json={"rows": rows, "rate": True, "more": 1})
    assert answer.status_code == 422
    found = {fault["field"]: fault["reason"] for fault in answer.json()["errors"]}
    assert found.keys() == {"coverage", "color", "rate", "more", "rows[0].at"}
    assert found["rate"].startswith("is a parameter of the query string (POST /predict?rate=")
    refused = await client.post("/predict?coverage=2", json={"rows": [{"features": ROW}]})
    assert [fault["field"] for fault in refused.json()["errors"]] == ["coverage"]


async def test_rows_are_answered_in_order_and_as_by_get(client: httpx.AsyncClient) -> None:
    moments = [CUTOFF + step * (WEEK // 7) for step in range(10)]
    rows = [{"at": format_moment(at), "features": {**ROW, "distance": 100 * i}} for i, at in enumerate(moments)]
    answers = (await client.post("/predict", json={"rows": rows})).json()["answers"]
    for i, at in enumerate(moments):
        one = (await ask(client, at, distance=100 * i)).json()
        assert math.isclose(
            one["probabilities"].pop("on_time"), answers[i]["probabilities"].pop("on_time"), rel_tol=1e-6
        )
        assert math.isclose(one["probabilities"].pop("late"), answers[i]["probabilities"].pop("late"), rel_tol=1e-6)
        assert unnamed(one) == unnamed(answers[i])


async def test_a_large_batch_is_answered_whole(client: httpx.AsyncClient) -> None:
    rows = [{"at": "2026-02-01T00:00:00Z", "features": {**ROW, "distance": i}} for i in range(5000)]
    answers = (await client.post("/predict", json={"rows": rows})).json()["answers"]
    shares = [answer["probabilities"]["on_time"] for answer in answers]
    assert len(shares) == 5000
    assert shares == sorted(shares)


async def test_one_row_outside_the_horizon_refuses_the_batch_and_is_named(client: httpx.AsyncClient) -> None:
    rows = [{"at": format_moment(at), "features": ROW} for at in (CUTOFF, VALID_UNTIL + 1, CUTOFF)]
    answer = await client.post("/predict", json={"rows": rows})
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("/outside-horizon")
    assert [fault["field"] for fault in answer.json()["errors"]] == ["rows[1].at"]


async def test_a_moment_of_many_outside_the_horizon_is_named_by_its_place(client: httpx.AsyncClient) -> None:
    moments = [CUTOFF, VALID_UNTIL + 1, CUTOFF, TRAINED_FROM - 1]
    answer = await client.post("/predict", json={"features": ROW, "at": [format_moment(at) for at in moments]})
    assert answer.status_code == 422
    assert answer.json()["side"] == "beyond"
    assert [(fault["field"], fault["reason"]) for fault in answer.json()["errors"]] == [
        (
            "at[1]",
            f"is beyond the validated horizon of version 3, which ends at {format_moment(VALID_UNTIL)}: ask for an "
            "earlier moment, or store newer events and run `morrow cycle flights`",
        ),
        (
            "at[3]",
            f"is before the first row of training of version 3, which is of {format_moment(TRAINED_FROM)}: ask for a "
            "later moment, or import earlier events and run `morrow cycle flights`",
        ),
    ]


async def test_a_task_that_nobody_knows_is_a_404_problem(client: httpx.AsyncClient) -> None:
    answer = await client.get("/predict", params={"task": "nosuch", **ROW})
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
    assert answer.json()["detail"] == "There is no task named 'nosuch'. The only task is flights."
    near = await client.get("/predict", params={"task": "Flight", **ROW})
    assert near.json()["detail"] == "There is no task named 'Flight': the nearest name is 'flights'."


async def test_a_version_whose_probe_is_not_finite_never_answers(tmp_path: Path) -> None:
    place_version(tmp_path, bias=float("nan"))
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        answer = await client.get("/predict", params={"task": "flights", **ROW})
    assert answer.status_code == 404


async def test_an_answer_that_is_not_finite_is_a_named_500_and_counted(tmp_path: Path) -> None:
    regression = {"target": {"name": "delay", "kind": "regression"}}
    place_version(tmp_path, spec=regression)
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        finite = (await ask(client, CUTOFF)).json()
        assert finite["prediction"] == finite["mean"]
        assert finite["error_name"] == "mean_absolute_error"
        answer = await ask(client, CUTOFF, distance=1e6)
        assert answer.status_code == 500
        assert answer.json()["type"].endswith("/answer-not-finite")
        metrics = (await client.get("/metrics")).text
    assert 'morrow_answers_not_finite_total{task="flights"} 1.0' in metrics


async def test_other_methods_are_405_and_the_document_lists_predict(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/predict")
    assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
    document = (await client.get("/openapi.json")).json()
    assert set(document["paths"]["/predict"]) == {"get", "post"}
    for verb in ("get", "post"):
        names = {parameter["name"] for parameter in document["paths"]["/predict"][verb]["parameters"]}
        assert {"task", "coverage", "rate"} <= names
    assert "<code>/predict</code>" in (await client.get("/docs")).text


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_a_slash_too_many_is_redirected(client: httpx.AsyncClient, verb: str) -> None:
    answer = await client.request(verb, "/predict/?carrier=UA")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://morrow/predict?carrier=UA")


async def test_metrics_count_by_route_template_and_name_the_version(client: httpx.AsyncClient) -> None:
    await ask(client, CUTOFF)
    await client.get("/tasks/one-of-many-names")
    await client.put("/events/one/of/many", content="{}")
    await client.get("/no/such/path")
    assert (await client.get("/static/morrow.css")).status_code == 200
    metrics = (await client.get("/metrics")).text
    assert 'morrow_requests_total{method="GET",route="/predict",status="200"} 1.0' in metrics
    assert 'route="/tasks/{task}",status="503"' in metrics
    assert 'method="PUT",route="/events/{event_id}",status="503"' in metrics
    assert 'route="none",status="404"' in metrics
    assert 'route="none",status="200"' not in metrics
    assert 'route="/static/{file}",status="200"' in metrics
    assert 'morrow_model_info{task="flights",version="3"} 1.0' in metrics
    assert 'morrow_window_seconds{task="flights"} 604800.0' in metrics
    assert "one-of-many-names" not in metrics
    assert 'morrow_predict_seconds_count{method="GET"} 1.0' in metrics
