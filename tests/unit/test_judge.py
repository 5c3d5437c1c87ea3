"""The rules that a candidate must pass, and the JSON that a verdict becomes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from contracts.cells import Cell
from contracts.matrix import AgeVerdict, Verdict
from contracts.task import Task
from tests.unit.columns import rows, task
from trainer.judge import (
    MIN_COMPARED_ROWS,
    Decision,
    age_metrics,
    check_horizon,
    check_newest_window,
    check_overtaken,
    check_rows,
    check_withheld,
    describe,
    describe_decisions,
    first_failure,
    unexplained_windows,
    validated_ages,
)

NAN = math.nan
FRESH = AgeVerdict(0, 4, 0.2, 0.1, 0.3, 0.35, 0.6, 4, None, None, None)
GREW = AgeVerdict(1, 4, 0.4, 0.3, 0.5, 0.55, 0.6, 4, 0.25, 0.02, "the error may grow")
UNKNOWN = AgeVerdict(1, 1, NAN, NAN, NAN, NAN, NAN, 0, None, None, "too few windows at this age")
HORIZON = Verdict(1, (FRESH, GREW), 0, None)
TASK = task(guard={"max_age": 3, "min_pairs": 3})
WINDOW = TASK.clock.window
NUM_WINDOWS = 12


def with_guard(min_rows: int) -> Task:
    return task(guard={"min_rows": min_rows})


def matrix(errors: dict[tuple[int, int], float] | None = None, num_windows: int = NUM_WINDOWS) -> list[Cell]:
    """Origins and windows 0, 1, …: about 0.5 everywhere at ages 0 to 2, but for `errors[origin, window]`."""
    cells = []
    for window in range(num_windows):
        for origin in range(max(0, window - 2), window + 1):
            loss = (errors or {}).get((origin, window), 0.5 + 0.01 * ((window * 7) % 5))
            cells.append(Cell(origin * WINDOW, window * WINDOW, "gi", 100, loss, 0.1))
    return cells


def poisoned(window: int, num_windows: int = NUM_WINDOWS) -> list[Cell]:
    """One window that every fit before it gets wrong, and that the fit which has seen it learns nothing from."""
    return matrix({(window - age, window): 3.0 for age in range(3)}, num_windows)


def test_too_few_rows_are_a_broken_rule_with_their_number() -> None:
    assert check_rows(with_guard(3), rows([0, 1], [0, 1], ("a", "b"))) == [
        Decision("min_rows", False, 2, 3, "too few rows (2)")
    ]
    assert first_failure(check_rows(with_guard(3), rows([], [], ("a", "b")))) is not None
    assert first_failure(check_rows(with_guard(2), rows([0, 1], [0, 1], ("a", "b")))) is None


def test_one_class_is_refused_by_name_even_where_the_read_knows_others() -> None:
    failure = first_failure(check_rows(with_guard(2), rows([0, 1], [1, 1], ("a", "b"))))
    assert failure == Decision("classes", False, 1, 2, "only one class (b)")


def test_a_candidate_without_a_horizon_is_held_for_the_verdicts_reason() -> None:
    assert first_failure(check_horizon(TASK, HORIZON)) is None
    missing = first_failure(check_horizon(TASK, Verdict(0, (), 2, "2 more complete windows are needed")))
    assert missing == Decision("min_pairs", False, 1, 3, "2 more complete windows are needed")
    none = first_failure(check_horizon(TASK, Verdict(0, (FRESH,), 0, "it does not beat naive")))
    assert none == Decision("horizon", False, 0, 1, "it does not beat naive")


@pytest.mark.parametrize(("newest", "passed"), [(5, False), (4, True), (3, True), (None, True)])
def test_an_older_cutoff_never_overtakes_a_newer_one(newest: int | None, passed: bool) -> None:
    assert check_overtaken(newest, 4).passed is passed


def test_an_ordinary_newest_window_is_no_matter() -> None:
    decision = check_newest_window(TASK, matrix(), (NUM_WINDOWS - 1) * WINDOW)
    assert decision.passed
    assert decision.value is not None
    assert decision.threshold is not None
    assert decision.value < decision.threshold


def test_a_poisoned_newest_window_is_suspect_whoever_the_champion_is() -> None:
    newest = NUM_WINDOWS - 1
    for champion in (newest * WINDOW, (newest - 1) * WINDOW, None, 1):
        decision = check_newest_window(TASK, poisoned(newest), champion)
        assert not decision.passed
        assert "suspect" in str(decision.reason)
        assert decision.value == 3.0


def test_after_a_poisoned_window_an_ordinary_one_frees_the_way_and_leaves_the_poison_out_of_the_comparison() -> None:
    cells = poisoned(NUM_WINDOWS - 2)
    champion = (NUM_WINDOWS - 2) * WINDOW
    assert check_newest_window(TASK, cells, champion).passed
    assert unexplained_windows(TASK, cells, champion) == {(NUM_WINDOWS - 2) * WINDOW}


def test_drift_is_confirmed_by_the_fit_that_has_seen_it() -> None:
    jump, newest = NUM_WINDOWS - 2, NUM_WINDOWS - 1
    new_regime = {(jump - age, jump): 2.0 for age in range(3)} | {(jump - age, newest): 2.0 for age in range(2)}
    champion = jump * WINDOW
    stubborn = check_newest_window(TASK, matrix(new_regime | {(newest, newest): 1.9}), champion)
    assert not stubborn.passed
    learned = check_newest_window(TASK, matrix(new_regime | {(newest, newest): 0.7}), champion)
    assert learned.passed
    assert "confirms" in str(learned.reason)


def test_a_window_of_which_few_labels_are_known_is_not_judged_yet() -> None:
    newest = NUM_WINDOWS - 1
    cells = [
        replace(cell, num_rows=40, is_complete=False) if cell.window == newest * WINDOW else cell
        for cell in poisoned(newest)
    ]
    assert check_newest_window(TASK, cells, newest * WINDOW).passed
    half = [replace(cell, num_rows=50) if not cell.is_complete else cell for cell in cells]
    assert not check_newest_window(TASK, half, newest * WINDOW).passed


def test_too_few_earlier_windows_judge_nothing() -> None:
    assert check_newest_window(TASK, poisoned(2, num_windows=3), 2 * WINDOW).passed
    assert check_newest_window(TASK, [], None).passed


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
    verdict = describe(TASK, 0, Verdict(1, (FRESH, UNKNOWN), 0, None), decisions, None)
    assert json.loads(json.dumps(verdict, allow_nan=False)) == verdict
    assert (verdict["passed"], verdict["reason"], verdict["recipe"]) == (False, "no age", TASK.recipe)
    assert verdict["ages"][1]["mean"] is None
    assert verdict["ages"][1]["reason"] == "too few windows at this age"
    assert verdict["decisions"] == describe_decisions(decisions)["decisions"]
    assert verdict["decisions"][1]["value"] is None


def test_metrics_by_age_leave_out_what_is_not_known() -> None:
    figures = age_metrics((FRESH, UNKNOWN))
    assert [key for key, _, _ in figures] == ["error", "error_low", "error_high", "error_limit", "naive_error"]
    assert ("error_increase", 0.25, 1) in age_metrics((GREW,))
