"""The chooser finds the recipe of least error, within its budget, the same each time, and from known rows alone."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from contracts.errors import CycleError
from contracts.task import Training
from tests.unit.tiny_events import task
from trainer.tuning.search import MOST_WORK, SLACK, Budget, Trial, choose, pick
from trainer.tuning.space import BOOSTING, NETWORK, PROVEN, merge, restrict_space, space_of
from trainer.tuning.trials import CheckTime, Errors, PreparedTrial, pick_evenly, spread_over_groups

BASE = Training(width=32, weight_decay=0.1, number_form="plain")
SPACE = {"width": (16, 32, 64, 128), "weight_decay": (1e-4, 1e-2, 1e-1, 1.0), "calendar": ((), ("day",), ("year",))}
LONG = Budget(trials=24, seconds=1e9)


class Planted:
    """Errors that are known in advance: the best recipe has width 64, weight decay 0.01 and the phase of the day."""

    def __init__(self, seconds_a_bunch: float = 1.0, num_bunches: int = 3) -> None:
        self.now = 0.0
        self.num_bunches_scored = 0
        self.seconds_a_bunch, self.num_bunches = seconds_a_bunch, num_bunches

    def __call__(self, training: Training, watch: CheckTime) -> PreparedTrial:
        return PreparedTrial(training.width / 32, self.groups(training, watch))

    def groups(self, training: Training, watch: CheckTime) -> Iterator[Sequence[Errors]]:
        for _ in range(self.num_bunches):
            self.now += self.seconds_a_bunch
            watch()
            self.num_bunches_scored += 1
            yield [np.array([self.error(training)])] * 2

    @staticmethod
    def error(training: Training) -> float:
        width = SPACE["width"].index(training.width)
        decay = SPACE["weight_decay"].index(training.weight_decay)
        return 1.0 + 0.2 * abs(width - 2) + 0.3 * abs(decay - 1) + 0.4 * (training.calendar != ("day",))

    def seconds(self) -> float:
        return self.now


def run(planted: Planted, budget: Budget = LONG, seed: int = 0) -> tuple[Training, tuple[Trial, ...]]:
    choice = choose(planted, BASE, SPACE, budget, seed=seed, seconds_now=planted.seconds)
    return choice.training, choice.trials


@pytest.mark.parametrize("seed", range(5))
def test_the_best_recipe_of_a_small_space_is_found(seed: int) -> None:
    chosen, trials = run(Planted(), seed=seed)
    assert (chosen.width, chosen.weight_decay, chosen.calendar) == (64, 0.01, ("day",))
    assert len(trials) <= LONG.trials


def test_the_same_number_of_trials_makes_the_same_choice() -> None:
    budget = Budget(trials=12, seconds=1e9)
    first, second = run(Planted(), budget), run(Planted(seconds_a_bunch=100.0), budget)
    assert first[0] == second[0]
    assert [trial.training for trial in first[1]] == [trial.training for trial in second[1]]
    assert [trial.training for trial in run(Planted(), budget, seed=1)[1]] != [trial.training for trial in first[1]]


def test_the_recipe_that_is_there_is_the_first_trial() -> None:
    _, trials = run(Planted(), Budget(trials=1, seconds=1e9))
    assert [trial.training for trial in trials] == [BASE]


def test_given_settings_are_tried_before_any_draw() -> None:
    planted = Planted()

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        return planted(training.model_copy(update={"width": 64}), watch)

    given: list[dict[str, object]] = [{"width": 128}, {"width": 48}]
    budget = Budget(trials=3, seconds=1e9)
    choice = choose(score, BASE, SPACE, budget, seed=0, seconds_now=planted.seconds, first=given)
    assert [trial.training.width for trial in choice.trials] == [32, 128, 48]


def test_given_settings_that_the_space_does_not_name_are_left_out() -> None:
    planted = Planted()
    given = [{"width": 128, "regression_loss": "absolute", "embedding": 16}]
    budget = Budget(trials=2, seconds=1e9)
    choice = choose(planted, BASE, SPACE, budget, seed=0, seconds_now=planted.seconds, first=given)
    assert choice.trials[1].training == BASE.model_copy(update={"width": 128})


def test_neighbours_of_the_best_given_recipe_are_tried_next() -> None:
    planted = Planted()
    ladder = {"width": tuple(range(1, 101)), "weight_decay": (1e-4, 1e-2, 1e-1, 1.0)}

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        return planted(training.model_copy(update={"width": 64 if training.width == 70 else 128}), watch)

    budget, given = Budget(trials=4, seconds=1e9), [{"width": 70}]
    choice = choose(score, BASE, ladder, budget, seed=0, seconds_now=planted.seconds, first=given)
    assert [trial.training.width for trial in choice.trials[:2]] == [32, 70]
    near = choice.trials[2:]
    assert len(near) == 2
    assert {trial.training.width for trial in near} <= {69, 70, 71}


def test_the_best_given_recipe_is_tried_with_its_rows_in_another_form_and_the_search_goes_on_in_the_better_one() -> (
    None
):
    planted = Planted()
    space = SPACE | {"number_form": ("plain", "quantile"), "label_form": ("plain", "log")}

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        """Best by quantiles; with plain numbers, best at width 16."""
        stands_for = 64 if training.number_form == "quantile" else 128 if training.width == 16 else 16
        return planted(training.model_copy(update={"width": stands_for}), watch)

    budget, given = Budget(trials=6, seconds=1e9), [{"width": 16}]
    choice = choose(score, BASE, space, budget, seed=0, seconds_now=planted.seconds, first=given)
    forms = [(trial.training.number_form, trial.training.label_form) for trial in choice.trials]
    assert forms[:4] == [("plain", "plain"), ("plain", "plain"), ("quantile", "plain"), ("plain", "log")]
    assert [trial.training.width for trial in choice.trials[:4]] == [32, 16, 16, 16]
    assert all(trial.training.width in (16, 32) for trial in choice.trials[4:])
    assert choice.training.number_form == "quantile"


def test_no_trial_goes_on_beyond_the_seconds() -> None:
    planted = Planted(seconds_a_bunch=10.0)
    _, trials = run(planted, Budget(trials=40, seconds=75.0))
    assert planted.now == 80.0
    assert [trial.outcome for trial in trials] == ["scored", "scored", "out of time"]
    assert trials[-1].error is not None


def test_without_the_time_for_one_trial_the_recipe_stays() -> None:
    chosen, trials = run(Planted(), Budget(trials=40, seconds=2.5))
    assert chosen == BASE
    assert [(trial.outcome, len(trials)) for trial in trials] == [("out of time", 1)]


def test_a_trial_worse_than_its_forerunners_ends_early() -> None:
    planted = Planted()
    _, trials = run(planted)
    pruned = [trial for trial in trials if trial.outcome == "pruned"]
    assert pruned
    assert planted.num_bunches_scored < 3 * len(trials)
    scored = [trial.error for trial in trials if trial.outcome == "scored" and trial.error is not None]
    assert all(trial.error is not None and trial.error > min(scored) for trial in pruned)


def test_no_recipe_is_scored_twice() -> None:
    _, trials = run(Planted())
    assert len({trial.training.model_dump_json() for trial in trials}) == len(trials)


def test_a_space_that_is_used_up_ends_the_search() -> None:
    planted = Planted(num_bunches=1)
    choice = choose(planted, BASE, {"width": (16, 32)}, LONG, seed=0, seconds_now=planted.seconds)
    assert len(choice.trials) == 2


def test_a_loss_that_is_not_finite_costs_one_trial() -> None:
    planted = Planted()

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        if training.width == 64:
            return PreparedTrial(1.0, fail())
        return planted(training, watch)

    def fail() -> Iterator[Sequence[Errors]]:
        raise CycleError("the loss of member 0 (seed 0) is nan in epoch 1 of pretrain")
        yield []

    choice = choose(score, BASE, SPACE, LONG, seed=0, seconds_now=planted.seconds)
    assert {trial.outcome for trial in choice.trials if trial.training.width == 64} == {"failed"}
    assert choice.training.width in (32, 128)


@pytest.mark.parametrize(("seconds", "is_tried"), [(10 * MOST_WORK, False), (10 * MOST_WORK + 11, True)])
def test_dear_recipes_are_tried_only_where_they_take_little_of_the_budget(seconds: float, is_tried: bool) -> None:
    planted = Planted(seconds_a_bunch=0.1)

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        return PreparedTrial(MOST_WORK + 1 if training.width == 64 else 1.0, planted.groups(training, watch))

    choice = choose(score, BASE, SPACE, Budget(24, seconds), seed=0, seconds_now=planted.seconds)
    assert (64 in {trial.training.width for trial in choice.trials}) == is_tried


def test_a_recipe_whose_history_is_too_short_is_no_trial() -> None:
    planted = Planted()

    def score(training: Training, watch: CheckTime) -> PreparedTrial:
        if training.width == 64:
            raise CycleError("Nothing can be fitted as of 2026-01-01T10:00:00Z: too few rows (12).")
        return planted(training, watch)

    choice = choose(score, BASE, SPACE, LONG, seed=0, seconds_now=planted.seconds)
    assert {trial.training.width for trial in choice.trials} == {16, 32, 128}


def trial(error: float, work: float, width: int) -> Trial:
    return Trial(BASE.model_copy(update={"width": width}), "scored", error, work, 0.0)


def test_chosen_is_the_least_work_among_those_as_good_as_the_best() -> None:
    close, far = 1.0 * (1 + 0.9 * SLACK), 1.0 * (1 + 1.1 * SLACK)
    trials = [trial(1.0, 5.0, 1), trial(close, 2.0, 2), trial(far, 1.0, 3), trial(close, 2.0, 4)]
    assert pick(trials, BASE).width == 2
    assert pick(trials[:1], BASE).width == 1
    assert pick([trial(close, 2.0, 1), trial(1.0, 2.0, 2)], BASE).width == 2
    assert pick([], BASE) == BASE


def test_a_pruned_trial_is_never_chosen() -> None:
    trials = [trial(1.0, 5.0, 1), Trial(BASE, "pruned", 0.5, 1.0, 0.0), Trial(BASE, "out of time", 0.5, 1.0, 0.0)]
    assert pick(trials, BASE).width == 1


def test_every_recipe_of_the_space_is_a_recipe() -> None:
    for settings in PROVEN:
        merge(Training(), settings)
        assert all(value in NETWORK[name] for name, value in settings.items())
    for layers, trelu, width, linear in itertools.product(
        *(NETWORK[name] for name in ("num_layers", "num_trelu", "time_width", "time_linear"))
    ):
        merged = merge(
            Training(), {"num_layers": layers, "num_trelu": trelu, "time_width": width, "time_linear": linear}
        )
        assert merged.num_layers == layers


def test_a_space_has_only_what_the_task_s_fits_read() -> None:
    kind: dict[str, object] = {"features": [{"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}]}
    assert space_of(task("regression", **kind)).keys() - space_of(task("classification")) == {
        "embedding",
        "regression_loss",
        "label_form",
    }
    assert "number_form" in space_of(task("classification"))
    assert "number_form" not in space_of(task(features=[{"name": "kind", "kind": "category"}]))
    assert restrict_space(BOOSTING, task("regression")) == BOOSTING
    assert BOOSTING.keys() - restrict_space(BOOSTING, None) == {"regression_loss", "label_form"}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 10])
def test_groups_hold_every_origin_once(count: int) -> None:
    groups = spread_over_groups(range(count))
    assert sorted(itertools.chain(*groups)) == list(range(count))
    assert all(len(bunch) <= 5 for bunch in groups)


def test_items_are_picked_evenly_with_the_last() -> None:
    assert pick_evenly(range(5), 9) == [0, 1, 2, 3, 4]
    assert pick_evenly(range(17), 9) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
