"""What /predict says of its certainty: sets and intervals of the coverage that is asked for."""

import json
from pathlib import Path

import numpy as np
import pytest

from contracts.calibration import Calibration
from contracts.clock import format_moment
from service.models.local_copies import CURRENT_FILE
from store.releases import Overlay
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.one_version import REGRESSION, VALID_UNTIL, ask, ask_many, everywhere, placed, quantiles, unnamed
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving

pytestmark = pytest.mark.anyio


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
                assert unnamed(one) == unnamed(many)
                mean, scale = one["mean"], one["scale"]
                assert one["interval"] == pytest.approx([mean - width * scale, mean + width * scale], rel=1e-12)
                assert one["coverage"] == float(coverage or 0.9)


async def test_moments_between_the_newest_row_and_the_cutoff_are_answered_like_those_of_the_first_window(
    tmp_path: Path,
) -> None:
    """The cutoff is the end of a window, and the rows may end earlier: tomorrow then has an interval too."""
    calibration = Calibration(1.0, [quantiles(0, *everywhere(1.0, 2.0)), quantiles(1, *everywhere(3.0, 4.0))])
    newest = CUTOFF - WEEK // 2
    async with placed(tmp_path, spec=REGRESSION, calibration=calibration, newest=newest) as client:
        first = (await ask(client, CUTOFF)).json()
        for at in (newest + 1, CUTOFF - 1):
            answer = (await ask(client, at, coverage="0.9")).json()
            assert answer["expected_error"] == first["expected_error"] == 0.4
            mean, scale = answer["mean"], answer["scale"]
            assert answer["interval"] == pytest.approx([mean - 2 * scale, mean + 2 * scale], rel=1e-12)
        known = (await ask(client, newest)).json()
        assert (known["expected_error"], known["interval"]) == (None, None)
        assert (await ask(client, newest, coverage="0.9")).status_code == 422


async def test_what_too_few_rows_support_is_refused_with_their_number(tmp_path: Path) -> None:
    few = quantiles(0, *[1.0] * 31, num_rows=5)  # levels 0.50 … 0.80
    calibration = Calibration(1.0, [few, quantiles(1, num_rows=1)])
    for name, spec in (("class", {}), ("value", REGRESSION)):
        async with placed(tmp_path / name, spec=spec, calibration=calibration) as client:
            for at in (CUTOFF, CUTOFF + 1):
                assert (await ask(client, at, coverage="0.8")).status_code == 200
            for at, coverage, words in [
                (CUTOFF + 1, "0.801", "at age 0: 5 scored rows are too few for 0.801"),
                (CUTOFF + WEEK, "0.5", "at age 1: 1 scored row is too few for 0.5"),
                (CUTOFF - 1, "0.5", "is not available for moments of the fit's rows"),
                (CUTOFF - WEEK, "0.5", "is not available for moments of the fit's rows"),
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
