"""What /predict says of change on request: rates, and when a prediction flips."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import onnx
import pytest
import torch

from contracts.calibration import Calibration
from contracts.clock import format_moment, parse_moment
from contracts.manifest import MANIFEST_FILE, RATE_FILE, checksum
from service.models.local_copies import Current, write_current
from store.releases import Overlay
from tests.integration.artefacts import CUTOFF, PER_SECOND, WEEK, write_version
from tests.integration.one_version import (
    REGRESSION,
    ROW,
    SECOND,
    VALID_UNTIL,
    Row,
    ask,
    ask_many,
    everywhere,
    placed,
    quantiles,
    unnamed,
)
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving
from tests.unit.trainer.export.exported_network import make_network, make_rows, make_task, write
from trainer.data.encoder import fit_encoder

pytestmark = pytest.mark.anyio


async def test_a_rate_is_the_change_of_the_answer_per_second(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        at, step = CUTOFF + WEEK // 2, 6 * 3600
        answer = (await ask(client, at, rate="true")).json()
        later, sooner = [(await ask(client, at + sign * step * SECOND)).json() for sign in (1, -1)]
        plain = unnamed((await ask(client, at)).json())
        refused = unnamed((await ask(client, at, rate="false")).json())
    share = answer["probabilities"]["on_time"]
    assert answer["rate"]["on_time"] == pytest.approx(share * (1 - share) * PER_SECOND, rel=1e-5)
    for name, rate in answer["rate"].items():
        difference = (later["probabilities"][name] - sooner["probabilities"][name]) / (2 * step)
        assert rate == pytest.approx(difference, rel=1e-3)
    assert {name: answer[name] for name in plain} == plain == refused
    assert set(unnamed(answer)) - set(plain) == {"rate", "flips_at"}


async def test_a_regression_has_rates_of_mean_and_scale_and_never_flips(tmp_path: Path) -> None:
    async with placed(tmp_path, spec=REGRESSION) as client:
        answer = (await ask(client, CUTOFF, rate="true")).json()
    assert answer["rate"]["mean"] == pytest.approx(PER_SECOND, rel=1e-5)
    assert answer["rate"]["scale"] == pytest.approx(PER_SECOND * answer["scale"], rel=1e-5)
    assert "flips_at" not in answer


async def test_many_moments_in_one_call_get_what_single_calls_get(tmp_path: Path) -> None:
    calibration = Calibration(1.0, [quantiles(age, *everywhere(0.45, 0.6)) for age in (0, 1)])
    moments = [CUTOFF + 1 + k * (2 * WEEK // 50) for k in range(50)]
    async with placed(tmp_path, calibration=calibration) as client:
        given = {"rate": "true", "coverage": "0.9"}
        many = (await ask_many(client, moments, **given)).json()["answers"]
        for at, found in zip(moments, many, strict=True):
            one = (await ask(client, at, **given)).json()
            for name in ("probabilities", "rate"):
                assert found.pop(name) == pytest.approx(one.pop(name), rel=1e-6)
            assert unnamed(found) == unnamed(one)


async def test_flips_at_is_the_first_second_at_which_another_class_is_predicted(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        for at in (CUTOFF - WEEK, CUTOFF, CUTOFF + 12_345_678, CUTOFF + WEEK - 3 * SECOND):
            answer = (await ask(client, at, rate="true")).json()
            flip = parse_moment(answer["flips_at"])
            assert abs(flip - CUTOFF - WEEK) < 5 * SECOND
            assert (flip - at) % SECOND == 0
            before, after = [(await ask(client, moment)).json()["prediction"] for moment in (flip - SECOND, flip)]
            assert (answer["prediction"], before, after) == ("late", "late", "on_time")


async def test_a_flip_in_a_gap_in_which_nothing_is_answered_is_not_promised(tmp_path: Path) -> None:
    change = CUTOFF + WEEK
    async with placed(tmp_path / "around", gaps=[(change - 60 * SECOND, change + 60 * SECOND)]) as client:
        assert (await ask(client, change, rate="true")).status_code == 422
        assert (await ask(client, CUTOFF, rate="true")).json()["flips_at"] is None
    async with placed(tmp_path / "behind", gaps=[(change + 60 * SECOND, change + 120 * SECOND)]) as client:
        assert (await ask(client, CUTOFF, rate="true")).json()["flips_at"] is not None
    async with placed(tmp_path / "before", gaps=[(CUTOFF - 120 * SECOND, CUTOFF - 60 * SECOND)]) as client:
        assert (await ask(client, CUTOFF, rate="true")).json()["flips_at"] is not None


async def test_a_prediction_that_does_not_flip_before_the_version_ends_says_null(tmp_path: Path) -> None:
    async with placed(tmp_path / "open") as client:
        for at in (CUTOFF + WEEK + SECOND * 10, VALID_UNTIL, VALID_UNTIL - 1):
            assert (await ask(client, at, rate="true")).json()["flips_at"] is None
    async with placed(tmp_path / "closed", Overlay(CUTOFF + WEEK - 60 * SECOND, None)) as client:
        assert (await ask(client, CUTOFF, rate="true")).json()["flips_at"] is None
    async with placed(tmp_path / "closed later", Overlay(CUTOFF + WEEK + 60 * SECOND, None)) as client:
        assert (await ask(client, CUTOFF, rate="true")).json()["flips_at"] is not None


async def test_a_moment_beyond_the_horizon_is_named_as_it_was_given_with_rates_and_without(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        for given in ({}, {"rate": "true"}):
            one = await ask(client, VALID_UNTIL + 1, **given)
            assert [fault["field"] for fault in one.json()["errors"]] == ["at"]
            many = await ask_many(client, [CUTOFF, VALID_UNTIL + 1], **given)
            assert [fault["field"] for fault in many.json()["errors"]] == ["at[1]"]


async def test_rates_are_given_for_a_hundred_rows_at_once(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        answers = (await ask_many(client, [CUTOFF + k for k in range(100)], rate="true")).json()["answers"]
        assert all("flips_at" in answer for answer in answers)
        refused = await ask_many(client, [CUTOFF] * 101, rate="true")
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "rate"
        assert "at most 100" in refused.json()["detail"]
        assert (await ask_many(client, [CUTOFF] * 101)).status_code == 200


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("rate=1", ["rate"]),
        ("rate=True", ["rate"]),
        ("rate=", ["rate"]),
        ("rate=true&rate=true", ["rate"]),
        ("coverage=0", ["coverage"]),
        ("coverage=1", ["coverage"]),
        ("coverage=1.0", ["coverage"]),
        ("coverage=-0.5", ["coverage"]),
        ("coverage=90%25", ["coverage"]),
        ("coverage=nan", ["coverage"]),
        ("coverage=", ["coverage"]),
        ("coverage=.9", ["coverage"]),
        ("coverage=0.9&coverage=0.9", ["coverage"]),
        ("coverage=2&rate=2", ["coverage", "rate"]),
    ],
)
async def test_options_that_cannot_be_read_are_named_by_both_verbs(
    tmp_path: Path, query: str, fields: list[str]
) -> None:
    async with placed(tmp_path) as client:
        got = await client.get(f"/predict?{query}&distance=1&carrier=UA")
        posted = await client.post(f"/predict?{query}", json={"rows": [{"features": ROW}]})
    for answer in (got, posted):
        assert answer.status_code == 422
        assert answer.json()["type"] == "/problems/invalid-input"
        assert [fault["field"] for fault in answer.json()["errors"]] == fields


def replace_rates(folder: Path, graph: bytes) -> None:
    """Another rate graph, vouched for by the manifest."""
    (folder / RATE_FILE).write_bytes(graph)
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["checksums"][RATE_FILE] = checksum(folder / RATE_FILE)
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


async def test_a_rate_graph_that_answers_otherwise_costs_the_rates_only(tmp_path: Path) -> None:
    folder = write_version(tmp_path / "models" / "flights" / "3")
    other = write_version(tmp_path / "other", bias=1.0)
    values = onnx.load(folder / "model.onnx").SerializeToString()
    write_current(folder.parent, Current("3", VALID_UNTIL))
    for graph in ((other / RATE_FILE).read_bytes(), b"no graph", values):
        replace_rates(folder, graph)
        async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
            assert (await ask(client, CUTOFF)).status_code == 200
            for _ in range(2):
                refused = await ask(client, CUTOFF, rate="true")
                assert (refused.status_code, refused.json()["type"]) == (503, "/problems/rate-refused")
            assert (await ask(client, CUTOFF)).status_code == 200


async def test_rates_asked_for_by_many_at_once_are_the_same(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []

    async def ask_once(client: httpx.AsyncClient) -> None:
        found.append(unnamed((await ask(client, CUTOFF, rate="true")).json()))

    async with placed(tmp_path) as client, anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask_once, client)
    assert len(found) == 20
    assert all(answer == found[0] for answer in found)
    assert "rate" in found[0]


async def test_rates_that_are_not_finite_are_a_named_500(tmp_path: Path) -> None:
    async with placed(tmp_path, spec=REGRESSION) as client:
        assert (await ask(client, CUTOFF, distance=80_000, rate="true")).status_code == 200
        answer = await ask(client, CUTOFF, distance=1e6, rate="true")
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/answer-not-finite")


async def test_flips_of_a_fitted_network_are_what_single_calls_find(tmp_path: Path) -> None:
    """With a calendar, a temperature and 32 bits in which a second moves nothing: what is said is what is answered."""
    task = make_task()
    rows = make_rows(task, 900)
    cutoff = int(task.clock.window_start(int(rows.at[-1])))
    encoder = fit_encoder(task, rows, cutoff)
    network = make_network(encoder, task.training, 2)
    assert network.time is not None
    with torch.no_grad():
        network.time.frequency.mul_(30)
        network.head.bias.zero_()
    folder = tmp_path / "models" / "t" / "1"
    manifest = write(folder, task, encoder, network, horizon=3)
    write_current(folder.parent, Current("1", manifest.valid_until))
    num_flips = 0
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:

        async def predict(row: Row, at: int, **given: str) -> dict[str, Any]:
            answer = await client.get("/predict", params={**row, "at": format_moment(at), **given})
            assert answer.status_code == 200
            found: dict[str, Any] = answer.json()
            return found

        for x in np.linspace(-5, 60, 12):
            for carrier in ("AA", "ÅÅ", "zz"):
                row = {"x": round(float(x), 3), "carrier": carrier}
                at = cutoff + 1_234_567
                asked = await predict(row, at, rate="true")
                (many,) = (await ask_many(client, [at], row, rate="true")).json()["answers"]
                assert many["flips_at"] == asked["flips_at"]
                later = [(await predict(row, at + k * WEEK // 4))["prediction"] for k in range(1, 12)]
                if asked["flips_at"] is None:
                    assert set(later) == {asked["prediction"]}
                    continue
                num_flips += 1
                flip = parse_moment(asked["flips_at"])
                assert at < flip <= manifest.valid_until
                assert (await predict(row, flip))["prediction"] != asked["prediction"]
                assert (await predict(row, flip - SECOND))["prediction"] == asked["prediction"]
    assert num_flips >= 3
