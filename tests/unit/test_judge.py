"""The gates of a candidate and the JSON that a verdict becomes."""

import json
import math

from contracts.matrix import AgeVerdict, Verdict
from contracts.task import Task
from tests.unit.columns import rows, task
from trainer.judge import age_metrics, describe, reason_overtaken, reason_to_hold, reason_to_skip, validated_ages

NAN = math.nan
FRESH = AgeVerdict(0, 4, 0.2, 0.1, 0.3, 0.35, 0.6, 4, None, None, None)
GREW = AgeVerdict(1, 4, 0.4, 0.3, 0.5, 0.55, 0.6, 4, 0.25, 0.02, "the error may grow")
UNKNOWN = AgeVerdict(1, 1, NAN, NAN, NAN, NAN, NAN, 0, None, None, "too few windows at this age")
HORIZON = Verdict(1, (FRESH, GREW), 0, None)


def with_guard(min_rows: int) -> Task:
    return task(guard={"min_rows": min_rows})


def test_too_few_rows_are_skipped_with_their_number() -> None:
    assert reason_to_skip(with_guard(3), rows([0, 1], [0, 1], ("a", "b"))) == "too few rows (2)"
    assert reason_to_skip(with_guard(3), rows([], [], ("a", "b"))) == "too few rows (0)"
    assert reason_to_skip(with_guard(2), rows([0, 1], [0, 1], ("a", "b"))) is None


def test_one_class_is_skipped_by_name_even_where_the_read_knows_others() -> None:
    assert reason_to_skip(with_guard(2), rows([0, 1], [1, 1], ("a", "b"))) == "only one class (b)"


def test_a_candidate_without_a_horizon_is_held_for_the_verdicts_reason() -> None:
    assert reason_to_hold(HORIZON) is None
    assert (
        reason_to_hold(Verdict(0, (), 2, "2 more complete windows are needed")) == "2 more complete windows are needed"
    )


def test_an_older_cutoff_never_overtakes_a_newer_one() -> None:
    assert reason_overtaken(5, 4) == "a newer cutoff is released"
    assert reason_overtaken(4, 4) is None
    assert reason_overtaken(3, 4) is None
    assert reason_overtaken(None, 4) is None


def test_the_manifest_promises_only_ages_inside_the_horizon() -> None:
    assert [(age.age, age.mean, age.low, age.high) for age in validated_ages(HORIZON)] == [(0, 0.2, 0.1, 0.3)]


def test_the_verdict_is_json_without_nan() -> None:
    verdict = describe(task(), Verdict(1, (FRESH, UNKNOWN), 0, None), None)
    assert json.loads(json.dumps(verdict, allow_nan=False)) == verdict
    assert verdict["passed"] is True
    assert verdict["ages"][1]["mean"] is None
    assert verdict["ages"][1]["reason"] == "too few windows at this age"


def test_metrics_by_age_leave_out_what_is_not_known() -> None:
    figures = age_metrics((FRESH, UNKNOWN))
    assert figures == [("error", 0.2, 0), ("error_low", 0.1, 0), ("error_high", 0.3, 0), ("naive_error", 0.6, 0)]
    assert ("error_increase", 0.25, 1) in age_metrics((GREW,))
