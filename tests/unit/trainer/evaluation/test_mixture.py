"""How much each expert weighs, and when the mixture answers: hand-made cells."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from contracts.task import Task
from store.error_cells import ALONE, MIXTURE, NAIVE, Cell
from tests.unit.tiny_events import HOUR, task
from trainer.evaluation.calibration import TEMPERATURES
from trainer.evaluation.mixture import LEARNING_RATE, LEAST_WEIGHT, Mixture, as_fit_of, as_if, mix
from trainer.methods.gbdt import GBDT

ORIGIN = 20 * HOUR


def number_task(experts: object = "auto") -> Task:
    return task("regression", training={"experts": experts}, guard={"max_age": 1, "min_pairs": 3})


def cells_of(window: int, *, alone: float, gbdt: float, mixture: float, is_mixed: bool = False) -> list[Cell]:
    """The cells of the fit of a window's start on that window, in absolute errors."""
    other = (ALONE, alone) if is_mixed else (MIXTURE, mixture)
    found = {"gi": mixture if is_mixed else alone, GBDT: gbdt, NAIVE: 9.0, other[0]: other[1]}
    return [Cell(window * HOUR, window * HOUR, method, 10, 0.0, error) for method, error in found.items()]


def better_mixture(windows: Sequence[int] = range(10, 20), is_mixed: bool = False) -> list[Cell]:
    """The mixture's error is a tenth below either expert's, give or take."""
    return [
        cell
        for k, window in enumerate(windows)
        for cell in cells_of(window, alone=1.0, gbdt=1.0, mixture=0.9 + 0.01 * (k % 2), is_mixed=is_mixed)
    ]


def test_a_task_of_one_expert_has_no_mixture() -> None:
    assert mix(number_task(["gi"]), better_mixture(), ORIGIN) is None


def test_without_earlier_errors_both_experts_weigh_the_same() -> None:
    assert mix(number_task(["gi", "gbdt"]), [], ORIGIN) == Mixture(0.5, is_answering=True)
    assert mix(number_task(), [], ORIGIN) == Mixture(0.5, is_answering=False)


@pytest.mark.parametrize(("alone", "gbdt"), [(1.0, 1.0), (1.0, 1.05), (1.1, 1.0), (1.0, 9.0), (0.0, 1.0), (0.0, 0.0)])
def test_weights_fall_with_the_share_by_which_an_expert_errs_more(alone: float, gbdt: float) -> None:
    cells = [cell for window in range(10, 20) for cell in cells_of(window, alone=alone, gbdt=gbdt, mixture=1.0)]
    found = mix(number_task(), cells, ORIGIN)
    assert found is not None
    least = min(alone, gbdt)
    if least == 0:
        assert found.weight == (0.5 if alone == gbdt else 1 - LEAST_WEIGHT)
        return
    own, other = np.exp(-LEARNING_RATE * (alone / least - 1)), np.exp(-LEARNING_RATE * (gbdt / least - 1))
    assert found.weight == pytest.approx(min(max(own / (own + other), LEAST_WEIGHT), 1 - LEAST_WEIGHT), abs=1e-3)


def test_the_weights_add_up_to_one() -> None:
    assert Mixture(0.7, is_answering=True).weights(number_task()) == {"gi": 0.7, GBDT: 0.3}
    assert Mixture(0.7, is_answering=False).weights(number_task()) == {}


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_mixture_that_has_proved_better_answers_whatever_answered_before(is_mixed: bool) -> None:
    found = mix(number_task(), better_mixture(is_mixed=is_mixed), ORIGIN)
    assert found == Mixture(0.5, is_answering=True)


def test_a_mixture_that_is_better_by_chance_alone_does_not_answer() -> None:
    errors = [0.5, 1.5, 0.6, 1.4, 0.7, 1.25]
    cells = [c for k, e in enumerate(errors) for c in cells_of(10 + k, alone=1.0, gbdt=1.0, mixture=e)]
    assert mix(number_task(), cells, ORIGIN) == Mixture(0.5, is_answering=False)


def test_fewer_windows_than_the_guard_asks_for_prove_nothing() -> None:
    assert mix(number_task(), better_mixture(range(18, 20)), ORIGIN) == Mixture(0.5, is_answering=False)
    assert mix(number_task(), better_mixture(range(17, 20)), ORIGIN) == Mixture(0.5, is_answering=True)


def test_a_mixture_that_is_asked_for_always_answers() -> None:
    cells = [cell for window in range(10, 20) for cell in cells_of(window, alone=1.0, gbdt=1.0, mixture=2.0)]
    assert mix(number_task(["gi", "gbdt"]), cells, ORIGIN) == Mixture(0.5, is_answering=True)
    assert mix(number_task(), cells, ORIGIN) == Mixture(0.5, is_answering=False)


@pytest.mark.parametrize("label_delay", ["PT0S", "PT2H"])
def test_nothing_that_the_origin_could_not_know_moves_a_weight(label_delay: str) -> None:
    of = number_task().model_copy(update={"label_delay": task(label_delay=label_delay).label_delay})
    known = better_mixture(range(8, 18))
    delay = 2 if label_delay == "PT2H" else 0
    later = [cell for window in range(20 - delay, 25) for cell in cells_of(window, alone=1.0, gbdt=7.0, mixture=3.0)]
    unfinished = [replace(cell, is_complete=False) for cell in cells_of(17, alone=1.0, gbdt=7.0, mixture=3.0)]
    of_itself = [replace(cell, origin=ORIGIN) for cell in later]
    before = [cell for cell in known if cell.window != 17 * HOUR]
    assert mix(of, before + later + of_itself + unfinished, ORIGIN) == mix(of, before, ORIGIN)
    assert mix(of, before + later, ORIGIN + 10 * HOUR) != mix(of, before, ORIGIN)


def test_classes_are_compared_at_the_temperature_that_suits_each() -> None:
    """At temperature 1 the mixture is better, but at its own temperature the network alone is."""
    of = task(training={"experts": "auto"}, guard={"max_age": 1, "min_pairs": 3})
    one = TEMPERATURES.index(1.0)

    def losses(at_one: float, best: float) -> tuple[float, ...]:
        found = np.full(len(TEMPERATURES), 2.0)
        found[one], found[one + 5] = at_one, best
        return tuple(found.tolist())

    def cell(window: int, method: str, at_one: float, best: float) -> Cell:
        return Cell(window * HOUR, window * HOUR, method, 10, at_one, 0.1, tempered=losses(at_one, best))

    cells = [
        one_cell
        for window in range(10, 20)
        for one_cell in (cell(window, "gi", 0.9, 0.5), cell(window, GBDT, 0.9, 0.5), cell(window, MIXTURE, 0.7, 0.6))
    ]
    assert mix(of, cells, ORIGIN) == Mixture(0.5, is_answering=False)


def test_the_matrix_can_be_read_as_if_every_fit_had_answered_alike() -> None:
    of = number_task()
    cells = cells_of(10, alone=1.0, gbdt=3.0, mixture=2.0) + cells_of(
        11, alone=1.0, gbdt=3.0, mixture=2.0, is_mixed=True
    )
    for is_mixed, error in ((False, 1.0), (True, 2.0)):
        ours = [cell for cell in as_if(of, cells, is_mixed=is_mixed) if cell.method == "gi"]
        assert [(cell.window, cell.metric) for cell in ours] == [(10 * HOUR, error), (11 * HOUR, error)]
    for window, error in ((10, 1.0), (11, 2.0)):
        ours = [cell for cell in as_fit_of(of, cells, window * HOUR) if cell.method == "gi"]
        assert [cell.metric for cell in ours] == [error, error]
    without = [cell for cell in cells if cell.method in ("gi", NAIVE)]
    assert as_fit_of(of, without, 10 * HOUR) == without
