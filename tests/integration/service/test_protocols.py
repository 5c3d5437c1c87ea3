"""Callers of MLflow's scoring server and of the Open Inference Protocol get the answers of POST /predict."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from sqlalchemy import Engine
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from store.api_keys import add_key
from store.engine import make_engine
from store.tasks.catalog import find_task_id
from tests.integration.api_process import Running, define_flights, running
from tests.servers import clone_of, database

AT = "2026-01-30T12:00:00Z"
BEYOND = "2030-01-01T00:00:00Z"
ROWS: list[dict[str, Any]] = [
    {"at": AT, "distance": 1400, "carrier": "UA"},
    {"at": "2026-01-30T13:00:00Z", "distance": 233.5, "carrier": "B6", "wind": 12.25},
]


@pytest.fixture(scope="module")
def api(template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A process for all of these tests: none of them changes anything."""
    with database(template, how=clone_of(template)) as url:
        engine = make_engine(url)
        define_flights(engine)
        engine.dispose()
        with running(url, tmp_path_factory.mktemp("api")) as api:
            yield api


def predicted(api: Running, rows: list[dict[str, Any]], **headers: str) -> list[dict[str, Any]]:
    """What POST /predict answers, without ids."""
    asked = [{"at": row["at"], "features": {key: row[key] for key in row if key != "at"}} for row in rows]
    answer = httpx.post(f"{api.url}/predict?task=flights", json={"rows": asked}, headers=headers)
    assert answer.status_code == 200, answer.text
    return without_ids(answer.json()["answers"])


def without_ids(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(answer["id"] for answer in answers)
    return [{key: value for key, value in answer.items() if key != "id"} for answer in answers]


def invoke(api: Running, body: Any, path: str = "/tasks/flights/invocations", **headers: str) -> httpx.Response:
    return httpx.post(f"{api.url}{path}", json=body, headers=headers)


FRAME = pd.DataFrame(ROWS)


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_split": {"columns": [*ROWS[1]], "data": [[row.get(key) for key in ROWS[1]] for row in ROWS]}},
        {"dataframe_records": ROWS},
        {"instances": ROWS},
        {"inputs": {key: [row.get(key) for row in ROWS] for key in ROWS[1]}},
        {"inputs": {key: [[row.get(key)] for row in ROWS] for key in ROWS[1]}},
        {"inputs": ROWS},
    ],
)
@pytest.mark.parametrize("path", ["/tasks/flights/invocations", "/invocations", "/invocations?task=flights"])
def test_every_form_of_an_invocation_gets_the_answers_of_predict(api: Running, body: Any, path: str) -> None:
    found = invoke(api, body, path)
    assert found.status_code == 200, found.text
    assert without_ids(found.json()["predictions"]) == predicted(api, ROWS)


def test_a_csv_of_pandas_gets_the_answers_of_predict(api: Running) -> None:
    for text in (FRAME.to_csv(index=False), FRAME.to_csv()):
        found = httpx.post(
            f"{api.url}/tasks/flights/invocations", content=text, headers={"content-type": "text/csv; charset=utf-8"}
        )
        assert found.status_code == 200, found.text
        assert without_ids(found.json()["predictions"]) == predicted(api, ROWS)


@pytest.mark.filterwarnings("ignore:.*Any type hint")  # MLflow warns of its own code
def test_mlflows_own_client_asks_by_its_address_alone(api: Running) -> None:
    from mlflow.pyfunc.scoring_server.client import ScoringServerClient

    client: Any = ScoringServerClient("127.0.0.1", f"{api.port}/tasks/flights")  # type: ignore[no-untyped-call]
    client.wait_server_ready(timeout=5)
    answers = client.invoke(FRAME)["predictions"]
    assert [answer["at"] for answer in answers] == [row["at"] for row in ROWS]
    assert [answer["probabilities"] for answer in answers] == [one["probabilities"] for one in predicted(api, ROWS)]
    with pytest.raises(Exception, match="coverage-unsupported"):
        client.invoke(FRAME, params={"coverage": 0.5})
    with pytest.raises(Exception, match="outside-horizon"):
        client.invoke(FRAME.assign(at=BEYOND))


def test_an_invocation_outside_the_horizon_is_mlflows_error_with_our_problem(api: Running) -> None:
    found = invoke(api, {"instances": [ROWS[0] | {"at": BEYOND}]})
    ours = httpx.get(f"{api.url}/predict", params={"task": "flights", **ROWS[0], "at": BEYOND})
    assert found.status_code == 422
    problem = found.json()
    assert (problem["type"], problem["side"]) == ("/problems/outside-horizon", "beyond")
    assert problem["valid_until"] == ours.json()["valid_until"]
    assert problem["message"] == problem["detail"]
    assert problem["error_code"] == "BAD_REQUEST"
    assert found.headers["content-length"] == str(len(found.content))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"instances": [[1400, "UA"]]}, "instances"),
        ({"inputs": {"distance": [1], "carrier": ["UA", "B6"]}}, "inputs"),
        ({"dataframe_split": {"columns": ["distance"], "data": [[1, 2]]}}, "dataframe_split.data[0]"),
        ({"dataframe_split": {"columns": ["at", "at"], "data": []}}, "at"),
        ({"dataframe_records": [{"at": AT, "distance": "far", "carrier": "UA"}]}, "rows[0].features.distance"),
        ({"dataframe_records": [{"at": AT, "distance": 1, "carrier": "UA", "colour": 1}]}, "rows[0].features.colour"),
        ({"dataframe_records": ROWS, "instances": ROWS}, "body"),
        ({"rows": ROWS}, "body"),
        ({"instances": []}, "rows"),
        ({"instances": ROWS, "params": {"coverge": 0.5}}, "params.coverge"),
        ({"instances": ROWS, "params": {"coverage": 2}}, "coverage"),
        ([], "body"),
    ],
)
def test_an_invocation_that_breaks_a_rule_names_the_field(api: Running, body: Any, field: str) -> None:
    found = invoke(api, body)
    assert found.status_code == 422, found.text
    assert field in [fault["field"] for fault in found.json()["errors"]], found.text


def test_nan_is_a_missing_value_and_infinity_is_refused(api: Running) -> None:
    text = json.dumps({"instances": [{**ROWS[1], "wind": float("nan")}]})
    assert "NaN" in text
    url, headers = f"{api.url}/tasks/flights/invocations", {"content-type": "application/json"}
    found = httpx.post(url, content=text, headers=headers)
    assert without_ids(found.json()["predictions"]) == predicted(api, [{**ROWS[1], "wind": None}])
    assert httpx.post(url, content=text.replace("NaN", "Infinity"), headers=headers).status_code == 422


HOSTILE = [
    b'{"instances": [{"distance": 1e999, "carrier": "UA"}]}',
    b'{"instances": [{"distance": 1, "carrier": "\\ud800"}]}',
    b'{"instances": [{"distance": 1, "\\ud800": 1, "\\ud800": 2}]}',
    b'{"instances": [{"distance": 123456789012345678901234567890, "carrier": "UA"}]}',
    b'{"instances": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"inputs": [{"name": [], "shape": [1], "datatype": "FP64", "data": [1]}]}',
    b'{"inputs": [{"name": "distance", "shape": [1], "datatype": [], "data": [1]}]}',
    b'{"inputs": [{"name": "distance", "shape": {}, "datatype": "FP64", "data": [{}]}]}',
    b'{"inputs": [{"name": "distance", "shape": [1], "datatype": "FP64", "data": [1]}], "id": "\\ud800"}',
    b'{"inputs": [{"name": "distance", "shape": [1], "datatype": "FP64", "data": [1]}], "outputs": [1]}',
    b'{"dataframe_split": {"columns": ["\\u0000", "\\u0000"], "data": []}}',
    b'{"instances": null, "instances": null}',
    b"null",
    b"\xff\xfe",
    b"",
]


@pytest.mark.parametrize("body", HOSTILE)
def test_hostile_bodies_are_refused_in_the_protocols_form(api: Running, body: bytes) -> None:
    for path, member in (("/tasks/flights/invocations", "message"), ("/v2/models/flights/infer", "error")):
        found = httpx.post(f"{api.url}{path}", content=body, headers={"content-type": "application/json"})
        assert found.status_code in (400, 422), (path, found.text)
        assert found.json()[member]


def test_a_csv_of_too_many_rows_is_refused_before_it_is_laid_out(api: Running) -> None:
    text = "distance\n" + "1\n" * 1_000_000
    found = httpx.post(
        f"{api.url}/tasks/flights/invocations", content=text, headers={"content-type": "text/csv"}, timeout=60
    )
    assert (found.status_code, found.json()["type"]) == (413, "/problems/too-large")


def tensors(rows: list[dict[str, Any]]) -> list[InferInput]:
    found = []
    for name, datatype, dtype in (("at", "BYTES", object), ("distance", "FP64", "f8"), ("carrier", "BYTES", object)):
        values = np.array([row[name] for row in rows], dtype)
        tensor = InferInput(name, [len(rows)], datatype)
        tensor.set_data_from_numpy(values, binary_data=False)
        found.append(tensor)
    return found


@pytest.fixture
def triton(api: Running) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(f"127.0.0.1:{api.port}") as client:
        yield client


def test_a_client_of_triton_looks_and_asks(api: Running, triton: InferenceServerClient) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.get_server_metadata()["name"] == "morrow"
    assert triton.is_model_ready("flights")
    metadata = triton.get_model_metadata("flights")
    assert {one["name"] for one in metadata["inputs"]} == {"at", "distance", "carrier", "wind"}
    (version,) = metadata["versions"]
    assert triton.is_model_ready("flights", version)
    assert not triton.is_model_ready("flights", "999")
    assert not triton.is_model_ready("nothing")

    rows = [{key: row[key] for key in ("at", "distance", "carrier")} for row in ROWS]
    expected = predicted(api, rows)
    for model_version in ("", version):
        found = triton.infer("flights", tensors(rows), model_version=model_version, request_id="q-1")
        shares = [[*one["probabilities"].values()] for one in expected]
        assert found.as_numpy("probabilities").tolist() == shares
        assert found.as_numpy("prediction").tolist() == [one["prediction"] for one in expected]
        assert found.as_numpy("expected_error").tolist() == [one["expected_error"] for one in expected]
        said = found.get_response()
        assert (said["id"], said["model_name"], said["model_version"]) == ("q-1", "flights", version)
        assert said["parameters"]["valid_until"] == expected[0]["valid_until"]
    classes = next(one for one in metadata["outputs"] if one["name"] == "probabilities")["parameters"]["classes"]
    assert classes == [*expected[0]["probabilities"]]
    one = triton.infer("flights", tensors(rows), outputs=[InferRequestedOutput("prediction", binary_data=False)])
    assert [output["name"] for output in one.get_response()["outputs"]] == ["prediction"]


def test_triton_learns_why_an_answer_is_refused(triton: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="is beyond the validated horizon"):
        triton.infer("flights", tensors([ROWS[0] | {"at": BEYOND}]))
    with pytest.raises(InferenceServerException, match="There is no task named 'nothing'"):
        triton.infer("nothing", tensors(ROWS[:1]))
    with pytest.raises(InferenceServerException, match="Version 999 does not answer"):
        triton.infer("flights", tensors(ROWS[:1]), model_version="999")
    with pytest.raises(InferenceServerException, match="nonsense is not among them"):
        triton.infer("flights", tensors(ROWS[:1]), outputs=[InferRequestedOutput("nonsense")])
    binary = InferInput("distance", [1], "FP64")
    binary.set_data_from_numpy(np.array([1.0]), binary_data=True)
    with pytest.raises(InferenceServerException, match="binary_data=False"):
        triton.infer("flights", [binary])


def infer(api: Running, inputs: Any, **headers: str) -> httpx.Response:
    return httpx.post(f"{api.url}/v2/models/flights/infer", json={"inputs": inputs}, headers=headers)


def tensor(name: str, datatype: str, data: list[Any], shape: list[int] | None = None) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data}


def test_one_moment_is_that_of_every_row_and_null_is_missing(api: Running) -> None:
    inputs = [
        tensor("at", "BYTES", [AT]),
        tensor("distance", "INT32", [[10], [20]], [2, 1]),
        tensor("carrier", "BYTES", ["UA", "B6"]),
        tensor("wind", "FP32", [None, 3.5]),
    ]
    found = infer(api, inputs)
    assert found.status_code == 200, found.text
    rows = [
        {"at": AT, "distance": 10, "carrier": "UA", "wind": None},
        {"at": AT, "distance": 20, "carrier": "B6", "wind": 3.5},
    ]
    outputs = {one["name"]: one for one in found.json()["outputs"]}
    expected = predicted(api, rows)
    assert outputs["probabilities"]["data"] == [share for one in expected for share in one["probabilities"].values()]
    assert outputs["probabilities"]["shape"] == [2, 2]
    assert outputs["at"]["data"] == [AT, AT]


@pytest.mark.parametrize(
    ("inputs", "field"),
    [
        ([], "inputs"),
        ([tensor("distance", "BYTES", ["10"]), tensor("carrier", "BYTES", ["UA"])], "inputs[0].datatype"),
        ([tensor("distance", "FP64", [1.0, 2.0], [1])], "inputs[0].shape"),
        ([tensor("distance", "FP64", [1.0]), tensor("distance", "FP64", [1.0])], "inputs[1].name"),
        ([tensor("distance", "FP64", [1.0]), tensor("carrier", "BYTES", ["UA", "B6"])], "inputs"),
        ([{"name": "distance", "datatype": "FP64", "shape": [1]}], "inputs[0].data"),
        ([tensor("distance", "FP64", [1.0])], "rows[0].features.carrier"),
        ([tensor("colour", "FP64", [1.0])], "rows[0].features.colour"),
    ],
)
def test_tensors_that_break_a_rule_are_named(api: Running, inputs: Any, field: str) -> None:
    found = infer(api, inputs)
    assert found.status_code == 422, found.text
    problem = found.json()
    assert field in [fault["field"] for fault in problem["errors"]], problem
    assert problem["error"] == problem["detail"]


def test_limits_hold_and_the_access_log_names_the_task(api: Running) -> None:
    many = invoke(api, {"instances": [ROWS[0]] * 100_001})
    assert (many.status_code, many.json()["type"]) == (413, "/problems/too-large")
    assert httpx.post(f"{api.url}/tasks/flights/invocations", content="{").status_code == 400
    text = httpx.post(f"{api.url}/tasks/flights/invocations", content="x", headers={"content-type": "text/plain"})
    assert text.status_code == 415
    assert httpx.get(f"{api.url}/v2/models/flights/infer").status_code == 405
    infer(api, [tensor("at", "BYTES", [AT]), tensor("distance", "FP64", [1.0]), tensor("carrier", "BYTES", ["UA"])])
    records = [json.loads(line) for line in api.log.read_text("utf-8").splitlines() if "request.answered" in line]
    named = {(one["route"], one.get("task")) for one in records}
    assert ("/v2/models/{task}/infer", "flights") in named
    assert ("/tasks/{task}/invocations", "flights") in named


def test_a_key_for_one_task_asks_no_other_and_needs_the_scope(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    define_flights(engine)
    now = datetime.now(UTC)
    with engine.begin() as connection:
        flights = find_task_id(connection, "flights")
        ours = add_key(connection, "ours", ["predict"], None, now, task_ids=[flights])
        others = add_key(connection, "others", ["predict"], None, now, task_ids=[flights + 1000])
        ingests = add_key(connection, "ingests", ["ingest"], None, now)
    body = {"instances": ROWS}
    inputs = [tensor("at", "BYTES", [AT]), tensor("distance", "FP64", [1.0]), tensor("carrier", "BYTES", ["UA"])]
    with running(database_url, tmp_path) as api:

        def statuses(key: str) -> list[int]:
            header = {"authorization": f"Bearer {key}"}
            return [
                invoke(api, body, **header).status_code,
                invoke(api, body, "/invocations?task=flights", **header).status_code,
                infer(api, inputs, **header).status_code,
                httpx.get(f"{api.url}/v2/models/flights", headers=header).status_code,
                httpx.get(f"{api.url}/v2/models/flights/ready", headers=header).status_code,
                httpx.get(f"{api.url}/tasks/flights/ping", headers=header).status_code,
            ]

        assert statuses(ours) == [200] * 6
        assert statuses(others) == [403] * 6
        assert statuses(ingests) == [403, 403, 403, 200, 200, 200]
        assert invoke(api, body, "/invocations", authorization=f"Bearer {ours}").status_code == 403
        refused = infer(api, inputs)
        assert (refused.status_code, "error" in refused.json()) == (401, True)
        for path in ("/v2/health/live", "/v2/health/ready", "/ping"):
            assert httpx.get(f"{api.url}{path}").status_code == 200
        assert httpx.get(f"{api.url}/v2").status_code == 401
