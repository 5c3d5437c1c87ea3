"""The rules that a candidate must pass, and the JSON that a verdict becomes."""

import json
import math

import numpy as np
import pytest

from contracts.task import Task
from contracts.verdict import Decision, Verdict, decode_verdict, encode, first_failure
from tests.unit.tiny_events import rows, task
from trainer.evaluation.horizon import AgeVerdict, HorizonVerdict
from trainer.evaluation.release_gates import (
    MIN_COMPARED_ROWS,
    age_metrics,
    check_horizon,
    check_overtaken,
    check_rows,
    check_withheld,
    describe_matrix,
    validated_ages,
)

NAN = math.nan
FRESH = AgeVerdict(0, 4, 0.2, 0.1, 0.3, 0.35, 0.6, 4, None, None, None)
GREW = AgeVerdict(1, 4, 0.4, 0.3, 0.5, 0.55, 0.6, 4, 0.25, 0.02, "the error may grow")
UNKNOWN = AgeVerdict(1, 1, NAN, NAN, NAN, NAN, NAN, 0, None, None, "too few windows at this age")
HORIZON = HorizonVerdict(1, (FRESH, GREW), 0, None)
TASK = task(guard={"max_age": 3, "min_pairs": 3})


def with_guard(min_rows: int) -> Task:
    return task(guard={"min_rows": min_rows})


def test_too_few_rows_are_a_broken_rule_that_says_how_many_are_needed() -> None:
    assert check_rows(with_guard(3), rows([0, 1], [0, 1], ("a", "b"))) == [
        Decision("min_rows", False, 2, 3, "too few rows (2 of 3)")
    ]
    assert first_failure(check_rows(with_guard(3), rows([], [], ("a", "b")))) is not None
    assert first_failure(check_rows(with_guard(2), rows([0, 1], [0, 1], ("a", "b")))) is None


def test_one_class_is_refused_by_name_even_where_the_read_knows_others() -> None:
    failure = first_failure(check_rows(with_guard(2), rows([0, 1], [1, 1], ("a", "b"))))
    assert failure == Decision("classes", False, 1, 2, "only one class (b)")


def test_a_candidate_without_a_horizon_is_held_for_the_verdicts_reason() -> None:
    assert first_failure(check_horizon(TASK, HORIZON)) is None
    missing = first_failure(check_horizon(TASK, HorizonVerdict(0, (), 2, "2 more complete windows are needed")))
    assert missing == Decision("min_pairs", False, 1, 3, "2 more complete windows are needed")
    none = first_failure(check_horizon(TASK, HorizonVerdict(0, (FRESH,), 0, "it does not beat naive")))
    assert none == Decision("horizon", False, 0, 1, "it does not beat naive")


@pytest.mark.parametrize(("newest", "passed"), [(5, False), (4, True), (3, True), (None, True)])
def test_an_older_cutoff_never_overtakes_a_newer_one(newest: int | None, passed: bool) -> None:
    assert check_overtaken(newest, 4).passed is passed


def test_a_candidate_that_is_clearly_worse_on_withheld_rows_is_held() -> None:
    champion = np.random.default_rng(0).uniform(0, 1, 200)
    worse = check_withheld(champion + 0.1 + 0.01 * np.sin(np.arange(200)), champion)
    assert not worse.passed
    assert worse.value is not None
    assert worse.value > 0
    assert check_withheld(champion - 0.1, champion).passed
    assert check_withheld(np.random.default_rng(1).uniform(0, 1, 200), champion).passed


def test_few_withheld_rows_decide_nothing() -> None:
    champion = np.zeros(MIN_COMPARED_ROWS - 1)
    assert check_withheld(champion + 1, champion) == Decision(
        "withheld_rows", True, reason=f"only {MIN_COMPARED_ROWS - 1} withheld rows to compare on"
    )


def test_the_manifest_promises_only_ages_inside_the_horizon() -> None:
    assert [(age.age, age.mean, age.low, age.high, age.limit) for age in validated_ages(HORIZON)] == [
        (0, 0.2, 0.1, 0.3, 0.35)
    ]


def test_the_verdict_is_json_without_nan_and_names_every_rule() -> None:
    decisions = [Decision("min_rows", True, 5, 2), Decision("horizon", False, NAN, 1, "no age")]
    matrix = describe_matrix(TASK, 0, HorizonVerdict(1, (FRESH, UNKNOWN), 0, None), [])
    found = Verdict.of(*decisions, matrix=matrix)
    verdict = json.loads(json.dumps(encode(found), allow_nan=False))
    assert decode_verdict(verdict) == found
    assert (verdict["passed"], verdict["reason"], verdict["recipe"]) == (False, "no age", TASK.recipe)
    assert verdict["ages"][1]["mean"] is None
    assert verdict["ages"][1]["reason"] == "too few windows at this age"
    assert [decision["rule"] for decision in verdict["decisions"]] == ["min_rows", "horizon"]
    assert verdict["decisions"][1]["value"] is None


def test_metrics_by_age_leave_out_what_is_not_known() -> None:
    figures = age_metrics((FRESH, UNKNOWN))
    assert [key for key, _, _ in figures] == ["error", "error_low", "error_high", "error_limit", "naive_error"]
    assert ("error_increase", 0.25, 1) in age_metrics((GREW,))
