"""The picture of a horizon without a version that answers: the ages of the newest candidate, and those beyond."""

from typing import Any

from contracts.clock import from_micros
from contracts.task import Task
from contracts.verdict import AgeFigures, MatrixFigures
from service.dashboard.horizon_ages import list_ages
from store.error_cells import Mark

DAY = 86_400_000_000
TASK = Task.model_validate(
    {
        "name": "flights",
        "features": [{"name": "distance", "kind": "number"}],
        "target": {"name": "outcome", "kind": "classification"},
        "window": "P1D",
    }
)


def figures(*reasons: str | None) -> MatrixFigures:
    ages = tuple(
        AgeFigures(age, num_windows=5, mean=0.4 + age / 10, low=0.3, high=0.5, limit=0.6, naive=0.7, reason=reason)
        for age, reason in enumerate(reasons)
    )
    return MatrixFigures(cutoff=from_micros(10 * DAY), ages=ages, horizon=len(reasons) - 1)


def mark(origin: int, age: int, loss: float, method: str = "gi", *, is_complete: bool = True) -> Mark:
    return Mark(origin * DAY, (origin + age) * DAY, method, 50, loss, loss / 2, 50, is_complete, 0)


def test_each_judged_age_has_its_figures_and_the_refused_one_its_reason() -> None:
    first, refused = list_ages(TASK, None, figures(None, "it may grow"), [], [])
    assert (first.age, first.expected, first.naive, first.limit, first.is_valid) == (0, 0.4, 0.7, 0.6, True)
    assert (refused.age, refused.reason, refused.is_valid) == (1, "it may grow", False)


def test_later_ages_have_the_mean_of_their_complete_cells_and_naives_on_the_same_windows() -> None:
    marks = [
        mark(1, 2, 0.6),
        mark(2, 2, 0.8),
        mark(3, 2, 9.0, is_complete=False),
        mark(1, 2, 0.9, "naive"),
        mark(1, 2, 0.5, "gbdt"),
        mark(1, 1, 0.5),
    ]
    *_, later = list_ages(TASK, None, figures(None, "it may grow"), marks, [])
    assert (later.age, later.expected, later.naive, later.num_windows) == (2, 0.7, 0.9, 2)
    assert (later.is_valid, later.limit, later.reason) == (False, None, None)


def test_nothing_is_drawn_beyond_a_horizon_that_no_age_ended() -> None:
    drawn = list_ages(TASK, None, figures(None, None), [mark(1, 2, 0.6)], [])
    assert [age.age for age in drawn] == [0, 1]


def test_without_figures_there_is_no_picture() -> None:
    none: list[Any] = []
    assert list_ages(TASK, None, None, [mark(1, 2, 0.6)], none) == []
