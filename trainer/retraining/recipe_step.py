"""A cycle's part in `training.tune`: choose a recipe once, inside the rows that it may read, and write it down.

The choice is stored under the cycle's lease, so of two trainers one chooses, and a trainer that is killed meanwhile
leaves nothing: the next attempt begins again. From then on whoever reads the task finds the chosen recipe in it, and a
cycle is one fit as before.
"""

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

import msgspec
import structlog
import torch
from sqlalchemy import Connection

from contracts.task import Task, Training
from store.catalog import Schema
from store.choices import Choice, record_choice
from store.cycles import renew_lease
from trainer.data.snapshot import Reading
from trainer.evaluation.fit_store import recipe_folder
from trainer.retraining.ledger import Attempt, begin, in_store
from trainer.tuning import search as tune
from trainer.tuning.origins import known_origins, network_scorer
from trainer.tuning.search import Budget, Trial
from trainer.tuning.space import PROVEN, space_of

log = structlog.get_logger(__name__)

TRIALS_FILE = "trials.json"
# Longest share of a cycle's time limit that is spent on choosing.
LONGEST_SHARE = 0.5
_SEED = 0
_UNASKED = {name: Training.model_fields[name].default for name in ("tune", "tune_seconds", "tune_trials")}


def choose_recipe(attempt: Attempt, reading: Reading, device: torch.device) -> Schema:
    """The schema with a recipe chosen as of the reading's cutoff, or as it is where none is asked for or possible yet.

    Without as many origins as the horizon rule asks target windows, nothing is chosen: nothing could be released
    either.
    """
    schema = attempt.schema
    task = schema.task
    if not task.training.tune:
        return schema
    starts = known_origins(reading)
    if len(starts) < task.guard.min_pairs:
        attempt.report("choice.postponed", num_origins=len(starts), needed=task.guard.min_pairs)
        return schema
    begin(attempt, "score")
    budget = budget_of(task, attempt.settings.cycle_limit_seconds)
    attempt.report("choice.began", num_origins=len(starts), trials=budget.trials, seconds=budget.seconds)
    began = monotonic()
    found = tune.choose(
        network_scorer(reading, starts, device),
        plain(task.training),
        space_of(task),
        budget,
        seed=_SEED,
        seconds_now=monotonic,
        final=network_scorer(reading, starts, device, with_cohort=True),
        first=PROVEN,
        report=lambda trial: _follow(attempt, trial),
    )
    choice = Choice(
        asked=task.training,
        training=found.training,
        cutoff=reading.cutoff,
        error=found.error,
        error_before=found.error_before,
        num_trials=found.num_tried,
        seconds=monotonic() - began,
        run_id=attempt.run.run_id,
        chosen_at=attempt.now(),
    )
    # First the run: once the choice is stored, no attempt makes these trials again.
    _note(attempt, task.with_training(choice.training), choice, found.trials)
    _store(attempt, task, choice)
    attempt.report("recipe.chosen", trials=found.num_tried, error=choice.error, error_before=choice.error_before)
    return schema.chosen(choice)


def budget_of(task: Task, cycle_limit_seconds: float) -> Budget:
    """What the task asks for, but no more than half of what a cycle may take."""
    asked, longest = task.training.tune_seconds, LONGEST_SHARE * cycle_limit_seconds
    if asked > longest:
        log.warning("choice.cut", asked_seconds=asked, seconds=longest)
    return Budget(task.training.tune_trials, min(asked, longest))


def plain(training: Training) -> Training:
    """The recipe without the wish to choose one: what a person would have written to get it."""
    return training.model_copy(update=_UNASKED)


def _store(attempt: Attempt, task: Task, choice: Choice) -> None:
    def store(connection: Connection) -> None:
        lease_time = timedelta(seconds=attempt.settings.lease_seconds)
        renew_lease(connection, attempt.cycle, attempt.now(), lease_time)
        record_choice(connection, attempt.cycle.task_id, task.recipe, choice)

    in_store(attempt, store)


def _follow(attempt: Attempt, trial: Trial) -> None:
    attempt.report(
        "recipe.tried",
        outcome=trial.outcome,
        error=trial.error,
        seconds=round(trial.seconds, 2),
        with_cohort=trial.with_cohort,
    )
    attempt.run.deliver()


def _note(attempt: Attempt, task: Task, choice: Choice, trials: Sequence[Trial]) -> None:
    """The trials as a table and as figures, and what won."""
    file = recipe_folder(attempt.settings.home, task.name, task.recipe) / TRIALS_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode([describe_trial(trial) for trial in trials])))
    attempt.run.attach(file)
    for number, trial in enumerate(trials):
        if trial.error is not None:
            attempt.run.measure("final_error" if trial.with_cohort else "trial_error", trial.error, number)
    figures = {"trials": choice.num_trials, "error": choice.error, "error_before": choice.error_before}
    attempt.run.note(
        params={f"choice.{key}": value for key, value in figures.items()}
        | {"choice.seconds": round(choice.seconds, 1)},
        tags={"morrow.recipe": task.recipe},
    )
    attempt.run.deliver()


def describe_trial(trial: Trial) -> dict[str, object]:
    """A trial as JSON."""
    return {
        "with_cohort": trial.with_cohort,
        "outcome": trial.outcome,
        "error": trial.error,
        "work": trial.work,
        "seconds": trial.seconds,
        "training": trial.training.model_dump(mode="json"),
    }
