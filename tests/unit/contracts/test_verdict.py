"""Verdicts to JSON and back: what the store keeps, what the API shows, and rows that older code wrote."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.clock import from_micros
from contracts.failure import Failure, FailureCode
from contracts.verdict import (
    FORMAT_VERSION,
    BoundOverride,
    Comparison,
    Decision,
    LimitCheck,
    MatrixFigures,
    Recalibration,
    Rollback,
    RowFigures,
    Verdict,
    decode_row,
    decode_verdict,
    encode,
    to_json,
)

FORMER = json.loads((Path(__file__).parents[2] / "integration" / "store" / "former_release.json").read_bytes())["rows"]
KEPT, BROKEN = Decision("min_rows", True, 500, 100), Decision("horizon", False, 0, 1, "no age is validated")


def through_json(document: dict[str, Any]) -> Any:
    return json.loads(json.dumps(document, allow_nan=False))


@pytest.mark.parametrize("row", FORMER["cycles"], ids=lambda row: f"cycle {row['id']}")
def test_a_cycles_verdict_of_the_release_before_is_shown_to_the_letter(row: dict[str, Any]) -> None:
    shown = to_json(decode_verdict(row["verdict"]))
    assert json.dumps(shown, sort_keys=True) == json.dumps(row["verdict"], sort_keys=True)


@pytest.mark.parametrize("row", FORMER["releases"], ids=lambda row: f"{row['action']} {row['id']}")
def test_a_rows_figures_of_the_release_before_are_shown_to_the_letter(row: dict[str, Any]) -> None:
    shown = to_json(decode_row(row["action"], row["verdict"]))
    assert json.dumps(shown, sort_keys=True) == json.dumps(row["verdict"], sort_keys=True)


@pytest.mark.parametrize(
    ("action", "figures"),
    [
        ("release", Verdict.of(KEPT, matrix=MatrixFigures(cutoff=from_micros(0), recipe="r", horizon=2))),
        ("rollback", Rollback(None)),
        ("calibrate", Recalibration(from_micros(7))),
        ("close", LimitCheck(from_micros(0), 1, "log_loss", 0.9, 0.7, 50)),
        ("reopen", LimitCheck(from_micros(0), 0, "log_loss", 0.5, 0.7, 50)),
        ("override", BoundOverride(from_micros(1), from_micros(2))),
    ],
)
def test_what_is_stored_says_its_format_and_is_read_back_the_same(action: str, figures: RowFigures) -> None:
    stored = through_json(encode(figures))
    assert stored["format_version"] == FORMAT_VERSION
    assert decode_row(action, stored) == figures
    assert "format_version" not in to_json(figures)


def test_a_row_that_names_no_cutoff_has_none() -> None:
    verdict = decode_verdict({"passed": True, "missing_windows": 2})
    assert verdict.matrix == MatrixFigures(missing_windows=2)
    assert "cutoff" not in to_json(verdict)
    assert decode_verdict({"passed": True}).matrix is None


def test_the_first_broken_rule_gives_the_reason_and_the_failure() -> None:
    verdict = Verdict.of(KEPT, BROKEN, Decision("newest_window", False, reason="it is suspect"))
    assert (verdict.passed, verdict.reason) == (False, "no age is validated")
    assert verdict.failure == Failure(FailureCode.RULE_BROKEN, "no age is validated")
    assert Verdict.of(KEPT).failure is None


def test_a_cycle_that_a_newer_cutoff_overtook_has_that_as_its_failure() -> None:
    overtaken = Verdict.of(KEPT).failed(Decision("newest_cutoff", False, reason="a newer cutoff is released"))
    assert [decision.rule for decision in overtaken.decisions] == ["min_rows", "newest_cutoff"]
    assert overtaken.failure == Failure(FailureCode.OVERTAKEN, "a newer cutoff is released")


def test_figures_that_are_not_finite_are_null_and_those_of_numpy_are_numbers() -> None:
    verdict = Verdict.of(Decision("horizon", True, float("nan"), float("inf")), Decision("rows", True, np.float64(0.5)))
    first, second = through_json(to_json(verdict))["decisions"]
    assert (first["value"], first["threshold"], second["value"]) == (None, None, 0.5)


@pytest.mark.parametrize(
    ("difference", "upper", "is_better"), [(-0.1, -0.05, True), (-0.1, 0.05, False), (-0.003, -0.002, False)]
)
def test_a_rival_is_better_by_more_than_chance_and_by_a_hundredth(
    difference: float, upper: float, is_better: bool
) -> None:
    assert Comparison("gbdt", 9, 0.4, difference, upper).is_better is is_better
