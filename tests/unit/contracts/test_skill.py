"""Whether a model is good: its skill against naive and rivals, and what is advised if it is poor."""

import re
from typing import Any

import pytest

from contracts.quality.remedies import advise_model, split_advice
from contracts.quality.skill import ComparedError, Skill, compare, compare_errors, describe_skill, score
from contracts.quality.trust import judge_trust
from contracts.task import Task


def task(**changes: Any) -> Task:
    spec: dict[str, Any] = {
        "name": "flights",
        "features": [{"name": "distance", "kind": "number"}],
        "target": {"name": "outcome", "kind": "classification"},
        "window": "P1D",
    }
    return Task.model_validate(spec | changes)


def compared(method: str, error: float, ours: float, num_windows: int = 20) -> ComparedError:
    return ComparedError(method=method, num_windows=num_windows, error=error, ours=ours, skill=score(ours, error))


def judged(naive: ComparedError, *rivals: ComparedError, of: Task | None = None) -> Skill:
    return advise_model(of or task(), compare_errors("log_loss", naive, rivals))


@pytest.mark.parametrize(
    ("error", "reference", "skill"), [(0.2, 0.5, 60), (0.5, 0.5, 0), (0.6, 0.5, -20), (0, 0, 0), (0.1, 0, None)]
)
def test_a_skill_is_the_share_of_the_error_that_is_saved(error: float, reference: float, skill: float | None) -> None:
    assert score(error, reference) == (None if skill is None else pytest.approx(skill))


def test_a_model_that_beats_naive_and_every_rival_needs_no_advice() -> None:
    skill = judged(compared("naive", 0.6, 0.2), compared("baseline", 0.25, 0.2), compared("gbdt", 0.21, 0.2))
    assert [rival.method for rival in skill.rivals] == ["gbdt", "baseline"]
    assert (skill.is_poor, skill.advice) == (False, ())
    assert describe_skill(skill) == (
        "67 % better than naive on 20 windows; 5 % better than gbdt, the best rival, on 20 windows"
    )


def test_rivals_of_different_windows_are_ordered_by_their_share_of_our_error() -> None:
    hard, easy = compared("baseline", 0.5, 0.6, num_windows=3), compared("gbdt", 0.21, 0.2)
    assert [rival.method for rival in judged(compared("naive", 0.6, 0.2), easy, hard).rivals] == ["baseline", "gbdt"]


def test_a_better_rival_that_can_be_trained_is_advised_as_the_method() -> None:
    advice = judged(compared("naive", 0.6, 0.2), compared("base_time", 0.1, 0.2)).advice
    assert advice[0] == (
        "train by the better method, since the model is 100 % worse than base_time on the same 20 windows: "
        'set training.method = "base_time" in the task\'s file, then run morrow task apply FILE.toml && '
        "morrow cycle flights"
    )
    assert split_advice(advice[0])[1] == "morrow task apply FILE.toml && morrow cycle flights"


def test_a_better_rival_that_is_never_served_advises_another_recipe() -> None:
    worse = (compared("naive", 0.6, 0.2), compared("gbdt", 0.1, 0.2))
    assert "set training.tune = true" in judged(*worse).advice[0]
    tuned = task(training={"tune": True, "tune_trials": 600})
    assert "set training.tune_trials = 1000" in judged(*worse, of=tuned).advice[0]
    assert not any("tune = true" in one for one in judged(*worse, of=tuned).advice)


def test_a_hardly_better_rival_is_no_reason_for_advice() -> None:
    assert judged(compared("naive", 0.6, 0.2), compared("gbdt", 0.199, 0.2)).advice == ()


def test_few_windows_behind_a_poor_model_advise_more_of_the_past() -> None:
    few = judged(compared("naive", 0.6, 0.59, num_windows=3)).advice
    assert any(
        "morrow events import flights FILE" in one and "morrow backtest flights --origins 26" in one for one in few
    )
    assert not any("import" in one for one in judged(compared("naive", 0.6, 0.59)).advice)
    assert "on 3 windows only" in describe_skill(judged(compared("naive", 0.6, 0.59, num_windows=3)))


def test_few_windows_are_the_first_thing_to_settle() -> None:
    few = judged(compared("naive", 0.6, 0.59, num_windows=7), compared("gbdt", 0.3, 0.59, num_windows=4)).advice
    assert few[0].startswith("only 7 windows are scored: score more of the past, after morrow events import")
    assert split_advice(few[0])[1] == "morrow backtest flights --origins 26"


def test_a_past_that_is_scored_as_far_as_it_reaches_is_not_to_be_scored_again() -> None:
    few = judged(compared("naive", 0.6, 0.59, num_windows=7))
    said = advise_model(task(), few, num_known=8).advice[0]
    assert said.startswith("only 7 windows are scored, and the stored past holds no more: wait for the next windows")
    assert split_advice(said)[1] == "morrow events import flights FILE && morrow cycle flights --again"
    assert "morrow backtest" in advise_model(task(), few, num_known=20).advice[0]


def test_rivals_that_are_still_being_fitted_are_named() -> None:
    skill = compare_errors("log_loss", compared("naive", 0.6, 0.2), (), ["baseline", "gbdt"])
    assert describe_skill(skill) == "67 % better than naive on 20 windows; still being fitted: baseline, gbdt"


def test_every_advice_names_a_command_or_a_key_with_its_value() -> None:
    price = {"name": "price", "kind": "regression"}
    for of in (task(), task(target=price), task(training={"tune": True})):
        advice = judged(compared("naive", 0.5, 0.6, 2), compared("gbdt", 0.3, 0.6), of=of).advice
        assert advice
        assert all("morrow " in one or " = " in one for one in advice)


def test_likely_mistakes_come_first_and_only_if_the_model_is_poor() -> None:
    hint = 'feature hour is of kind number: set kind = "category"'
    poor = judged(compared("naive", 0.5, 0.6))
    assert advise_model(task(), poor, [hint]).advice == (hint, *poor.advice)
    assert advise_model(task(), judged(compared("naive", 0.6, 0.2)), [hint]).advice == ()


@pytest.mark.parametrize(
    ("skill", "words"),
    [(18.4, "18 % better than"), (-6.7, "7 % worse than"), (0.3, "as good as"), (None, "worse than")],
)
def test_a_skill_in_words(skill: float | None, words: str) -> None:
    assert compare(skill) == words


def test_what_the_trainer_has_searched_already_is_not_advised_again() -> None:
    """A search ends with a recipe that no longer asks for one, so the recipe as it was written counts."""
    chosen = task(training={"number_form": "plain"})
    asked = task(training={"tune": True}).training
    skill = compare_errors("log_loss", compared("naive", 0.6, 0.59), [compared("gbdt", 0.585, 0.59)])
    (said,) = advise_model(chosen, skill, asked=asked).advice
    assert said == (
        "the trainer has searched recipes and found none better; the best rival, gbdt, saves only 0.8 % of the model's "
        "error: more would come from other features or more rows"
    )


def test_after_a_quick_look_a_search_is_advised_as_what_it_adds() -> None:
    skill = compare_errors("log_loss", compared("naive", 0.6, 0.59), [])
    said = advise_model(task(), skill, asked=task(training={"tune": "quick"}).training).advice
    assert said[0].startswith('let the trainer choose a better recipe: training.tune = "quick" compares a few only')
    assert not any("number_form" in one for one in said)


def test_no_advice_names_a_value_that_is_in_force() -> None:
    poor = compare_errors("log_loss", compared("naive", 0.6, 0.59), [compared("base_time", 0.3, 0.59)])
    searched = {"tune": True, "tune_trials": 1000}
    for training in ({}, {"method": "base_time"}, searched, {"number_form": "piecewise"}, {"tune": "quick"}):
        of = task(training=training)
        written = of.training.model_dump() | {"tune": of.training.tune}
        for said in advise_model(of, poor, asked=None).advice:
            for key, value in re.findall(r'training\.(\w+) = "?(\w+)', said.partition("to search them all")[2] or said):
                assert str(written[key]).lower() != value, said


def test_the_best_rival_of_a_poor_model_says_whether_the_data_allow_more() -> None:
    near = compare_errors("log_loss", compared("naive", 0.6, 0.59), [compared("gbdt", 0.585, 0.59)])
    assert judge_trust(near).reason.endswith(
        "; the best rival, gbdt, saves only 0.8 % of the model's error, so the data may allow no more"
    )
    worse = compare_errors("log_loss", compared("naive", 0.6, 0.59), [compared("gbdt", 0.7, 0.59)])
    assert "no rival does better: the best, gbdt, has an error of 0.7, and the model 0.59" in judge_trust(worse).reason
    far = compare_errors("log_loss", compared("naive", 0.6, 0.59), [compared("gbdt", 0.3, 0.59)])
    pending = compare_errors("log_loss", compared("naive", 0.6, 0.59), [compared("gbdt", 0.585, 0.59)], ["baseline"])
    for other in (far, pending):
        assert "may allow no more" not in judge_trust(other).reason
