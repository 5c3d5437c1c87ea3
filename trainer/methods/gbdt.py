"""The rival that users would pick: LightGBM on raw features, model time and the calendar; newer rows weigh more.

It uses the same rows as our fit of the same origin, and vocabularies and classes from the same encoder. A task need not
configure it; `training.boosting` holds its settings. A first booster does not see the newest fifth of the rows: on them
the number of rounds is found, and their residuals give a regression's constant scale. A second booster is then fitted
on all rows with that many rounds. LightGBM is an extra of the package, so it is imported only where it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog
from numpy.typing import NDArray

from contracts.clock import Clock
from contracts.errors import ArtefactRefused
from contracts.spec.boosting import Boosting
from contracts.task import RegressionLoss, Task, Training
from store.events.reading.columns import EventColumns
from trainer.data.encoder import Encoded, Encoder, encode, fit_encoder, phase
from trainer.methods.without_network import (
    LEAST_STANDARD_SCALE,
    in_units_of_labels,
    keep_body,
    read_body,
    without_views,
)

if TYPE_CHECKING:
    from lightgbm import Booster

log = structlog.get_logger(__name__)

GBDT = "gbdt"
BOOSTER_FILE = "gbdt.txt"

# Most rounds, and the rounds without a gain after which the search for their number ends; both times the learning rate.
_MAX_ROUNDS, _PATIENCE = 30.0, 2.0
_NEWEST_SHARE = 0.2
# Rows that are older weigh less than a 16th.
_HALF_LIVES = 4.0
# Bounded trees: fewer rounds than these make smaller trees, and as many rounds times the learning rate learn enough.
_FEWEST_ROUNDS, _ENOUGH_LEARNED, _FASTEST = 10, 5.0, 0.5
# Steps of a sine or cosine that the booster tells apart. Another sine's last bit must not change the side of a split.
WAVE_STEPS = 2.0**40
# What a regression minimises. Huber's loss is absolute beyond 0.9 deviations, and its absolute error is below that of
# LightGBM's own absolute loss: 9.84 against 10.10 on the four years inside House's training range.
_OBJECTIVES: dict[RegressionLoss, str] = {"gaussian": "regression", "absolute": "huber"}


@dataclass(frozen=True)
class Gbdt:
    """A fitted booster. `scale` is the deviation of a regression's residuals in standardised labels, else 1."""

    encoder: Encoder
    scale: float
    booster: "Booster"


@dataclass(frozen=True)
class Table:
    """The data of a booster: values `(n, columns)`, targets and weights `(n,)`.

    Columns are categories, numbers, model time, and the calendar's.
    """

    num_categories: int
    num_calendar: int
    values: NDArray[np.float64]
    targets: NDArray[np.int64] | NDArray[np.float32]
    weights: NDArray[np.float64]

    def select(self, rows: slice) -> "Table":
        return replace(self, values=self.values[rows], targets=self.targets[rows], weights=self.weights[rows])


def fit_gbdt(
    task: Task,
    rows: EventColumns,
    origin: int,
    *,
    seed: int,
    threads: int,
    most_rows: int | None = None,
    most_leaves: int | None = None,
) -> Gbdt:
    """Fit on the rows of this origin (microseconds): the same rows, seed and version give the same trees.

    The encoder knows all rows, the trees about `most_rows` of them, if given. With `most_leaves` all trees together
    have at most as many leaves, or two for each class. Raises CycleError if the rows have fewer than two classes.
    """
    encoder = fit_encoder(without_views(task), rows, origin)
    rows = rows if most_rows is None else thin(task, rows, origin, most_rows)
    encoded = encode(encoder, rows)
    weights = recency(encoded, task.clock, task.training.boosting.half_life)
    table = Table(len(encoder.vocabularies), encoder.num_calendar, _values(encoder, rows), encoded.targets, weights)
    training, most_rounds = task.training, None
    if most_leaves is not None:
        boosting, most_rounds = bound(training.boosting, len(encoder.classes), most_leaves)
        if boosting != training.boosting:
            log.info(
                "expert.bounded",
                task=task.name,
                num_classes=len(encoder.classes),
                num_rounds=most_rounds,
                num_leaves=boosting.num_leaves,
                learning_rate=boosting.learning_rate,
                reason=f"trees of {training.boosting.num_leaves} leaves would make answers slow",
                remedy="none needed: trees that err more weigh less",
            )
        training = training.model_copy(update={"boosting": boosting})
    booster, scale = fit_booster(
        table, len(encoder.classes), training, seed=seed, threads=threads, most_rounds=most_rounds
    )
    return Gbdt(encoder, scale, booster)


def bound(boosting: Boosting, num_classes: int, most_leaves: int) -> tuple[Boosting, int]:
    """Settings and a number of rounds whose trees together have at most `most_leaves`, or two for each class.

    More than two classes have a tree each in every round. If few rounds remain, trees get smaller and each counts more.
    """
    num_trees, num_leaves = num_classes if num_classes > 2 else 1, boosting.num_leaves
    num_rounds = most_leaves // (num_leaves * num_trees)
    if num_rounds >= _count_rounds(boosting):
        return boosting, _count_rounds(boosting)
    if num_rounds < _FEWEST_ROUNDS:
        num_leaves = max(2, most_leaves // (num_trees * _FEWEST_ROUNDS))
        num_rounds = max(1, most_leaves // (num_leaves * num_trees))
    rate = max(boosting.learning_rate, min(_FASTEST, _ENOUGH_LEARNED / num_rounds))
    return boosting.model_copy(update={"num_leaves": num_leaves, "learning_rate": rate}), num_rounds


def _count_rounds(boosting: Boosting) -> int:
    """The most rounds of a fit that nothing else bounds."""
    return round(_MAX_ROUNDS / boosting.learning_rate)


def answer_gbdt(fit: Gbdt, rows: EventColumns, threads: int) -> list[NDArray[np.float32]]:
    """Answers in the form of a graph's outputs: [probabilities (n, C)], or [mean (n,), scale (n,)]."""
    encoder = fit.encoder
    found = predict(fit.booster, _values(encoder, rows), len(encoder.classes), threads)
    if not encoder.is_classification:
        return in_units_of_labels(encoder, found[:, 0], fit.scale)
    return [found.astype(np.float32)]


def thin(task: Task, rows: EventColumns, origin: int, most: int) -> EventColumns:
    """At most this many of the rows: evenly spaced ones of those that recency does not make worthless."""
    if len(rows) <= most:
        return rows
    longest = int(_HALF_LIVES * task.training.boosting.half_life * task.clock.window)
    recent = rows.select(slice(int(np.searchsorted(rows.at, origin - longest)), None))
    recent = rows if len(recent) < most else recent
    return recent.select(slice(None, None, -(-len(recent) // most)))


def mix_answers(
    ours: Sequence[NDArray[np.floating[Any]]], theirs: Sequence[NDArray[np.floating[Any]]], weight: float
) -> list[NDArray[np.float64]]:
    """Answers of the mixture in which ours have this weight, in the form of a graph's outputs.

    Its mean and scale are those of a weighted mixture of two distributions.
    """
    own, other = ([output.astype(np.float64) for output in outputs] for outputs in (ours, theirs))
    mixed = [weight * own[0] + (1 - weight) * other[0]]
    if len(own) > 1:
        squares = weight * own[1] ** 2 + (1 - weight) * other[1] ** 2
        mixed.append(np.sqrt(squares + weight * (1 - weight) * (own[0] - other[0]) ** 2))
    return mixed


def keep_gbdt(folder: Path, fit: Gbdt, recipe: str) -> None:
    """Write LightGBM's text and its notes into `folder`, which appears whole or not at all."""
    text = fit.booster.model_to_string().encode()
    keep_body(folder, BOOSTER_FILE, text, recipe=recipe, encoder=fit.encoder, scale=fit.scale)


def read_gbdt(folder: Path, recipe: str) -> Gbdt:
    """The fit that is kept in `folder`. Raises ArtefactRefused if it is damaged or of another recipe."""
    from lightgbm import Booster
    from lightgbm.basic import LightGBMError

    notes, text = read_body(folder, BOOSTER_FILE, recipe)
    try:
        return Gbdt(notes.encoder, notes.scale, Booster(model_str=text.decode()))
    except (UnicodeDecodeError, LightGBMError) as error:
        raise ArtefactRefused(f"The kept booster cannot be read: {error}") from error


def recency(rows: Encoded, clock: Clock, half_life: float) -> NDArray[np.float64]:
    """The weight `(n,)` of each row; it halves with every half-life (in windows) before the origin."""
    ages: NDArray[np.float64] = rows.u.astype(np.float64) * (clock.span / clock.window)
    return np.exp2(ages / half_life)


def fit_booster(
    table: Table, num_classes: int, training: Training, *, seed: int, threads: int, most_rounds: int | None = None
) -> tuple["Booster", float]:
    """A booster for rows in order of time, and the deviation of a regression's residuals (no classes), else 1."""
    table = _blank_unused(table, training.boosting)
    first = max(1, round(len(table.targets) * (1 - _NEWEST_SHARE)))
    older, newest = table.select(slice(0, first)), table.select(slice(first, None))
    parameters = _parameters(num_classes, training) | {"seed": seed, "num_threads": threads}
    most = _count_rounds(training.boosting) if most_rounds is None else most_rounds
    trial = _boost(parameters, older, most, watched=newest)
    booster = _boost(parameters, table, max(1, trial.best_iteration))
    if num_classes or first == len(table.targets):
        return booster, 1.0
    residuals = newest.targets - predict(trial, newest.values, 0, threads)[:, 0]
    return booster, max(LEAST_STANDARD_SCALE, float(np.sqrt(np.average(residuals**2, weights=newest.weights))))


def _blank_unused(table: Table, boosting: Boosting) -> Table:
    """The table with constants in the columns that must not be used: no tree splits on a constant."""
    values, time = table.values.copy(), table.values.shape[1] - table.num_calendar - 1
    if not boosting.reads_time:
        values[:, time] = 0
    if not boosting.reads_calendar:
        values[:, time + 1 :] = 0
    return replace(table, values=values)


def predict(booster: "Booster", values: NDArray[np.float64], num_classes: int, threads: int) -> NDArray[np.float64]:
    """Probabilities `(n, C)`, or standardised means `(n, 1)` if there are no classes."""
    found = np.asarray(booster.predict(values, num_threads=threads), np.float64)
    if found.ndim > 1:
        return found
    return np.column_stack([1 - found, found]) if num_classes else found[:, None]


def _values(encoder: Encoder, rows: EventColumns) -> NDArray[np.float64]:
    """`(n, q + p + 1 + 2c)`: codes of categories, numbers (NaN if missing), model time, calendar in whole steps.

    `trainer.export.tree_graph` writes the same columns into a graph, so change both together.
    """
    encoded = encode(encoder, rows)
    calendar = [np.rint(wave * WAVE_STEPS) for name in encoder.calendar for wave in phase(rows.at, name)]
    return np.column_stack([encoded.codes, rows.numbers, encoded.u, *calendar]).astype(np.float64)


def _parameters(num_classes: int, training: Training) -> dict[str, Any]:
    """LightGBM's parameters: the recipe's settings, the objective, and what makes a fit repeatable."""
    boosting = training.boosting
    parameters = {
        "learning_rate": boosting.learning_rate,
        "num_leaves": boosting.num_leaves,
        "min_data_in_leaf": boosting.min_rows,
        "feature_fraction": boosting.feature_share,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    if num_classes == 0:
        return parameters | {"objective": _OBJECTIVES[training.regression_loss]}
    if num_classes == 2:
        return parameters | {"objective": "binary"}
    return parameters | {"objective": "multiclass", "num_class": num_classes}


def _boost(parameters: dict[str, Any], table: Table, num_rounds: int, watched: Table | None = None) -> "Booster":
    """Fit `num_rounds` rounds, or fewer if the loss on the watched rows stops falling."""
    import lightgbm

    train = lightgbm.Dataset(
        table.values,
        table.targets,
        weight=table.weights,
        categorical_feature=list(range(table.num_categories)),
        params=parameters,
    )
    if watched is None or len(watched.targets) == 0:
        return lightgbm.train(parameters, train, num_rounds)
    newest = lightgbm.Dataset(watched.values, watched.targets, weight=watched.weights, reference=train)
    patience = round(_PATIENCE / parameters["learning_rate"])
    stop = lightgbm.early_stopping(patience, verbose=False)
    return lightgbm.train(parameters, train, num_rounds, valid_sets=[newest], callbacks=[stop])
