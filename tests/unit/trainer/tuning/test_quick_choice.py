"""A quick choice keeps the task's own recipe unless another is better on the same windows by more than chance."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from contracts.errors import CycleError
from contracts.task import Training
from tests.unit.tiny_events import task
from trainer.tuning.search import NUM_QUICK_SEEDS, SearchResult, choose_among
from trainer.tuning.space import complements
from trainer.tuning.trials import CheckTime, Errors, PreparedTrial

OWN, OTHER, THIRD = Training(), Training(views=("plain", "last_day")), Training(number_form="plain")


def choose(errors: Mapping[Training, Sequence[float] | None], seconds: float = 10) -> SearchResult:
    """The choice if these are the errors of each recipe, on a window a second; no recipe can be fitted without any."""
    now = 0.0

    def score(training: Training, check_time: CheckTime) -> PreparedTrial:
        assert training.num_seeds == NUM_QUICK_SEEDS
        found = errors[training.model_copy(update={"num_seeds": OWN.num_seeds})]
        if found is None:
            raise CycleError("none")
        return PreparedTrial(1.0, groups(found, check_time))

    def groups(found: Sequence[float], check_time: CheckTime) -> Iterator[list[Errors]]:
        nonlocal now
        for error in found:
            now += 1
            check_time()
            yield [np.array([error])]

    own, *others = errors
    return choose_among(score, own, others, seconds, seconds_now=lambda: now)


def test_a_recipe_that_is_better_on_every_window_wins() -> None:
    found = choose({OWN: [1.0, 2.0, 3.0], OTHER: [0.9, 1.9, 2.8], THIRD: [0.95, 1.9, 2.9]})
    assert found.training == OTHER
    assert found.error == pytest.approx(5.6 / 3)
    assert found.error_before == pytest.approx(2)
    assert found.num_tried == 3


def test_a_recipe_that_is_better_by_chance_alone_does_not_win() -> None:
    assert choose({OWN: [1.0, 2.0, 3.0], OTHER: [1.5, 2.5, 1.9]}).training == OWN
    assert choose({OWN: [1.0], OTHER: [0.5]}).training == OWN


def test_what_cannot_be_scored_is_not_chosen() -> None:
    assert choose({OWN: [1.0, 2.0], OTHER: None, THIRD: [0.9, 1.9]}).training == THIRD
    assert choose({OWN: None, OTHER: [0.9, 1.9]}).training == OWN
    assert choose({OWN: [1.0, 2.0], OTHER: [0.5, 0.6], THIRD: [0.1, 0.1]}, seconds=4.5).training == OTHER
    assert choose({OWN: [1.0, 2.0], OTHER: [0.5, 0.6]}, seconds=1.5).training == OWN


def test_only_a_task_with_numbers_has_complements_and_none_is_its_own_recipe() -> None:
    assert complements(task(features=[{"name": "kind", "kind": "category"}])) == []
    numeric = task(features=[{"name": "x", "kind": "number"}])
    assert len(complements(numeric)) == 2
    assert len(complements(numeric.with_training(complements(numeric)[0]))) == 1
