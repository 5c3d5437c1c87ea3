"""The chooser: which recipe errs least on later windows, among those that a budget allows to try.

First the recipe that the task has is scored, then those that won elsewhere, then the best of these with rows read in
another form, then neighbours of the best so far, and last what Optuna's TPE draws from the space, from a fixed seed:
most of a space is far from any good recipe. A trial that is worse than the median of its forerunners after a bunch of
origins ends there. Trials are of one member each, and of many the best owes something to luck, so the best few are
scored once more as they would be released, by a cohort. Chosen is the recipe that takes the least work among those
within `SLACK` of the best, which chance alone may part. The same number of trials makes the same choice on any machine:
seconds bound the search and decide nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from contracts.errors import CycleError
from contracts.task import Training
from trainer.tuning.sampler import Draws
from trainer.tuning.space import Space, merge
from trainer.tuning.trials import CheckTime, Errors, PreparedTrial, Scorer, mean_error

# Share of the best error. All recipes are tried with the same seeds on the same rows, so that small gains are real: on
# House, ten neighbours of one recipe erred by 9.77 to 9.82, and another loss by 9.89.
SLACK = 0.003
# A recipe that takes so many times the work of the task's own is not tried, unless that is little of the budget: the
# smaller the rows, the less a default says of what a search can afford.
MOST_WORK, LITTLE_SHARE = 16.0, 0.1
# How many recipes are scored once more beside the task's own, and the share of the seconds that is kept for them.
NUM_FINALISTS, FINAL_SHARE = 4, 1 / 3
# Most draws for each trial: one that is too dear, cannot be scored or was scored before is none.
_DRAWS_PER_TRIAL = 3

TrialOutcome = Literal["scored", "pruned", "failed", "out of time"]


@dataclass(frozen=True)
class Budget:
    """How many recipes may be tried, and how long: no trial goes on beyond these seconds."""

    trials: int
    seconds: float


@dataclass(frozen=True)
class Trial:
    """One recipe and what came of it.

    `error` is the mean over (origin, age) of the origins that were scored, all of them where it is `scored`; None where
    there is none. `work` is about how many seconds its fits take one thread, `seconds` how many they took. Trials are
    of one member each; those `with_cohort` are the finals.
    """

    training: Training
    outcome: TrialOutcome
    error: float | None
    work: float
    seconds: float
    with_cohort: bool = False


@dataclass(frozen=True)
class SearchResult:
    """What a search found: the recipe that it chose, the one that was there before, and every trial in order."""

    training: Training
    before: Training
    trials: tuple[Trial, ...]

    @property
    def num_tried(self) -> int:
        """How many recipes were tried."""
        return sum(not trial.with_cohort for trial in self.trials)

    @property
    def error(self) -> float | None:
        """Of the recipe that was chosen."""
        return self._error_of(self.training)

    @property
    def error_before(self) -> float | None:
        """Of the recipe that was there, scored in the same way."""
        return self._error_of(self.before)

    def _error_of(self, training: Training) -> float | None:
        return next((error for error, one in _deciding(self.trials) if one.training == training), None)


class _OutOfTime(Exception):
    """The seconds are over."""


@dataclass(frozen=True)
class _Timer:
    """A clock that never goes back, and the second at which what it is given to ends."""

    seconds_now: Callable[[], float]
    end: float

    @property
    def is_over(self) -> bool:
        return self.seconds_now() >= self.end

    def watch(self) -> None:
        """Raise where the seconds are over."""
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
    """SearchResult the space for the best recipe; `base` where no trial is carried to its end.

    `first` are settings to try after `base` and before any is drawn, as far as the space names them. `final` is how the
    best are scored once more, by cohorts; where `base` has one member, none is. `seconds_now` is a clock that never
    goes back; `report` hears of every trial.
    """
    final = final if base.num_seeds > 1 else None
    end = seconds_now() + budget.seconds
    given = [base, *(merge(base, _within(space, settings)) for settings in first)]
    timer = _Timer(seconds_now, end if final is None else end - FINAL_SHARE * budget.seconds)
    trials = _search(score, given, space, budget, seed=seed, timer=timer, report=report)
    if final is not None:
        trials += _settle(final, _finalists(trials, base), _Timer(seconds_now, end), report)
    return SearchResult(pick(trials, base), base, tuple(trials))


def _search(
    score: Scorer,
    given: Sequence[Training],
    space: Space,
    budget: Budget,
    *,
    seed: int,
    timer: _Timer,
    report: Callable[[Trial], object],
) -> list[Trial]:
    """The trials of the recipes that were given, whose first is the task's own, and of what follows from them."""
    draws, base = Draws(space, seed), given[0]
    for training in given:
        draws.queue(training)
    trials: list[Trial] = []
    tried: dict[str, float | None] = {}
    for number in range(len(given) + _DRAWS_PER_TRIAL * budget.trials):
        if len(trials) >= budget.trials or timer.is_over:
            break
        if number == len(given):
            draws.queue_other_forms(pick(trials, base))
        if number == len(given) + draws.num_other_forms:
            draws.queue_neighbours(pick(trials, base))
        drawn, settings = draws.draw()
        training = given[number] if number < len(given) else merge(base, settings)
        key = training.model_dump_json()
        if key in tried:
            draws.tell(drawn, tried[key])
            continue
        began = timer.seconds_now()
        scoring = _prepare(score, training, timer.watch)
        if scoring is None or (trials and scoring.work > most_work(trials[0], budget)):
            draws.tell(drawn, None)
            continue
        outcome, error = _carry_out(scoring, partial(draws.falls_behind, drawn))
        tried[key] = error if outcome == "scored" else None
        draws.tell(drawn, tried[key])
        trials.append(Trial(training, outcome, error, scoring.work, timer.seconds_now() - began))
        report(trials[-1])
    return trials


def _settle(
    final: Scorer, finalists: Sequence[Training], timer: _Timer, report: Callable[[Trial], object]
) -> list[Trial]:
    """The finals, in order, as far as there is time."""
    finals: list[Trial] = []
    for training in finalists:
        if timer.is_over:
            break
        began = timer.seconds_now()
        scoring = _prepare(final, training, timer.watch)
        if scoring is None:  # the recipe that was there: it may be one that cannot be scored
            continue
        outcome, error = _carry_out(scoring)
        finals.append(Trial(training, outcome, error, scoring.work, timer.seconds_now() - began, with_cohort=True))
        report(finals[-1])
    return finals


def most_work(first: Trial, budget: Budget) -> float:
    """Work beyond which a recipe is too dear to be tried, by the budget's seconds and by that of the first trial, which
    is the task's own recipe unless no fit can be made by it.
    """
    return max(MOST_WORK * first.work, LITTLE_SHARE * budget.seconds)


def pick(trials: Sequence[Trial], base: Training) -> Training:
    """The recipe of least work within `SLACK` of the best, the better of equals; `base` where none was scored."""
    scored = _deciding(trials)
    if not scored:
        return base
    limit = min(error for error, _ in scored) * (1 + SLACK)
    close = [(trial.work, error, trial.training) for error, trial in scored if error <= limit]
    return min(close, key=lambda each: each[:2])[2]


def _deciding(trials: Sequence[Trial]) -> list[tuple[float, Trial]]:
    """Those that were carried to their end, with their errors: of a cohort where there are such."""
    scored = [(trial.error, trial) for trial in trials if trial.outcome == "scored" and trial.error is not None]
    return [each for each in scored if each[1].with_cohort] or scored


def _finalists(trials: Sequence[Trial], base: Training) -> list[Training]:
    """The recipes that are scored once more: the best, the one that was there, the next best; none without a choice."""
    best = [trial.training for _, trial in sorted(_deciding(trials), key=lambda each: each[0])[:NUM_FINALISTS]]
    return list(dict.fromkeys([*best[:1], base, *best[1:]])) if len(best) > 1 else []


def _within(space: Space, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings without those that mean nothing here."""
    return {name: value for name, value in settings.items() if name in space}


def _prepare(score: Scorer, training: Training, watch: CheckTime) -> PreparedTrial | None:
    """The recipe ready to be scored, or None where no fit can be made of an origin's rows."""
    try:
        return score(training, watch)
    except CycleError:
        return None


def _carry_out(
    scoring: PreparedTrial, gives_up: Callable[[int, float], bool] = lambda _step, _error: False
) -> tuple[TrialOutcome, float | None]:
    """Scorer bunch by bunch, for as long as time, loss and forerunners allow; the mean error so far."""
    errors: list[Errors] = []
    try:
        for step, found in enumerate(scoring.groups):
            errors += found
            if gives_up(step, mean_error(errors)):
                return "pruned", mean_error(errors)
    except _OutOfTime:
        return "out of time", mean_error(errors) if errors else None
    except CycleError:  # a loss that is not finite
        return "failed", None
    return "scored", mean_error(errors)
