"""`python -m handbook pictures`: draw the pictures of `docs/explanation/` with the code that they explain.

It takes some minutes on one core. Pictures of two processors can differ in the last digits of their arithmetic, so no
test compares the files; one checks that each picture exists and is shown.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from handbook.example import DAY, JUMP_DAY, START, TASK, reading
from handbook.interpolation import save_boundary, save_tangents
from trainer.data.snapshot import Reading
from trainer.evaluation.backtest import judge
from trainer.evaluation.origin_fits import Fit, fit_origins
from trainer.plots.matrix import save_error_by_age, save_expected_and_realised, save_matrix
from trainer.replay.replay import reading_as_of, replay
from trainer.replay.report import closings, served_outcomes
from trainer.settings import TrainerSettings

PICTURES = ("boundary.png", "tangents.png", "matrix.png", "horizon.png", "guard.png")
_BOUNDARY, _TANGENTS, _MATRIX, _HORIZON, _GUARD = PICTURES
_CPU = torch.device("cpu")
_SETTINGS = TrainerSettings(device="cpu", threads=1, max_members=64)
_CUTOFF, _JUMP = START + 21 * DAY, START + JUMP_DAY * DAY
_NUM_DAYS_IN_MATRIX = 16
# The interpolated loss has a large weight from the first epoch, so that its effect is visible.
_STRAIGHT: Mapping[str, object] = {"gi_weight": 2.0, "delta_max": 4.0, "gi_pretrain": True}
_RECIPES: Mapping[str, Mapping[str, object]] = {
    "gi": _STRAIGHT,
    "λ = 0": {**_STRAIGHT, "gi_weight": 0.0},
    "baseline": {"method": "baseline"},
}


def draw(folder: Path) -> None:
    """Write every picture."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    whole = reading()
    known = reading_as_of(whole, _CUTOFF)
    fits = {name: _fit(known, **changes) for name, changes in _RECIPES.items()}
    save_boundary(fits, folder / _BOUNDARY)
    save_tangents({name: fits[name] for name in ("gi", "λ = 0")}, folder / _TANGENTS)

    walked = replay(whole, settings=_SETTINGS, device=_CPU, report=_drop_report, first=_CUTOFF, rivals=())
    calm = [cell for cell in walked.cells.values() if cell.window < _JUMP]
    shown = [cell for cell in calm if cell.origin >= _JUMP - _NUM_DAYS_IN_MATRIX * DAY]
    save_matrix(TASK, shown, folder / _MATRIX)
    newest = next(cutoff for cutoff in walked.cutoffs if cutoff.origin == _JUMP)
    verdict = replace(judge(reading_as_of(whole, _JUMP), calm), ages=newest.expected)
    save_error_by_age(TASK, _JUMP, verdict, folder / _HORIZON)
    shut = [row.valid_until for row in closings(walked)]
    save_expected_and_realised(TASK, served_outcomes(walked), shut, folder / _GUARD)


def _fit(known: Reading, **changes: object) -> Fit:
    """A fit of all known rows, with these changes to the example's recipe."""
    task = known.schema.task
    training = task.training.model_validate(task.training.model_dump() | changes)
    reading = replace(known, schema=replace(known.schema, task=task.with_training(training)))
    (fit,) = fit_origins(reading, [reading.cutoff], _CPU, _SETTINGS.max_members, lambda _epoch: None)
    return fit


def _drop_report(_event: str, /, **_facts: object) -> None:
    """Drop the progress reports of this run."""
