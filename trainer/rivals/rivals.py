"""The rivals' part of the error matrix: other methods fitted at our origins, on the same rows, and scored like ours.

No cycle fits them, so that a steady cycle costs one fit: the trainer does when it is idle. A rival is kept beside our
own fits, under a recipe of its own, and its cells stand in our matrix under its name. It is never served.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy import Engine

from contracts.clock import from_micros
from contracts.errors import ArtefactRefused, CycleError
from store.cells import Cell, record_cells
from store.columns import EventColumns
from trainer.data.labels import draw_in_labels
from trainer.data.snapshot import Reading
from trainer.evaluation.backtest import Report
from trainer.evaluation.fit_store import candidate_folder, find_kept, fit_origins, keep, seeds_of
from trainer.evaluation.scoring import answer, complete_until, in_window, make_cell
from trainer.evaluation.stored_fits import open_kept
from trainer.methods.extrapolated_linear import EXTRAPOLATED_LINEAR, answer_linear, fit_linear, keep_linear, read_linear
from trainer.methods.gbdt import GBDT, answer_gbdt, fit_gbdt, keep_gbdt, read_gbdt
from trainer.rivals.gaps import Gap, find_gaps
from trainer.settings import TrainerSettings, count_threads

F = TypeVar("F")
Answers = Callable[[EventColumns], Sequence[NDArray[np.float32]]]
# Classes and answers of a fit.
Rival = tuple[Sequence[str], Answers]


def fill_rivals(
    engine: Engine, reading: Reading, settings: TrainerSettings, device: torch.device, report: Report
) -> list[Cell]:
    """Fit and score what the task's rivals lack as of the reading; returns the cells that were added.

    One fit after the other, each kept and its cells stored at once, so that whatever ends this loses one fit at most. A
    rival that cannot be fitted at an origin is reported and left out.
    """
    task, task_id = reading.schema.task, reading.schema.task_id
    added: list[Cell] = []
    for (method, origin), gaps in groupby(_gaps(engine, reading, report), key=lambda gap: (gap.method, gap.origin)):
        try:
            rival = find_rival(reading, method, origin, settings, device)
            cells = [score_rival(reading, rival, gap) for gap in gaps]
        except CycleError as error:
            report("rival.failed", method=method, origin=origin, reason=str(error))
            continue
        with engine.begin() as connection:
            record_cells(connection, task_id, task.recipe, cells, from_micros(reading.read_at))
        report("rival.scored", method=method, origin=origin, num_cells=len(cells))
        added += cells
    return added


def with_method(reading: Reading, method: str) -> Reading:
    """The same rows for a task whose recipe differs in its method alone."""
    task = reading.schema.task
    training = task.training.model_validate(task.training.model_dump() | {"method": method})
    return replace(reading, schema=replace(reading.schema, task=task.model_copy(update={"training": training})))


def rival_folder(home: Path, reading: Reading, method: str, origin: int) -> Path:
    """Where a rival without a network is kept: beside our own fits of that origin, since its recipe is ours."""
    ours = candidate_folder(home, reading.schema.task, origin)
    return ours.parent.with_name(f"{ours.parent.name}.{method}") / ours.name


def _gaps(engine: Engine, reading: Reading, report: Report) -> Iterable[Gap]:
    """The gaps that this reading can fill, by method and origin."""
    with engine.connect() as connection:
        gaps = find_gaps(connection, reading.schema, complete_until(reading.schema.task, reading.cutoff))
    if any(gap.method == GBDT for gap in gaps) and is_left_out(GBDT, report):
        gaps = [gap for gap in gaps if gap.method != GBDT]
    return [gap for gap in gaps if reading.fingerprints.get(gap.window, (0, 0))[1] >= gap.num_revisions]


def is_left_out(method: str, report: Report) -> bool:
    """Whether a rival cannot be fitted here for want of what it needs, which is then reported."""
    if method != GBDT or find_spec("lightgbm") is not None:
        return False
    report("rival.left_out", method=method, reason="LightGBM is not installed; it comes with morrow[gbdt]")
    return True


def find_rival(reading: Reading, method: str, origin: int, settings: TrainerSettings, device: torch.device) -> Rival:
    """The kept fit of a rival, fitted and kept first where there is none. Raises CycleError."""
    unnetworked = _UNNETWORKED.get(method)
    if unnetworked is None:
        return _find_network(reading, method, origin, settings, device)
    return unnetworked(reading, rival_folder(settings.home, reading, method, origin), origin, count_threads(settings))


def score_rival(reading: Reading, rival: Rival, gap: Gap) -> Cell:
    """The cell of a rival's fit on the rows of a window that the reading knows."""
    task, (classes, answers) = reading.schema.task, rival
    rows = in_window(reading.events.as_of(reading.cutoff), gap.window, task.clock)
    rows = draw_in_labels(task, rows, reading.fit_rows(gap.origin))
    return make_cell(
        task,
        classes,
        answers(rows),
        rows,
        origin=gap.origin,
        window=gap.window,
        method=gap.method,
        num_revisions=reading.fingerprints[gap.window][1],
    )


def _find_network(reading: Reading, method: str, origin: int, settings: TrainerSettings, device: torch.device) -> Rival:
    """Classes and answers of a kept network of this method, fitted and kept first where there is none."""
    rival, home = with_method(reading, method), settings.home
    task = rival.schema.task
    kept = find_kept(home, task, origin)
    if kept is None:
        (fit,) = fit_origins(rival, [origin], device, settings.max_members, lambda _epoch: None)
        keep(fit, rival, home=home, device=device, git_sha=settings.git_sha, verdict=None)
        kept = open_kept(candidate_folder(home, task, origin))
    session = kept.session
    return kept.manifest.classes, lambda rows: answer(session, task, rows)


def _find_gbdt(reading: Reading, folder: Path, origin: int, threads: int) -> Rival:
    """The same of LightGBM, which takes the processor whatever the device."""
    task = reading.schema.task
    fit = _read_kept(read_gbdt, folder, task.recipe)
    if fit is None:
        fit = fit_gbdt(task, reading.fit_rows(origin), origin, seed=seeds_of(task)[0], threads=threads)
        keep_gbdt(folder, fit, task.recipe)
    found = fit
    return found.encoder.classes, lambda rows: answer_gbdt(found, rows, threads)


def _find_linear(reading: Reading, folder: Path, origin: int, _threads: int) -> Rival:
    """The same of the linear model whose coefficients are extrapolated."""
    task = reading.schema.task
    fit = _read_kept(read_linear, folder, task.recipe)
    if fit is None:
        fit = fit_linear(task, reading.fit_rows(origin), origin)
        keep_linear(folder, fit, task.recipe)
    found = fit
    return found.encoder.classes, lambda rows: answer_linear(found, rows)


# Rivals that train no network: each finds what is kept in a folder of its own, or fits and keeps it.
_UNNETWORKED: dict[str, Callable[[Reading, Path, int, int], Rival]] = {
    GBDT: _find_gbdt,
    EXTRAPOLATED_LINEAR: _find_linear,
}


def _read_kept(read: Callable[[Path, str], F], folder: Path, recipe: str) -> F | None:
    try:
        return read(folder, recipe) if folder.is_dir() else None
    except ArtefactRefused:
        return None
