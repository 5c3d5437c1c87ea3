"""Answers that were given, against the labels that came for them: the figures equal those computed from the answers."""

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, text

from contracts.calibration import LEVELS, AgeQuantiles, Calibration
from contracts.clock import format_moment, parse_moment
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.service_app import TASK, service_settings, serving
from trainer.monitoring.answer_scoring import AnswerScoring

pytestmark = pytest.mark.anyio

REGRESSION = {"name": "delay", "kind": "regression"}
DAY = 86_400_000_000
LABELS = "/tasks/flights/labels"
Answers = Sequence[dict[str, Any]]
Figures = dict[str, Any]


def score(engine: Engine, now: datetime | None = None) -> int:
    """Let a trainer that has just started score what has changed."""
    return AnswerScoring(engine, threading.Event()).score_touched(now or datetime.now(UTC))


@asynccontextmanager
async def answering(
    database_url: str, home: Path, version: str = "3", cutoff: int = CUTOFF, **changes: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A service of a home of its own, in which this version answers for a task of the same target."""
    quantiles = [AgeQuantiles(age, 1000, [0.7] * len(LEVELS)) for age in range(2)]
    place_version(
        home,
        version,
        spec={"target": changes["target"]} if "target" in changes else {},
        cutoff=cutoff,
        valid_until=cutoff + 2 * WEEK,
        calibration=Calibration(1.0, quantiles),
    )
    async with serving(service_settings(database_url, home)) as client:
        (await client.put("/tasks/flights", json=TASK | changes)).raise_for_status()
        yield client


async def ask(client: httpx.AsyncClient, seed: int, count: int, first: int = CUTOFF, **options: Any) -> Answers:
    """The answers to random rows of the fortnight after a moment, with their features."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "at": format_moment(first + int(rng.integers(2 * WEEK))),
            "features": {"distance": float(rng.normal() * 900), "carrier": str(rng.choice(["UA", "AA", "DL"]))},
        }
        for _ in range(count)
    ]
    answer = await client.post("/predict", params={"task": "flights", **options}, json={"rows": rows})
    answers = answer.raise_for_status().json()["answers"]
    return [one | {"features": row["features"]} for one, row in zip(answers, rows, strict=True)]


async def await_log(engine: Engine, answers: Answers) -> None:
    """Wait until all of these are in the log."""
    query = text("SELECT count(*) FROM predictions WHERE CAST(id AS text) = ANY(:ids)")
    with anyio.fail_after(60):
        while True:
            with engine.connect() as connection:
                if connection.execute(query, {"ids": [one["id"] for one in answers]}).scalar_one() == len(answers):
                    return
            await anyio.sleep(0.05)


async def send_labels(client: httpx.AsyncClient, labels: Mapping[str, Any]) -> list[str]:
    """What became of labels by the ids of their answers."""
    body = [{"prediction_id": one, "label": label} for one, label in labels.items()]
    answer = (await client.post(LABELS, json=body)).raise_for_status()
    return [one["status"] for one in answer.json()["results"]]


async def read_figures(client: httpx.AsyncClient) -> dict[tuple[str, int | None], Figures]:
    """Version and age -> what the status shows."""
    status = (await client.get("/tasks/flights")).raise_for_status().json()
    return {(one["version"], one["age"]): one for one in status["answers"]["by_age"]}


def group(answers: Answers, cutoffs: Mapping[str, int]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for one in answers:
        age = (parse_moment(one["at"]) - cutoffs[one["version"]]) // WEEK
        found.setdefault((one["version"], age), []).append(one)
    return found


def compute(answers: Answers, labels: Mapping[str, Any]) -> Figures:
    """The figures of answers of one version and age, from the answers as a client got them."""
    known = [one for one in answers if one["id"] in labels]
    truth = [labels[one["id"]] for one in known]
    figures: Figures = {"num_answers": len(answers), "num_labelled": len(known)}
    if not known:
        return figures
    if "probabilities" in known[0]:
        given = np.array([one["probabilities"][label] for one, label in zip(known, truth, strict=True)])
        figures["error"] = float(-np.log(np.clip(given, 1e-6, 1)).mean())
        right = np.array([one["prediction"] == label for one, label in zip(known, truth, strict=True)])
        figures["error_rate"] = float(1 - right.mean())
        best = np.array([max(one["probabilities"].values()) for one in known])
        bins = np.minimum(np.floor(best * 10), 9)
        figures["calibration_error"] = float(
            sum(
                abs(right[bins == place].mean() - best[bins == place].mean()) * (bins == place).mean()
                for place in np.unique(bins)
            )
        )
        covered = [label in one["prediction_set"] for one, label in zip(known, truth, strict=True) if "coverage" in one]
    else:
        means = np.array([one["mean"] for one in known])
        figures["error"] = float(np.abs(np.array(truth) - means).mean())
        covered = [one["interval"][0] <= label <= one["interval"][1] for one, label in zip(known, truth, strict=True)]
    figures["expected_error"] = float(np.mean([one["expected_error"] for one in known]))
    figures["num_given"] = len(covered)
    if covered:
        figures["coverage"] = float(np.mean(covered))
        figures["promised_coverage"] = float(np.mean([one["coverage"] for one in known if "coverage" in one]))
    return figures


def assert_equal(
    found: Mapping[tuple[str, int | None], Figures],
    answers: Answers,
    labels: Mapping[str, Any],
    cutoffs: Mapping[str, int],
) -> None:
    """Every figure of every version and age, to twelve digits."""
    expected = {key: compute(given, labels) for key, given in group(answers, cutoffs).items()}
    assert {key: {name: found[key][name] for name in one} for key, one in expected.items()} == {
        key: pytest.approx(one, rel=1e-12) for key, one in expected.items()
    }
    assert found.keys() == expected.keys()


async def test_figures_of_classes_equal_those_of_the_answers_through_corrections_retractions_and_erasures(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    cutoffs = {"3": CUTOFF, "4": CUTOFF + WEEK}
    rng = np.random.default_rng(7)
    async with answering(database_url, tmp_path / "first") as client:
        plain, with_sets = await ask(client, 1, 60), await ask(client, 2, 60, coverage=0.8)
        answers = [*plain, *with_sets]
        await await_log(engine, answers)
        outside = await client.get("/predict", params={"at": "2030-01-01T00:00:00Z", "distance": 1, "carrier": "UA"})
        assert outside.status_code == 422
        labels = {one["id"]: str(rng.choice(["late", "on_time"])) for one in answers[:50]}
        assert set(await send_labels(client, labels)) == {"joined"}
        assert score(engine) > 0
        assert_equal(await read_figures(client), answers, labels, cutoffs)
        assert score(engine) == 0  # nothing has changed since

        late = {one["id"]: str(rng.choice(["late", "on_time"])) for one in answers[50:100]}
        await send_labels(client, late)
        labels |= late
        assert score(engine) > 0
        assert_equal(await read_figures(client), answers, labels, cutoffs)

        corrected = answers[3]
        labels[corrected["id"]] = "late" if labels[corrected["id"]] == "on_time" else "on_time"
        event = {"at": corrected["at"], "features": corrected["features"], "label": labels[corrected["id"]]}
        put = await client.put(f"/events/{corrected['id']}", params={"task": "flights"}, json=event)
        assert put.json()["status"] == "corrected"
        score(engine)
        assert_equal(await read_figures(client), answers, labels, cutoffs)

        imported = answers[110]
        begun = (await client.post("/tasks/flights/imports", json={"source": "answers.csv"})).raise_for_status().json()
        row = {
            "event_id": imported["id"],
            "at": imported["at"],
            "features": imported["features"],
            "label": imported["prediction"],
        }
        stored = await client.post("/events", params={"task": "flights", "import": begun["id"]}, json=[row])
        assert stored.raise_for_status().json()["created"] == 1
        score(engine)
        assert_equal(await read_figures(client), answers, labels | {imported["id"]: row["label"]}, cutoffs)
        retracted = await client.post(
            f"/tasks/flights/imports/{begun['id']}/retract", json={"reason": "another file was meant"}
        )
        retracted.raise_for_status()
        score(engine)
        assert_equal(await read_figures(client), answers, labels, cutoffs)

        erased, *answers = answers
        body = {"event_ids": [erased["id"]], "reason": "asked for"}
        (await client.post("/tasks/flights/erasures", json=body)).raise_for_status()
        del labels[erased["id"]]
        score(engine)
        assert_equal(await read_figures(client), answers, labels, cutoffs)

    async with answering(database_url, tmp_path / "second", "4", CUTOFF + WEEK) as client:
        newer = await ask(client, 3, 40, CUTOFF + WEEK, coverage=0.9)
        await await_log(engine, newer)
        others = {one["id"]: str(rng.choice(["late", "on_time"])) for one in newer[:25]}
        await send_labels(client, others)
        score(engine)
        assert_equal(await read_figures(client), [*answers, *newer], labels | others, cutoffs)
        assert next(iter(await read_figures(client)))[0] == "4"  # the version that answered last


async def test_figures_of_a_regression_equal_those_of_the_answers(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    rng = np.random.default_rng(11)
    async with answering(database_url, tmp_path, target=REGRESSION) as client:
        answers = [*await ask(client, 4, 80), *await ask(client, 5, 40, coverage=0.5)]
        await await_log(engine, answers)
        labels = {one["id"]: float(one["mean"] + rng.normal()) for one in answers[:90]}
        await send_labels(client, labels)
        score(engine)
        found = await read_figures(client)
        assert_equal(found, answers, labels, {"3": CUTOFF})
        assert {one["error_name"] for one in found.values()} == {"mean_absolute_error"}
        assert {(one["error_rate"], one["calibration_error"]) for one in found.values()} == {(None, None)}


async def test_the_delay_of_a_label_counts_from_the_moment_that_was_asked_about(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    async with answering(database_url, tmp_path) as client:
        answers = [one for one in await ask(client, 6, 60) if parse_moment(one["at"]) < CUTOFF + WEEK][:10]
        await await_log(engine, answers)
        body = [
            {
                "prediction_id": one["id"],
                "label": "late",
                "known_at": format_moment(parse_moment(one["at"]) + place * DAY),
            }
            for place, one in enumerate(answers)
        ]
        (await client.post(LABELS, json=body)).raise_for_status()
        score(engine)
        found = (await read_figures(client))["3", 0]
        assert (found["label_delay_median"], found["label_delay_p90"]) == (4 * 86_400, 8 * 86_400)
        assert found["waiting"] == 1 - 10 / found["num_answers"]


async def test_a_moment_of_the_versions_own_rows_counts_apart(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    async with answering(database_url, tmp_path) as client:
        moments = [CUTOFF - WEEK, CUTOFF, CUTOFF + 2 * WEEK]
        body = {"features": {"distance": 1, "carrier": "UA"}, "at": [*map(format_moment, moments)]}
        answers = (await client.post("/predict", json=body)).raise_for_status().json()["answers"]
        await await_log(engine, answers)
        score(engine)
        found = await read_figures(client)
        # The end of the horizon has the last age, by which its error was expected.
        assert {key: one["num_answers"] for key, one in found.items()} == {("3", None): 1, ("3", 0): 1, ("3", 1): 1}


async def test_a_task_that_logs_nothing_has_no_figures_and_says_its_share(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    async with answering(database_url, tmp_path, log={"share": 0, "days": 5}) as client:
        assert score(engine) == 0
        status = (await client.get("/tasks/flights")).json()
        assert status["answers"] == {"share": 0.0, "days": 5, "by_age": []}


async def test_answers_that_the_log_no_longer_holds_count_no_more(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    async with answering(database_url, tmp_path) as client:
        answers = await ask(client, 8, 5)
        await await_log(engine, answers)
        score(engine)
        job = AnswerScoring(engine, threading.Event())
        job.forget(datetime.now(UTC))
        assert await read_figures(client)
        job.forget(datetime(2100, 1, 1, tzinfo=UTC))
        assert await read_figures(client) == {}


async def test_the_page_and_the_metrics_show_the_figures(database_url: str, engine: Engine, tmp_path: Path) -> None:
    async with answering(database_url, tmp_path) as client:
        answers = await ask(client, 9, 40, coverage=0.9)
        await await_log(engine, answers)
        await send_labels(client, {one["id"]: "late" for one in answers[:30]})
        score(engine)
        page = (await client.get("/pages/flights")).raise_for_status().text
        assert "Answers that were given" in page
        found = await read_figures(client)
        assert f"{100 * found['3', 0]['coverage']:.1f} %" in page
        with anyio.fail_after(60):
            while "morrow_answers_error" not in (samples := await scrape(client)):
                await anyio.sleep(0.05)
    for name, figure in (
        ("morrow_answers_logged", "num_answers"),
        ("morrow_answers_labelled", "num_labelled"),
        ("morrow_answers_error", "error"),
        ("morrow_answers_expected_error", "expected_error"),
        ("morrow_answers_coverage", "coverage"),
        ("morrow_answers_promised_coverage", "promised_coverage"),
        ("morrow_answers_calibration_error", "calibration_error"),
    ):
        assert samples[name] == pytest.approx({str(age): one[figure] for (_, age), one in found.items()})


async def scrape(client: httpx.AsyncClient) -> dict[str, dict[str, float]]:
    """Series of the task -> age -> value."""
    metrics = (await client.get("/metrics")).raise_for_status().text
    return {
        family.name: {one.labels["age"]: one.value for one in family.samples if "age" in one.labels}
        for family in text_string_to_metric_families(metrics)
        if family.samples
    }
