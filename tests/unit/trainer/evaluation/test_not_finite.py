"""The judge's rules meet errors that are not finite: whichever they are, they let nothing pass that rests on them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.verdict import first_failure
from store.error_cells import NAIVE, Cell
from tests.unit.tiny_events import task
from trainer.evaluation.horizon import HorizonRule, judge_horizon
from trainer.evaluation.release_gates import check_horizon, validated_ages
from trainer.evaluation.suspect_windows import check_newest_window, set_aside

TASK = task(guard={"max_age": 3, "min_pairs": 3, "tolerance": 10.0})
WINDOW = TASK.clock.window
NUM_WINDOWS = 8
NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])
PLACES = st.tuples(st.sampled_from(["gi", NAIVE]), st.integers(0, 2), st.integers(0, NUM_WINDOWS - 1))


def matrix(broken: dict[tuple[str, int, int], float]) -> list[Cell]:
    """Every age on every window; `broken` gives the errors of some cells by method, age and number of the window."""
    return [
        Cell(
            (window - age) * WINDOW,
            window * WINDOW,
            method,
            100,
            broken.get((method, age, window), (0.5 if method == "gi" else 0.9) + 0.01 * ((window * 7) % 5)),
            0.1,
        )
        for window in range(NUM_WINDOWS)
        for age in range(3)
        for method in ("gi", NAIVE)
    ]


@given(st.dictionaries(PLACES, NOT_FINITE, min_size=1, max_size=6))
def test_no_age_is_validated_on_an_error_that_is_not_finite(broken: dict[tuple[str, int, int], float]) -> None:
    cells = matrix(broken)
    assert not set_aside(TASK, cells), "what is broken is no matter of drift or poison, and stays"
    verdict = judge_horizon(cells, HorizonRule(method="gi", error_name="log_loss", clock=TASK.clock, guard=TASK.guard))
    assert verdict.horizon <= min(age for _, age, _ in broken)
    assert all(
        math.isfinite(value) for age in validated_ages(verdict) for value in (age.mean, age.low, age.high, age.limit)
    )
    if any(age == 0 for _, age, _ in broken):
        assert first_failure(check_horizon(TASK, verdict)) is not None


def test_without_them_every_age_is() -> None:
    verdict = judge_horizon(
        matrix({}), HorizonRule(method="gi", error_name="log_loss", clock=TASK.clock, guard=TASK.guard)
    )
    assert verdict.horizon == 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_newest_window_whose_errors_are_not_finite_is_suspect(value: float) -> None:
    newest = NUM_WINDOWS - 1
    cells = matrix({("gi", age, newest): value for age in range(3)})
    for champion in (None, (newest - 1) * WINDOW):
        assert not check_newest_window(TASK, cells, champion).passed
