"""Cohorts score the best recipes of a search once more and decide, if there is time for them."""

import pytest

from contracts.errors import CycleError
from contracts.task import Training
from tests.unit.trainer.tuning.test_search import BASE, LONG, SPACE, Planted
from trainer.tuning.search import NUM_FINALISTS, Budget, choose
from trainer.tuning.trials import CheckTime, PreparedTrial, Scorer


def final(planted: Planted) -> Scorer:
    """Cohorts are best at width 32, members at width 64."""

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        stands_for = {32: 64, 64: 32}.get(training.width, training.width)
        return planted(training.model_copy(update={"width": stands_for}), watch)

    return score


def test_the_best_are_scored_once_more_by_a_cohort_which_decides() -> None:
    planted = Planted()
    found = choose(planted, BASE, SPACE, LONG, seed=0, seconds_now=planted.seconds, final=final(planted))
    best, before, *others = (trial.training for trial in found.trials if trial.with_cohort)
    alone = [trial for trial in found.trials if not trial.with_cohort]
    assert found.num_tried == len(alone)
    assert (best.width, best.weight_decay, best.calendar) == (64, 0.01, ("day",))
    assert before == BASE
    assert len(others) == NUM_FINALISTS - 1
    assert (found.training.width, found.training.weight_decay, found.training.calendar) == (32, 0.01, ("day",))
    assert found.error == 1.0
    assert found.error_before == 1.7  # 0.3 for its decay, 0.4 for its calendar


@pytest.mark.parametrize(
    ("seconds", "outcomes"),
    [
        (12.0, []),  # one recipe alone was scored
        (48.0, ["scored", "scored", "out of time"]),
    ],
)
def test_a_third_of_the_seconds_is_kept_for_cohorts(seconds: float, outcomes: list[str]) -> None:
    planted = Planted(seconds_a_bunch=2.0)
    budget = Budget(trials=40, seconds=seconds)
    found = choose(planted, BASE, SPACE, budget, seed=0, seconds_now=planted.seconds, final=final(planted))
    assert [trial.outcome for trial in found.trials if trial.with_cohort] == outcomes
    assert planted.now <= seconds + 2


def test_without_time_for_any_cohort_the_members_decide() -> None:
    planted, slow = Planted(seconds_a_bunch=0.1), Planted()

    def never(training: Training, watch: CheckTime) -> PreparedTrial:
        planted.now += 1e6
        return slow(training, watch)

    found = choose(planted, BASE, SPACE, Budget(24, 1e6), seed=0, seconds_now=planted.seconds, final=never)
    assert {trial.outcome for trial in found.trials if trial.with_cohort} == {"out of time"}
    assert (found.training.width, found.training.weight_decay, found.training.calendar) == (64, 0.01, ("day",))


def test_a_recipe_that_cannot_be_scored_is_not_scored_by_a_cohort_either() -> None:
    planted = Planted()

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        if training == BASE:
            raise CycleError("No delay is positive, so there are no logarithms to learn: its form is plain.")
        return planted(training, watch)

    found = choose(score, BASE, SPACE, LONG, seed=0, seconds_now=planted.seconds, final=score)
    assert len([trial for trial in found.trials if trial.with_cohort]) == NUM_FINALISTS
    assert BASE not in [trial.training for trial in found.trials]
    assert (found.error, found.error_before) == (1.0, None)
