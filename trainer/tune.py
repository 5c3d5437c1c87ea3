"""The chooser: which recipe errs least on later windows, among those that a budget allows to try.

First the recipe that the task has is scored, then those that won elsewhere, then the best of these with rows read in
another form, then neighbours of the best so far, and last what Optuna's TPE draws from the space, from a fixed seed:
most of a space is far from any good recipe. A trial that is worse than the median of its forerunners after a bunch of
origins ends there. Chosen is the recipe that takes the least work among those within `SLACK` of the best, which chance
alone may part. The same number of trials makes the same choice on any machine: seconds bound the search and decide
nothing else.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from contracts.errors import CycleError
from contracts.task import Training
from trainer.space import FORMS, UNORDERED, Space, merge, value_of
from trainer.trials import Errors, Scoring, Watch, mean_error

if TYPE_CHECKING:
    import optuna

# Share of the best error. All recipes are tried with the same seeds on the same rows, so that small gains are real: on
# House, ten neighbours of one recipe erred by 9.77 to 9.82, and another loss by 9.89.
SLACK = 0.003
# A recipe that takes so many times the work of the task's own is not tried, unless that is little of the budget: the
# smaller the rows, the less a default says of what a search can afford.
MOST_WORK, LITTLE_SHARE = 16.0, 0.1
_NUM_DRAWN_BLINDLY = 10
# Neighbours of the best recipe that was given, and in how many settings each differs.
_NUM_NEIGHBOURS, _NUM_STEPS = 8, 4
_NUM_NEVER_PRUNED = 4
# Most draws for each trial: one that is too dear, cannot be scored or was scored before is none.
_DRAWS_PER_TRIAL = 3

Outcome = Literal["scored", "pruned", "failed", "out of time"]
Score = Callable[[Training, Watch], Scoring]


@dataclass(frozen=True)
class Budget:
    """How many recipes may be tried, and how long: no trial goes on beyond these seconds."""

    trials: int
    seconds: float


@dataclass(frozen=True)
class Trial:
    """One recipe and what came of it.

    `error` is the mean over (origin, age) of the origins that were scored, all of them where it is `scored`; None where
    there is none. `work` is about how many seconds its fits take one thread, `seconds` how many they took.
    """

    training: Training
    outcome: Outcome
    error: float | None
    work: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The recipe that was chosen, and every trial in order; the first is the recipe that was there before."""

    training: Training
    trials: tuple[Trial, ...]


class _OutOfTime(Exception):
    """The budget's seconds are over."""


def choose(
    score: Score,
    base: Training,
    space: Space,
    budget: Budget,
    *,
    seed: int,
    seconds_now: Callable[[], float],
    first: Sequence[Mapping[str, Any]] = (),
    report: Callable[[Trial], object] = lambda _trial: None,
) -> Choice:
    """Search the space for the best recipe; `base` where no trial is carried to its end.

    `first` are settings to try after `base` and before any is drawn, as far as the space names them. `seconds_now` is
    a clock that never goes back; `report` hears of every trial.
    """
    deadline = seconds_now() + budget.seconds
    study = _open_study(seed)
    given = [base, *(merge(base, _within(space, settings)) for settings in first)]
    for training in given:
        study.enqueue_trial(_places(training, space))
    trials: list[Trial] = []
    tried: dict[str, float | None] = {}

    def watch() -> None:
        if seconds_now() >= deadline:
            raise _OutOfTime

    for number in range(len(given) + _DRAWS_PER_TRIAL * budget.trials):
        if len(trials) >= budget.trials or seconds_now() >= deadline:
            break
        if number == len(given):
            for places in _in_other_forms(pick(trials, base), space):
                study.enqueue_trial(places)
        if number == len(given) + _num_other_forms(space):
            for places in _neighbours(pick(trials, base), space, seed):
                study.enqueue_trial(places)
        sampled = study.ask()
        drawn = {name: values[_suggest(sampled, name, len(values))] for name, values in space.items()}
        training = given[number] if number < len(given) else merge(base, drawn)
        key = training.model_dump_json()
        if key in tried:
            _tell(study, sampled, tried[key])
            continue
        began = seconds_now()
        scoring = _prepare(score, training, watch)
        if scoring is None or (trials and scoring.work > most_work(trials[0], budget)):
            _tell(study, sampled, None)
            continue
        outcome, error = _carry_out(scoring, sampled)
        tried[key] = error if outcome == "scored" else None
        _tell(study, sampled, tried[key])
        trials.append(Trial(training, outcome, error, scoring.work, seconds_now() - began))
        report(trials[-1])
    return Choice(pick(trials, base), tuple(trials))


def most_work(first: Trial, budget: Budget) -> float:
    """Work beyond which a recipe is too dear to be tried, by that of the task's own and by the budget's seconds."""
    return max(MOST_WORK * first.work, LITTLE_SHARE * budget.seconds)


def pick(trials: Sequence[Trial], base: Training) -> Training:
    """The recipe of least work within `SLACK` of the best, the better of equals; `base` where none was scored."""
    scored = [(trial, trial.error) for trial in trials if trial.outcome == "scored" and trial.error is not None]
    if not scored:
        return base
    limit = min(error for _, error in scored) * (1 + SLACK)
    close = [(trial.work, error, trial.training) for trial, error in scored if error <= limit]
    return min(close, key=lambda each: each[:2])[2]


def _within(space: Space, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings without those that mean nothing here."""
    return {name: value for name, value in settings.items() if name in space}


def _prepare(score: Score, training: Training, watch: Watch) -> Scoring | None:
    """The recipe ready to be scored, or None where it cannot be: its history is too short for an origin."""
    try:
        return score(training, watch)
    except CycleError:
        return None


def _carry_out(scoring: Scoring, sampled: "optuna.Trial") -> tuple[Outcome, float | None]:
    """Score bunch by bunch, for as long as time, loss and forerunners allow; the mean error so far."""
    errors: list[Errors] = []
    try:
        for step, found in enumerate(scoring.bunches):
            errors += found
            sampled.report(mean_error(errors), step)
            if sampled.should_prune():
                return "pruned", mean_error(errors)
    except _OutOfTime:
        return "out of time", mean_error(errors) if errors else None
    except CycleError:  # a loss that is not finite
        return "failed", None
    return "scored", mean_error(errors)


def _open_study(seed: int) -> "optuna.Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_NUM_DRAWN_BLINDLY),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=_NUM_NEVER_PRUNED),
    )


def _num_other_forms(space: Space) -> int:
    return sum(len(space[name]) - 1 for name in FORMS if name in space)


def _in_other_forms(training: Training, space: Space) -> Iterator[dict[str, int]]:
    """Places of this recipe with rows read otherwise, one form at a time."""
    home = _places(training, space)
    for name in (name for name in FORMS if name in space):
        yield from (home | {name: place} for place in range(len(space[name])) if place != home[name])


def _neighbours(training: Training, space: Space, seed: int) -> Iterator[dict[str, int]]:
    """Places of recipes that differ from this one by a step in a few settings."""
    draw = random.Random(seed)  # noqa: S311 a search needs no secrets
    home = _places(training, space)
    for _ in range(_NUM_NEIGHBOURS):
        places = dict(home)
        for name in draw.sample(sorted(space), min(_NUM_STEPS, len(space))):
            last = len(space[name]) - 1
            is_unordered = name in UNORDERED
            places[name] = draw.randint(0, last) if is_unordered else _step(places[name], last, draw.choice((-1, 1)))
        yield places


def _places(training: Training, space: Space) -> dict[str, int]:
    return {name: _nearest(values, value_of(training, name)) for name, values in space.items()}


def _step(place: int, last: int, step: int) -> int:
    """The next place, or the one on the other side where there is none."""
    return place + step if 0 <= place + step <= last else max(0, min(last, place - step))


def _tell(study: "optuna.Study", sampled: "optuna.Trial", error: float | None) -> None:
    """Let the sampler know what a draw was worth; one without an error is to be kept away from."""
    from optuna.trial import TrialState

    study.tell(sampled, error, state=TrialState.PRUNED if error is None else TrialState.COMPLETE)


def _suggest(sampled: "optuna.Trial", name: str, count: int) -> int:
    """The place of a value among so many."""
    if name in UNORDERED:
        place: int = sampled.suggest_categorical(name, range(count))
        return place
    return sampled.suggest_int(name, 0, count - 1)


def _nearest(values: Sequence[Any], value: Any) -> int:
    """The place of a value, or of the number nearest to it; the last where there is neither."""
    if value in values:
        return values.index(value)
    numbers = [k for k, each in enumerate(values) if isinstance(each, int | float)]
    if value is None or not numbers:
        return len(values) - 1
    return min(numbers, key=lambda k: abs(values[k] - value))
