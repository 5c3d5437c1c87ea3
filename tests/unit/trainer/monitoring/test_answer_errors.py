"""Logged answers against their labels: what counts, and under which age."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts.clock import Clock, from_micros, parse_moment
from store.predictions.answer_scores import INSIDE_FIT
from store.predictions.labelled import LabelledAnswer
from trainer.evaluation.calibration import LEAST_PROBABILITY
from trainer.monitoring.answer_errors import score_answers

CUTOFF = parse_moment("2026-01-29T00:00:00Z")
HOUR = 3_600_000_000
CLOCK = Clock(window=HOUR, offset=0, span=26 * HOUR)


def answer(at: int, label: str | None, delay: timedelta | None = None, **changes: Any) -> LabelledAnswer:
    moment = from_micros(at)
    given = {
        "prediction": "late",
        "probabilities": {"late": 0.75, "on_time": 0.25},
        "expected_error": 0.5,
        "error_name": "log_loss",
        "trained_until": "2026-01-29T00:00:00Z",
        "valid_until": "2026-01-29T03:00:00Z",
    }
    label_at = None if label is None else moment + (delay or timedelta())
    return LabelledAnswer("3", moment, json.dumps(given | changes), label, label_at)


def number(at: int, label: str, **changes: Any) -> LabelledAnswer:
    given = {"prediction": 2.0, "mean": 2.0, "scale": 1.0, "probabilities": None, "coverage": 0.9}
    return answer(at, label, **(given | {"interval": [0.5, 3.5], "error_name": "mean_absolute_error"} | changes))


@pytest.mark.parametrize(
    ("at", "expected_error", "age"),
    [
        (CUTOFF - HOUR, None, INSIDE_FIT),
        (CUTOFF - 1, 0.4, 0),  # after the newest row of the fit
        (CUTOFF, 0.4, 0),
        (CUTOFF + HOUR - 1, 0.4, 0),
        (CUTOFF + HOUR, 0.4, 1),
        (CUTOFF + 3 * HOUR, 0.4, 2),  # the end of the horizon has its last age
    ],
)
def test_an_answer_has_the_age_by_which_it_was_given(at: int, expected_error: float | None, age: int) -> None:
    found = score_answers([answer(at, "late", expected_error=expected_error)], lambda _: CLOCK)
    assert [*found] == [("3", age)]
    assert found["3", age].num_expected == (expected_error is not None)


def test_a_version_has_the_windows_that_it_was_released_with() -> None:
    at = CUTOFF + 3 * HOUR - 1
    found = score_answers([answer(at, None)], lambda version: {"3": Clock(3 * HOUR, 0, HOUR)}[version])
    assert [*found] == [("3", 0)]


def test_a_label_that_the_version_does_not_know_costs_what_a_probability_of_0_costs() -> None:
    found = score_answers([answer(CUTOFF, "cancelled"), answer(CUTOFF, None)], lambda _: CLOCK)["3", 0]
    assert found.error == pytest.approx(-math.log(LEAST_PROBABILITY))
    assert (found.num_answers, found.num_labelled, found.num_wrong) == (2, 1, 1)


def test_bounds_of_an_interval_cover_and_an_answer_without_one_promises_nothing() -> None:
    rows = [number(CUTOFF, "0.5"), number(CUTOFF, "3.5"), number(CUTOFF, "3.6"), number(CUTOFF, "1", interval=None)]
    found = score_answers(rows, lambda _: CLOCK)["3", 0]
    assert (found.num_labelled, found.num_given, found.num_covered) == (4, 3, 2)
    assert found.promised == pytest.approx(2.7)
    assert found.error == pytest.approx(1.5 + 1.5 + 1.6 + 1)


def test_a_label_of_another_target_is_no_label() -> None:
    """The task was a classification when the label came."""
    found = score_answers([number(CUTOFF, "late"), number(CUTOFF, "1e999")], lambda _: CLOCK)["3", 0]
    assert (found.num_answers, found.num_labelled) == (2, 0)


def test_a_row_that_is_no_answer_is_left_out() -> None:
    odd = [
        LabelledAnswer("3", datetime(2026, 1, 29, tzinfo=UTC), content, "late", None)
        for content in ("{}", "null", '{"prediction": 1}')
    ]
    found = score_answers([*odd, answer(CUTOFF, "late", trained_until="soon"), answer(CUTOFF, "late")], lambda _: CLOCK)
    assert {key: one.num_answers for key, one in found.items()} == {("3", 0): 1}


def test_a_label_that_was_known_before_its_moment_has_no_delay() -> None:
    rows = [answer(CUTOFF, "late", timedelta(hours=hours)) for hours in (-2, 3)]
    assert score_answers(rows, lambda _: CLOCK)["3", 0].delays == [0.0, 10_800.0]
