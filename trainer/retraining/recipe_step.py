"""The step of a cycle that `training.tune` asks for: choose a recipe once, on the rows that the cutoff allows.

The choice is stored under the cycle's lease, so of two trainers only one chooses. A trainer that is killed before that
leaves nothing, and the next attempt starts again. From then on the task holds the chosen recipe, and a cycle is one fit
as before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import msgspec
import structlog
import torch
from sqlalchemy import Connection

from contracts.task import Task, Training
from store import recipe_choices
from store.cycles.leases import renew_lease
from store.recipe_choices import Choice
from trainer.data.snapshot import Reading
from trainer.evaluation.fit_store import recipe_folder
from trainer.progress import Report
from trainer.retraining.attempt import Attempt
from trainer.tracking.run_buffer import Run
from trainer.tuning import search as tune
from trainer.tuning.origins import known_origins, network_scorer
from trainer.tuning.search import Budget, SearchResult, Trial
from trainer.tuning.space import PROVEN, complements, space_of
from trainer.tuning.trials import pick_evenly

log = structlog.get_logger(__name__)

TRIALS_FILE = "trials.json"
# The largest share of a cycle's time limit that choosing may take.
LONGEST_SHARE = 0.5
_SEED = 0
_UNASKED = {name: Training.model_fields[name].default for name in ("tune", "tune_seconds", "tune_trials")}


@dataclass(frozen=True)
class ChosenRecipe:
    """What a search for a recipe found, and the seconds that it took."""

    search: SearchResult
    seconds: float


def choose_recipe(
    reading: Reading,
    device: torch.device,
    cycle_limit_seconds: float,
    *,
    report: Report,
    on_start: Callable[[], None],
    on_trial: Callable[[], None],
) -> ChosenRecipe | None:
    """The best recipe as of the reading's cutoff; None if the task asks for none, or if none can be chosen yet.

    Nothing is chosen with fewer origins than the horizon rule needs windows: nothing could be released either.
    """
    task = reading.schema.task
    if not task.training.tune:
        return None
    starts = known_origins(reading)
    if len(starts) < task.guard.min_pairs:
        report("choice.postponed", num_origins=len(starts), needed=task.guard.min_pairs)
        return None
    on_start()
    budget = budget_of(task, cycle_limit_seconds)
    report("choice.began", num_origins=len(starts), trials=budget.trials, seconds=budget.seconds)
    began = monotonic()

    def follow(trial: Trial) -> None:
        report(
            "recipe.tried",
            outcome=trial.outcome,
            error=trial.error,
            seconds=round(trial.seconds, 2),
            with_cohort=trial.with_cohort,
        )
        on_trial()

    if task.training.tune == "quick":
        few = pick_evenly(starts, tune.NUM_QUICK_ORIGINS)
        asked = task.with_training(plain(task.training))
        quick = tune.choose_among(
            network_scorer(reading, few, device, with_cohort=True),
            asked.training,
            complements(asked),
            budget.seconds,
            seconds_now=monotonic,
            report=follow,
        )
        return ChosenRecipe(quick, monotonic() - began)
    search = tune.choose(
        network_scorer(reading, starts, device),
        plain(task.training),
        space_of(task),
        budget,
        seed=_SEED,
        seconds_now=monotonic,
        final=network_scorer(reading, starts, device, with_cohort=True),
        first=PROVEN,
        report=follow,
    )
    return ChosenRecipe(search, monotonic() - began)


def record_choice(attempt: Attempt, task: Task, found: ChosenRecipe, home: Path) -> None:
    """Record the choice of a task's recipe in the run, then under the lease in the store. Raises LeaseLost.

    The run comes first: once the choice is stored, no attempt makes these trials again.
    """
    search = found.search
    recipe = task.with_training(search.training).recipe
    choice = Choice(
        asked=task.training,
        training=search.training,
        cutoff=attempt.cycle.cutoff,
        error=search.error,
        error_before=search.error_before,
        num_trials=search.num_tried,
        seconds=found.seconds,
        run_id=attempt.run.run_id,
        chosen_at=attempt.now(),
    )
    _log_choice(attempt.run, recipe_folder(home, task.name, recipe) / TRIALS_FILE, recipe, choice, search.trials)

    def store(connection: Connection) -> None:
        renew_lease(connection, attempt.cycle, attempt.now(), attempt.lease_time)
        recipe_choices.record_choice(connection, attempt.cycle.task_id, task.recipe, choice)

    attempt.write(store)
    attempt.report("recipe.chosen", trials=choice.num_trials, error=choice.error, error_before=choice.error_before)


def budget_of(task: Task, cycle_limit_seconds: float) -> Budget:
    """The budget that the task asks for, cut to half of the time that a cycle may take."""
    asked, longest = task.training.tune_seconds, LONGEST_SHARE * cycle_limit_seconds
    if asked > longest:
        remedy = "raise MORROW_CYCLE_LIMIT_SECONDS, or lower training.tune_seconds"
        log.warning("choice.cut", asked_seconds=asked, seconds=longest, remedy=remedy)
    return Budget(task.training.tune_trials, min(asked, longest))


def plain(training: Training) -> Training:
    """The recipe without the wish to choose one, as a person would have written it."""
    return training.model_copy(update=_UNASKED)


def _log_choice(run: Run, file: Path, recipe: str, choice: Choice, trials: Sequence[Trial]) -> None:
    """Log the trials as a table and as metrics, and the recipe that won."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode([_describe_trial(trial) for trial in trials])))
    run.log_file(file)
    for number, trial in enumerate(trials):
        if trial.error is not None:
            run.log_metric("final_error" if trial.with_cohort else "trial_error", trial.error, number)
    figures = {"trials": choice.num_trials, "error": choice.error, "error_before": choice.error_before}
    run.log_params({f"choice.{key}": value for key, value in figures.items()})
    run.log_params({"choice.seconds": round(choice.seconds, 1)})
    run.set_tags({"morrow.recipe": recipe})
    run.flush_if_due()


def _describe_trial(trial: Trial) -> dict[str, object]:
    """A trial as JSON."""
    return {
        "with_cohort": trial.with_cohort,
        "outcome": trial.outcome,
        "error": trial.error,
        "work": trial.work,
        "seconds": trial.seconds,
        "training": trial.training.model_dump(mode="json"),
    }
