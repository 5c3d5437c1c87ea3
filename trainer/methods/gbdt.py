"""The rival that users would pick: LightGBM on raw features, model time and the calendar, newer rows weighing more.

It stands on the same rows as our fit of the same origin, takes its vocabularies and classes from the same encoder, and
is nothing that a task has to set. The number of rounds is found on the newest fifth of the rows, which a first booster
does not see; the residuals there are also a regression's constant scale. A second booster is then fitted on all rows
with that many rounds. LightGBM is an extra of the package: it is imported only where one is fitted or asked.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.columns import EventColumns
from contracts.errors import ArtefactRefused
from contracts.manifest import checksum
from contracts.task import Task
from trainer.dataset import Encoder, encode, fit_encoder, phase

if TYPE_CHECKING:
    from lightgbm import Booster

GBDT = "gbdt"
BOOSTER_FILE = "gbdt.txt"
NOTES_FILE = "gbdt.json"

_MAX_ROUNDS = 300
_PATIENCE = 20
_LEARNING_RATE = 0.1
_NEWEST_SHARE = 0.2
# Windows before the origin at which a row weighs half of the newest.
_HALF_LIFE = 13.0
_LEAST_SCALE = 0.01


@dataclass(frozen=True)
class Gbdt:
    """A fitted booster. `scale` is the deviation of a regression's residuals in standardised labels, else 1."""

    encoder: Encoder
    scale: float
    booster: "Booster"


class Notes(msgspec.Struct, frozen=True):
    """What is kept beside LightGBM's own text: all that its answers depend on."""

    recipe: str
    encoder: Encoder
    scale: float
    checksum: str


def fit_gbdt(task: Task, rows: EventColumns, origin: int, *, seed: int, threads: int) -> Gbdt:
    """Fit on the rows of this origin (microseconds): the same rows, seed and version give the same trees.

    Raises CycleError where the rows show fewer than two classes.
    """
    encoder = fit_encoder(task, rows, origin)
    weights = 2.0 ** ((rows.at - origin) / (_HALF_LIFE * task.clock.window))
    data = _Data(len(encoder.vocabularies), _table(encoder, rows), encode(encoder, rows).targets, weights)
    first = max(1, round(len(rows) * (1 - _NEWEST_SHARE)))
    older, newest = data.select(slice(0, first)), data.select(slice(first, None))
    parameters = _parameters(encoder) | {"seed": seed, "num_threads": threads}
    trial = _boost(parameters, older, _MAX_ROUNDS, watched=newest)
    booster = _boost(parameters, data, max(1, trial.best_iteration))
    scale = 1.0
    if not encoder.is_classification and first < len(rows):
        residuals = newest.targets - trial.predict(newest.table, num_threads=threads)
        scale = max(_LEAST_SCALE, float(np.sqrt(np.average(residuals**2, weights=newest.weights))))
    return Gbdt(encoder, scale, booster)


def answer_gbdt(fit: Gbdt, rows: EventColumns, threads: int) -> list[NDArray[np.float32]]:
    """What a graph would answer on these rows: [probabilities (n, C)], or [mean (n,), scale (n,)]."""
    encoder = fit.encoder
    found = np.asarray(fit.booster.predict(_table(encoder, rows), num_threads=threads), np.float64)
    if not encoder.is_classification:
        mean = found * encoder.label_scale + encoder.label_mean
        scale = np.full(len(rows), fit.scale * encoder.label_scale)
        return [mean.astype(np.float32), scale.astype(np.float32)]
    probabilities = np.column_stack([1 - found, found]) if found.ndim == 1 else found
    return [probabilities.astype(np.float32)]


def keep_gbdt(folder: Path, fit: Gbdt, recipe: str) -> None:
    """Write LightGBM's text and what belongs to it into `folder`, which appears whole or not at all."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / BOOSTER_FILE).write_text(fit.booster.model_to_string())
    notes = Notes(recipe, fit.encoder, fit.scale, checksum(partial / BOOSTER_FILE))
    (partial / NOTES_FILE).write_bytes(msgspec.json.encode(notes))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def read_gbdt(folder: Path, recipe: str) -> Gbdt:
    """The fit that is kept in `folder`. Raises ArtefactRefused where it is of another recipe or not sound."""
    from lightgbm import Booster
    from lightgbm.basic import LightGBMError

    try:
        notes = msgspec.json.decode((folder / NOTES_FILE).read_bytes(), type=Notes)
        if notes.recipe != recipe or checksum(folder / BOOSTER_FILE) != notes.checksum:
            raise ArtefactRefused(f"{BOOSTER_FILE} is not what {NOTES_FILE} says.")
        return Gbdt(notes.encoder, notes.scale, Booster(model_str=(folder / BOOSTER_FILE).read_text()))
    except (OSError, msgspec.MsgspecError, LightGBMError) as error:
        raise ArtefactRefused(f"The kept booster cannot be read: {error}") from error


@dataclass(frozen=True)
class _Data:
    """What a booster reads: table `(n, columns)`, categories first; targets and weights `(n,)`."""

    num_categories: int
    table: NDArray[np.float64]
    targets: NDArray[np.int64] | NDArray[np.float32]
    weights: NDArray[np.float64]

    def select(self, rows: slice) -> "_Data":
        return _Data(self.num_categories, self.table[rows], self.targets[rows], self.weights[rows])


def _table(encoder: Encoder, rows: EventColumns) -> NDArray[np.float64]:
    """`(n, q + p + 1 + 2c)`: codes of categories, numbers with NaN where missing, model time, calendar."""
    encoded = encode(encoder, rows)
    calendar = [wave for name in encoder.calendar for wave in phase(rows.at, name)]
    return np.column_stack([encoded.codes, rows.numbers, encoded.u, *calendar]).astype(np.float64)


def _parameters(encoder: Encoder) -> dict[str, Any]:
    """LightGBM's defaults, the task's objective, and whatever makes a fit repeatable."""
    parameters = {
        "learning_rate": _LEARNING_RATE,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    if not encoder.is_classification:
        return parameters | {"objective": "regression"}
    if len(encoder.classes) == 2:
        return parameters | {"objective": "binary"}
    return parameters | {"objective": "multiclass", "num_class": len(encoder.classes)}


def _boost(parameters: dict[str, Any], data: _Data, num_rounds: int, watched: _Data | None = None) -> "Booster":
    """So many rounds, or fewer where the loss of the watched rows stops falling."""
    import lightgbm

    train = lightgbm.Dataset(
        data.table,
        data.targets,
        weight=data.weights,
        categorical_feature=list(range(data.num_categories)),
        params=parameters,
    )
    if watched is None or len(watched.targets) == 0:
        return lightgbm.train(parameters, train, num_rounds)
    newest = lightgbm.Dataset(watched.table, watched.targets, weight=watched.weights, reference=train)
    stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
    return lightgbm.train(parameters, train, num_rounds, valid_sets=[newest], callbacks=[stop])
