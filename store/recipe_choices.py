"""Recipes that the trainer chose for tasks with `training.tune`: one per written recipe, chosen once.

The key is the recipe as it was written. So a task that asks the same again keeps its choice. One that asks for anything
else, such as another time budget or starting point, gets a new choice.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from contracts.clock import from_micros, to_micros
from contracts.task import Training, read_training
from store.database import choices


@dataclass(frozen=True)
class Choice:
    """The recipe that was written and the one that was chosen, on the rows known at `cutoff` (microseconds).

    `error` is the chosen recipe's mean error over (origin, age), `error_before` that of the written recipe. They come
    from cohorts if the best recipes were scored again, else from one member each. None if scoring did not finish.
    `num_trials` counts recipes, not how often each was scored.
    """

    asked: Training
    training: Training
    cutoff: int
    error: float | None
    error_before: float | None
    num_trials: int
    seconds: float
    run_id: str | None
    chosen_at: datetime


def record_choice(connection: Connection, task_id: int, recipe: str, choice: Choice) -> None:
    """Store the choice for a written recipe; an earlier choice stays."""
    connection.execute(
        insert(choices)
        .values(
            task_id=task_id,
            recipe=recipe,
            asked=choice.asked.model_dump(mode="json"),
            training=choice.training.model_dump(mode="json"),
            cutoff=from_micros(choice.cutoff),
            error=choice.error,
            error_before=choice.error_before,
            num_trials=choice.num_trials,
            seconds=choice.seconds,
            run_id=choice.run_id,
            chosen_at=choice.chosen_at,
        )
        .on_conflict_do_nothing()
    )


def read_choices(connection: Connection, task_ids: Collection[int]) -> dict[tuple[int, str], Choice | None]:
    """(task, written recipe) -> the choice for it; None for one that cannot be read."""
    if not task_ids:
        return {}
    names = ("task_id", "recipe", "asked", "training", "cutoff", "error", "error_before", "num_trials")
    columns = [choices.c[name] for name in (*names, "seconds", "run_id", "chosen_at")]
    found: dict[tuple[int, str], Choice | None] = {}
    for row in connection.execute(select(*columns).where(choices.c.task_id.in_(task_ids))):
        task_id, recipe, asked, training, cutoff, *rest = row
        try:
            found[task_id, recipe] = Choice(read_training(asked), read_training(training), to_micros(cutoff), *rest)
        except (ValueError, TypeError):  # written past the API
            found[task_id, recipe] = None
    return found
