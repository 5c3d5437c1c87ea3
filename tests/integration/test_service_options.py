"""What /predict says on request: sets and intervals of a coverage, rates, and when a prediction flips."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import onnx
import pytest
import torch

from contracts.calibration import LEVELS, AgeQuantiles, Calibration
from contracts.clock import format_moment, parse_moment
from contracts.manifest import MANIFEST_FILE, RATE_FILE, checksum
from contracts.releases import Overlay
from service.copies import CURRENT_FILE, Current, write_current
from tests.integration.artefacts import CUTOFF, PER_SECOND, WEEK, write_version
from tests.integration.serving import service_settings, serving
from tests.unit.exporting import make_network, make_rows, make_task
from trainer.artefact import write_artefact
from trainer.dataset import fit_encoder

pytestmark = pytest.mark.anyio

DEAD_DATABASE = "postgresql+psycopg://nobody@127.0.0.1:9/morrow"
SECOND, VALID_UNTIL = 1_000_000, CUTOFF + 2 * WEEK
REGRESSION = {"target": {"name": "delay", "kind": "regression"}}
OPEN = Overlay(VALID_UNTIL, None)
Row = dict[str, Any]
ROW: Row = {"distance": -600, "carrier": "UA"}  # its score passes 0 a week after the cutoff


@asynccontextmanager
async def placed(home: Path, overlay: Overlay = OPEN, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that has one version and nothing else."""
    folder = write_version(home / "models" / "flights" / "3", **changes)
    write_current(folder.parent, Current("3", overlay.valid_until, None, overlay.calibration))
    async with serving(service_settings(DEAD_DATABASE, home)) as client:
        yield client


async def ask(client: httpx.AsyncClient, at: int, **given: Any) -> httpx.Response:
    return await client.get("/predict", params={"at": format_moment(at), **ROW, **given})


async def ask_many(client: httpx.AsyncClient, moments: list[int], row: Row = ROW, /, **given: Any) -> httpx.Response:
    body = {"features": row, "at": [format_moment(at) for at in moments]}
    return await client.post("/predict", params=given, json=body)


def quantiles(age: int, *values: float, num_rows: int = 1000) -> AgeQuantiles:
    """Quantiles at 0.50, 0.51 …; the last value stands for all higher levels unless there are few."""
    return AgeQuantiles(age, num_rows, list(values))


def everywhere(*values: float) -> list[float]:
    """The same quantile for all levels up to 0.89, then the second for all others."""
    return [values[0] if level < 0.895 else values[1] for level in LEVELS]


async def test_a_rate_is_the_change_of_the_answer_per_second(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        at, step = CUTOFF + WEEK // 2, 6 * 3600
        answer = (await ask(client, at, rate="true")).json()
        later, sooner = [(await ask(client, at + sign * step * SECOND)).json() for sign in (1, -1)]
        plain = (await ask(client, at)).json()
        refused = (await ask(client, at, rate="false")).json()
    share = answer["probabilities"]["on_time"]
    assert answer["rate"]["on_time"] == pytest.approx(share * (1 - share) * PER_SECOND, rel=1e-5)
    for name, rate in answer["rate"].items():
        difference = (later["probabilities"][name] - sooner["probabilities"][name]) / (2 * step)
        assert rate == pytest.approx(difference, rel=1e-3)
    assert {name: answer[name] for name in plain} == plain == refused
    assert set(answer) - set(plain) == {"rate", "flips_at"}


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
            assert found == one


async def test_flips_at_is_the_first_second_at_which_another_class_is_predicted(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        for at in (CUTOFF - WEEK, CUTOFF, CUTOFF + 12_345_678, CUTOFF + WEEK - 3 * SECOND):
            answer = (await ask(client, at, rate="true")).json()
            flip = parse_moment(answer["flips_at"])
            assert abs(flip - CUTOFF - WEEK) < 5 * SECOND
            assert (flip - at) % SECOND == 0
            before, after = [(await ask(client, moment)).json()["prediction"] for moment in (flip - SECOND, flip)]
            assert (answer["prediction"], before, after) == ("late", "late", "on_time")


async def test_a_prediction_that_does_not_flip_before_the_version_ends_says_null(tmp_path: Path) -> None:
    async with placed(tmp_path / "open") as client:
        for at in (CUTOFF + WEEK + SECOND * 10, VALID_UNTIL, VALID_UNTIL - 1):
            assert (await ask(client, at, rate="true")).json()["flips_at"] is None
    async with placed(tmp_path / "closed", Overlay(CUTOFF + WEEK - 60 * SECOND, None)) as client:
        assert (await ask(client, CUTOFF, rate="true")).json()["flips_at"] is None
    async with placed(tmp_path / "closed later", Overlay(CUTOFF + WEEK + 60 * SECOND, None)) as client:
        assert (await ask(client, CUTOFF, rate="true")).json()["flips_at"] is not None


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


async def test_a_set_holds_the_classes_that_the_quantile_allows_and_always_the_likeliest(tmp_path: Path) -> None:
    at = CUTOFF + WEEK // 2
    async with placed(tmp_path / "plain") as client:
        shares = (await ask(client, at)).json()["probabilities"]
    assert 0.4 < shares["on_time"] < shares["late"] < 0.6
    for quantile, expected in [
        (1 - shares["on_time"] + 1e-6, ["late", "on_time"]),
        (1 - shares["on_time"] - 1e-6, ["late"]),
        (0.0, ["late"]),
        (1.0, ["late", "on_time"]),
    ]:
        calibration = Calibration(1.0, [quantiles(0, *everywhere(float(quantile), float(quantile)))])
        async with placed(tmp_path / str(quantile), calibration=calibration) as client:
            answer = (await ask(client, at, coverage="0.8")).json()
            assert (answer["prediction_set"], answer["coverage"]) == (expected, 0.8)
            assert "prediction_set" not in (await ask(client, at)).json()


async def test_the_quantile_is_compared_before_the_temperature(tmp_path: Path) -> None:
    at = CUTOFF + WEEK // 2
    async with placed(tmp_path / "plain") as client:
        tempered = np.array([*(await ask(client, at)).json()["probabilities"].values()])
    before = tempered**3 / (tempered**3).sum()
    assert before.min() < tempered.min() - 0.01
    for quantile, expected in [(1 - before.min() + 1e-6, 2), (1 - tempered.min(), 1)]:
        calibration = Calibration(3.0, [quantiles(0, *everywhere(float(quantile), float(quantile)))])
        async with placed(tmp_path / str(quantile), calibration=calibration) as client:
            assert len((await ask(client, at, coverage="0.9")).json()["prediction_set"]) == expected


async def test_an_interval_is_as_wide_as_its_age_and_coverage_ask(tmp_path: Path) -> None:
    calibration = Calibration(1.0, [quantiles(0, *everywhere(1.0, 2.0)), quantiles(1, *everywhere(3.0, 4.0))])
    async with placed(tmp_path, spec=REGRESSION, calibration=calibration) as client:
        for at, usual, half in [
            (CUTOFF + 1, 2, 1),
            (CUTOFF + WEEK - 1, 2, 1),
            (CUTOFF + WEEK, 4, 3),
            (VALID_UNTIL, 4, 3),
        ]:
            for coverage, width in ((None, usual), ("0.9", usual), ("0.8", half), ("0.2", half), ("0.895", usual)):
                given = {} if coverage is None else {"coverage": coverage}
                (many,) = (await ask_many(client, [at], **given)).json()["answers"]
                one = (await ask(client, at, **given)).json()
                assert one == many
                mean, scale = one["mean"], one["scale"]
                assert one["interval"] == pytest.approx([mean - width * scale, mean + width * scale], rel=1e-12)
                assert one["coverage"] == float(coverage or 0.9)


async def test_what_too_few_rows_support_is_refused_with_their_number(tmp_path: Path) -> None:
    few = quantiles(0, *[1.0] * 31, num_rows=5)  # levels 0.50 … 0.80
    calibration = Calibration(1.0, [few, quantiles(1, num_rows=1)])
    for name, spec in (("class", {}), ("value", REGRESSION)):
        async with placed(tmp_path / name, spec=spec, calibration=calibration) as client:
            assert (await ask(client, CUTOFF + 1, coverage="0.8")).status_code == 200
            for at, coverage, words in [
                (CUTOFF + 1, "0.801", "at age 0: 5 scored rows are too few for 0.801"),
                (CUTOFF + WEEK, "0.5", "at age 1: 1 scored row is too few for 0.5"),
                (CUTOFF, "0.5", "up to trained_until: no rows are scored there"),
                (CUTOFF - WEEK, "0.5", "up to trained_until: no rows are scored there"),
                (CUTOFF + 1, "0.9999", "is at most 0.999, whatever rows there are"),
            ]:
                for refused in (
                    await ask(client, at, coverage=coverage),
                    await ask_many(client, [CUTOFF + 2, at], coverage=coverage),
                ):
                    problem = refused.json()
                    assert (refused.status_code, problem["type"]) == (422, "/problems/coverage-unsupported")
                    assert problem["errors"][0]["field"] == "coverage"
                    assert words in problem["detail"]


async def test_without_support_a_regression_has_no_interval_and_a_class_no_set(tmp_path: Path) -> None:
    async with placed(tmp_path, spec=REGRESSION) as client:
        for at in (CUTOFF - WEEK, CUTOFF, CUTOFF + WEEK):
            answer = (await ask(client, at)).json()
            assert (answer["interval"], answer["coverage"]) == (None, 0.9)
            assert "prediction_set" not in answer


async def test_the_kept_calibration_of_an_overlay_counts_after_a_restart_offline(tmp_path: Path) -> None:
    of_manifest = Calibration(1.0, [quantiles(0, *everywhere(1.0, 1.0))])
    overlay = Overlay(VALID_UNTIL, Calibration(1.0, [quantiles(0, *everywhere(5.0, 5.0))]))
    async with placed(tmp_path, overlay, spec=REGRESSION, calibration=of_manifest) as client:
        answer = (await ask(client, CUTOFF + 1)).json()
        assert answer["interval"][1] - answer["mean"] == pytest.approx(5 * answer["scale"])
    (tmp_path / "models" / "flights" / CURRENT_FILE).write_text(
        json.dumps({"version": "3", "valid_until": CUTOFF + WEEK, "previous": None})
    )
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        answer = (await ask(client, CUTOFF + 1)).json()
        assert answer["interval"][1] - answer["mean"] == pytest.approx(answer["scale"])
        assert answer["valid_until"] == format_moment(CUTOFF + WEEK)


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
        found.append((await ask(client, CUTOFF, rate="true")).json())

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
    manifest = write_artefact(
        folder,
        encoder=encoder,
        network=network,
        members=[0, 1],
        rows=rows,
        task=task,
        schema_id=1,
        horizon=3,
        ages=[],
        calibration=Calibration(1.6, []),
        num_rows=len(rows),
        rows_digest=rows.digest,
        read_at=cutoff,
        seeds=[0, 1],
        device="cpu",
        git_sha="0" * 40,
    )
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
