"""Choose the recipe with the lowest error on later windows, among those that a budget allows to try.

The search scores the task's own recipe first, then recipes that won elsewhere, then the best of these with rows read in
another form, then neighbours of the best so far. Only then does Optuna's TPE sample the space, from a fixed seed: most
of a space is far from any good recipe. After each group of origins, a trial that is worse than the median of earlier
trials is pruned.

Trials fit one member each, so among many of them the best is partly lucky. The best few are therefore scored once more
by a whole cohort, as they would be released. The choice is the recipe of least work within `SLACK` of the best, because
chance alone may separate them. The same number of trials makes the same choice on any machine: seconds only bound the
search.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contracts.errors import CycleError
from contracts.task import Training
from trainer.tuning.sampler import Sampler
from trainer.tuning.space import Space, merge
from trainer.tuning.trials import CheckTime, Errors, PreparedTrial, Scorer, mean_error

# Share of the best error. All recipes are tried with the same seeds on the same rows, so small gains are real: on
# House, ten neighbours of one recipe had errors of 9.77 to 9.82, and another loss 9.89.
SLACK = 0.003
# A recipe of this many times the work of the task's own is not tried, unless its work is at most this share of the
# budget: the smaller the rows, the less a default says about what a search can afford.
MOST_WORK, LITTLE_SHARE = 16.0, 0.1
# Recipes that are scored once more besides the task's own, and the share of the seconds that is reserved for them.
NUM_FINALISTS, FINAL_SHARE = 4, 1 / 3
# Members of a cohort in a choice among a few recipes, and at how many origins each is fitted: about four fits in all.
NUM_QUICK_SEEDS, NUM_QUICK_ORIGINS = 2, 3
# Most samples per trial: a sample that is too expensive, cannot be scored or was scored before makes no trial.
_SAMPLES_PER_TRIAL = 3

TrialOutcome = Literal["scored", "pruned", "failed", "out of time"]


@dataclass(frozen=True)
class Budget:
    """How many recipes a search may try, and for how many seconds: every trial stops at the end of them."""

    trials: int
    seconds: float


@dataclass(frozen=True)
class Trial:
    """One recipe and the result of trying it.

    `error` is the mean over (origin, age) of the origins that were scored; None if there is none. A trial with the
    outcome `scored` has scored all of them. `work` is the estimated seconds of one thread for its fits, `seconds` the
    measured time. Trials have one member each; those `with_cohort` are the finals.
    """

    training: Training
    outcome: TrialOutcome
    error: float | None
    work: float
    seconds: float
    with_cohort: bool = False


@dataclass(frozen=True)
class SearchResult:
    """The chosen recipe, the recipe that the task had before, and every trial in order."""

    training: Training
    before: Training
    trials: tuple[Trial, ...]

    @property
    def num_tried(self) -> int:
        """How many recipes were tried."""
        return sum(not trial.with_cohort for trial in self.trials)

    @property
    def error(self) -> float | None:
        """The error of the chosen recipe."""
        return self._error_of(self.training)

    @property
    def error_before(self) -> float | None:
        """The error of the recipe before, scored in the same way."""
        return self._error_of(self.before)

    def _error_of(self, training: Training) -> float | None:
        return next((error for error, one in _decisive(self.trials) if one.training == training), None)


class _OutOfTime(Exception):
    """The seconds are over."""


@dataclass(frozen=True)
class _Deadline:
    """A monotonic clock, and the second on it at which the search must end."""

    seconds_now: Callable[[], float]
    end: float

    @property
    def is_over(self) -> bool:
        return self.seconds_now() >= self.end

    def check(self) -> None:
        """Raise if the seconds are over."""
        if self.is_over:
            raise _OutOfTime


def choose(
    score: Scorer,
    base: Training,
    space: Space,
    budget: Budget,
    *,
    seed: int,
    seconds_now: Callable[[], float],
    final: Scorer | None = None,
    first: Sequence[Mapping[str, Any]] = (),
    report: Callable[[Trial], object] = lambda _trial: None,
) -> SearchResult:
    """Search the space for the best recipe; the result is `base` if no trial runs to its end.

    `first` are settings to try after `base` and before any sample; settings that the space does not name are ignored.
    `final` scores the best recipes once more, by cohorts; it is not used if `base` has one member. `seconds_now` is a
    monotonic clock. `report` receives every trial.
    """
    final = final if base.num_seeds > 1 else None
    end = seconds_now() + budget.seconds
    given = [base, *(merge(base, _within(space, settings)) for settings in first)]
    deadline = _Deadline(seconds_now, end if final is None else end - FINAL_SHARE * budget.seconds)
    trials = _search(score, given, space, budget, seed=seed, deadline=deadline, report=report)
    if final is not None:
        trials += _run_finals(final, _finalists(trials, base), _Deadline(seconds_now, end), report)
    return SearchResult(pick(trials, base), base, tuple(trials))


def choose_among(
    score: Scorer,
    base: Training,
    others: Sequence[Training],
    seconds: float,
    *,
    seconds_now: Callable[[], float],
    report: Callable[[Trial], object] = lambda _trial: None,
) -> SearchResult:
    """The best of a few recipes; `base` unless another is better on the same windows by more than chance explains.

    Recipes are scored by cohorts of `NUM_QUICK_SEEDS` members. What is not scored by the end of the seconds does not
    count. Arguments as of `choose`.
    """
    deadline = _Deadline(seconds_now, seconds_now() + seconds)
    trials, errors_of = list[Trial](), list[tuple[Training, list[Errors]]]()
    for training in (base, *others):
        began, errors = seconds_now(), list[Errors]()
        few = training.model_copy(update={"num_seeds": min(NUM_QUICK_SEEDS, training.num_seeds)})
        prepared = None if deadline.is_over else _prepare(score, few, deadline.check)
        if prepared is None:
            if training == base:  # there is nothing to compare others with
                break
            continue
        outcome, error = _run_trial(prepared, found=errors)
        trials.append(Trial(training, outcome, error, prepared.work, seconds_now() - began))
        report(trials[-1])
        if outcome == "scored":
            errors_of.append((training, errors))
        elif training == base:
            break
    return SearchResult(_pick_paired(errors_of, base), base, tuple(trials))


def _pick_paired(errors_of: Sequence[tuple[Training, Sequence[Errors]]], base: Training) -> Training:
    """The recipe with the lowest mean error among `base`, the first, and those that are better than it for certain.

    The mean of the paired differences must be below 0 by its standard error.
    """
    if not errors_of:
        return base
    first = _at_best_temperature(errors_of[0][1])
    best, best_error = base, float(first.mean())
    for training, errors in errors_of[1:]:
        found = _at_best_temperature(errors)
        apart = found - first
        chance = float(apart.std(ddof=1)) / len(apart) ** 0.5 if len(apart) > 1 else math.inf
        if apart.mean() + chance < 0 and found.mean() < best_error:
            best, best_error = training, float(found.mean())
    return best


def _at_best_temperature(errors: Sequence[Errors]) -> NDArray[np.float64]:
    """The error of each window at the one temperature that is best for all of them."""
    together = np.array(errors)
    chosen: NDArray[np.float64] = together[:, together.mean(axis=0).argmin()]
    return chosen


def _search(
    score: Scorer,
    given: Sequence[Training],
    space: Space,
    budget: Budget,
    *,
    seed: int,
    deadline: _Deadline,
    report: Callable[[Trial], object],
) -> list[Trial]:
    """The trials of the given recipes, whose first is the task's own, and of the recipes that follow from them."""
    sampler, base = Sampler(space, seed), given[0]
    for training in given:
        sampler.enqueue(training)
    trials: list[Trial] = []
    tried: dict[str, float | None] = {}
    for number in range(len(given) + _SAMPLES_PER_TRIAL * budget.trials):
        if len(trials) >= budget.trials or deadline.is_over:
            break
        if number == len(given):
            sampler.enqueue_other_forms(pick(trials, base))
        if number == len(given) + sampler.num_other_forms:
            sampler.enqueue_neighbours(pick(trials, base))
        sample, settings = sampler.ask()
        training = given[number] if number < len(given) else merge(base, settings)
        key = training.model_dump_json()
        if key in tried:
            sampler.tell(sample, tried[key])
            continue
        began = deadline.seconds_now()
        prepared = _prepare(score, training, deadline.check)
        if prepared is None or (trials and prepared.work > most_work(trials[0], budget)):
            sampler.tell(sample, None)
            continue
        outcome, error = _run_trial(prepared, partial(sampler.should_prune, sample))
        tried[key] = error if outcome == "scored" else None
        sampler.tell(sample, tried[key])
        trials.append(Trial(training, outcome, error, prepared.work, deadline.seconds_now() - began))
        report(trials[-1])
    return trials


def _run_finals(
    final: Scorer, finalists: Sequence[Training], deadline: _Deadline, report: Callable[[Trial], object]
) -> list[Trial]:
    """The finals in order, until the deadline."""
    finals: list[Trial] = []
    for training in finalists:
        if deadline.is_over:
            break
        began = deadline.seconds_now()
        prepared = _prepare(final, training, deadline.check)
        if prepared is None:  # possible for the recipe before: it is a finalist even if it cannot be scored
            continue
        outcome, error = _run_trial(prepared)
        seconds = deadline.seconds_now() - began
        finals.append(Trial(training, outcome, error, prepared.work, seconds, with_cohort=True))
        report(finals[-1])
    return finals


def most_work(first: Trial, budget: Budget) -> float:
    """Work beyond which a recipe is too expensive to try, by the budget's seconds and the work of the first trial.

    The first trial is the task's own recipe, unless that recipe cannot be fitted.
    """
    return max(MOST_WORK * first.work, LITTLE_SHARE * budget.seconds)


def pick(trials: Sequence[Trial], base: Training) -> Training:
    """The recipe of least work within `SLACK` of the best, the better of equals; `base` if none was scored."""
    scored = _decisive(trials)
    if not scored:
        return base
    limit = min(error for error, _ in scored) * (1 + SLACK)
    close = [(trial.work, error, trial.training) for error, trial in scored if error <= limit]
    return min(close, key=lambda each: each[:2])[2]


def _decisive(trials: Sequence[Trial]) -> list[tuple[float, Trial]]:
    """The trials that ran to their end, with their errors: only those of cohorts, if there are any."""
    scored = [(trial.error, trial) for trial in trials if trial.outcome == "scored" and trial.error is not None]
    return [each for each in scored if each[1].with_cohort] or scored


def _finalists(trials: Sequence[Trial], base: Training) -> list[Training]:
    """The recipes to score once more: the best, the one before, the next best; none if there is no choice to make."""
    best = [trial.training for _, trial in sorted(_decisive(trials), key=lambda each: each[0])[:NUM_FINALISTS]]
    return list(dict.fromkeys([*best[:1], base, *best[1:]])) if len(best) > 1 else []


def _within(space: Space, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that the space names."""
    return {name: value for name, value in settings.items() if name in space}


def _prepare(score: Scorer, training: Training, check_time: CheckTime) -> PreparedTrial | None:
    """The recipe ready to be scored, or None if an origin's rows allow no fit."""
    try:
        return score(training, check_time)
    except CycleError:
        return None


def _run_trial(
    prepared: PreparedTrial,
    should_prune: Callable[[int, float], bool] = lambda _step, _error: False,
    found: list[Errors] | None = None,
) -> tuple[TrialOutcome, float | None]:
    """Score group by group until the trial ends, is pruned, fails or is out of time; returns the mean error so far.

    The errors are added to `found` if it is given.
    """
    errors: list[Errors] = [] if found is None else found
    try:
        for step, group in enumerate(prepared.groups):
            errors += group
            if should_prune(step, mean_error(errors)):
                return "pruned", mean_error(errors)
    except _OutOfTime:
        return "out of time", mean_error(errors) if errors else None
    except CycleError:  # a loss that is not finite
        return "failed", None
    return "scored", mean_error(errors)
