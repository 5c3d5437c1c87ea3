"""The rivals' part of the error matrix: other methods, fitted at our origins on the same rows and scored like ours.

No cycle fits rivals, so a steady cycle costs one fit; the trainer fits them while it is idle. A rival's fit is kept
next to ours under a recipe of its own. Its cells stand in our matrix under the rival's name. It is never served.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy import Engine

from contracts.clock import from_micros, to_micros
from contracts.errors import ArtefactRefused, CycleError
from contracts.task import Task
from store.error_cells import Cell, record_cells
from store.events.reading.columns import EventColumns
from store.tasks.catalog import Schema
from trainer.data.labels import clip_labels
from trainer.data.replica import Replica
from trainer.data.snapshot import Reading, read
from trainer.data.windows import complete_until, history_start, in_window
from trainer.evaluation.fit_store import FitStore, plain_rival_recipe, recipe_folder
from trainer.evaluation.origin_fits import fit_origins, keep_fit, seeds_of
from trainer.evaluation.scoring import answer, make_cell
from trainer.methods.extrapolated_linear import EXTRAPOLATED_LINEAR, answer_linear, fit_linear, keep_linear, read_linear
from trainer.methods.gbdt import GBDT, answer_gbdt, fit_gbdt, keep_gbdt, read_gbdt
from trainer.progress import Report
from trainer.rivals.missing_cells import MissingCell, find_missing_cells
from trainer.settings import TrainerSettings, count_threads
from trainer.sharing.shared_fits import SharedFits, open_shared

F = TypeVar("F")


@dataclass(frozen=True)
class FittedRival:
    """The classes of a rival's fit, and its answers to rows in the form of a graph's outputs."""

    classes: Sequence[str]
    answer: Callable[[EventColumns], Sequence[NDArray[np.float32]]]


@dataclass(frozen=True)
class _WithoutNetwork(Generic[F]):
    """How a rival without a network is fitted, asked, kept in a folder and read back; `int`s are origin and threads."""

    fit: Callable[[Task, EventColumns, int, int], F]
    answer: Callable[[F, EventColumns, int], Sequence[NDArray[np.float32]]]
    keep: Callable[[Path, F, str], None]
    read: Callable[[Path, str], F]


# Rivals without a network; all others are plans (`trainer.methods.plans`).
_WITHOUT_NETWORK: dict[str, _WithoutNetwork[Any]] = {
    GBDT: _WithoutNetwork(
        fit=lambda task, rows, origin, threads: fit_gbdt(task, rows, origin, seed=seeds_of(task)[0], threads=threads),
        answer=answer_gbdt,
        keep=keep_gbdt,
        read=read_gbdt,
    ),
    EXTRAPOLATED_LINEAR: _WithoutNetwork(
        fit=lambda task, rows, origin, _threads: fit_linear(task, rows, origin),
        answer=lambda fit, rows, _threads: answer_linear(fit, rows),
        keep=keep_linear,
        read=read_linear,
    ),
}


def read_for_rivals(engine: Engine, schema: Schema, now: datetime, replica: Replica | None = None) -> Reading:
    """The rows that the task's rivals still need, as known now."""
    cutoff = to_micros(now)
    with engine.connect() as connection:
        missing = find_missing_cells(connection, schema, complete_until(schema.task, cutoff))
    oldest = min((cell.origin for cell in missing), default=cutoff)
    return read(engine, schema, cutoff, now, since=history_start(schema.task, oldest), replica=replica)


def fill_rivals(
    engine: Engine, reading: Reading, settings: TrainerSettings, device: torch.device, report: Report
) -> list[Cell]:
    """Fit and score what the task's rivals lack as of the reading; returns the cells that were added.

    Rivals are fitted one after the other. Each fit and its cells are stored at once, so an interruption loses one fit
    at most. A rival that cannot be fitted at an origin is reported and skipped.
    """
    task, task_id = reading.schema.task, reading.schema.task_id
    shared = open_shared(engine, settings, task_id)
    added: list[Cell] = []
    missing = _missing_cells(engine, reading, report)
    for (method, origin), missing_of_fit in groupby(missing, key=lambda cell: (cell.method, cell.origin)):
        try:
            rival = open_rival(reading, method, origin, settings, device, shared=shared)
            cells = [score_rival(reading, rival, cell) for cell in missing_of_fit]
        except CycleError as error:
            report("rival.failed", method=method, origin=origin, reason=str(error))
            continue
        with engine.begin() as connection:
            record_cells(connection, task_id, task.recipe, cells, from_micros(reading.read_at))
        report("rival.scored", method=method, origin=origin, num_cells=len(cells))
        added += cells
    return added


def with_method(reading: Reading, method: str) -> Reading:
    """The same rows for a task whose recipe has another method, and no experts."""
    training = reading.schema.task.training
    alone = {"method": method, "experts": ("gi",)}
    return reading.with_training(training.model_validate(training.model_dump() | alone))


def rival_folder(home: Path, reading: Reading, method: str, origin: int) -> Path:
    """The folder of a rival without a network: next to our own fit of that origin, whose recipe it shares."""
    task = reading.schema.task
    return recipe_folder(home, task.name, plain_rival_recipe(task, method)) / str(origin)


def report_unavailable(method: str, report: Report) -> bool:
    """Whether a library that the rival needs is not installed, which is then reported."""
    if method != GBDT or find_spec("lightgbm") is not None:
        return False
    report("rival.left_out", method=method, reason="LightGBM is not installed; it comes with morrow[gbdt]")
    return True


def open_rival(
    reading: Reading,
    method: str,
    origin: int,
    settings: TrainerSettings,
    device: torch.device,
    *,
    shared: SharedFits | None = None,
) -> FittedRival:
    """The kept fit of a rival. If there is none, it is fitted and kept first. Raises CycleError."""
    without_network = _WITHOUT_NETWORK.get(method)
    if without_network is None:
        return _open_network(reading, method, origin, settings, device, shared=shared)
    folder = rival_folder(settings.home, reading, method, origin)
    return _open_without_network(without_network, reading, folder, origin, count_threads(settings), shared=shared)


def score_rival(reading: Reading, rival: FittedRival, cell: MissingCell) -> Cell:
    """The cell of a rival's fit on the window's rows that the reading knows."""
    task = reading.schema.task
    rows = in_window(reading.current, cell.window, task.clock)
    rows = clip_labels(task, rows, reading.fit_rows(cell.origin))
    return make_cell(
        task,
        rival.classes,
        rival.answer(rows),
        rows,
        origin=cell.origin,
        window=cell.window,
        method=cell.method,
        num_revisions=reading.fingerprints[cell.window][1],
    )


def _missing_cells(engine: Engine, reading: Reading, report: Report) -> Iterable[MissingCell]:
    """The missing cells that this reading can fill, by method and origin."""
    with engine.connect() as connection:
        missing = find_missing_cells(connection, reading.schema, complete_until(reading.schema.task, reading.cutoff))
    if any(cell.method == GBDT for cell in missing) and report_unavailable(GBDT, report):
        missing = [cell for cell in missing if cell.method != GBDT]
    return [
        cell
        for cell in missing
        if reading.reaches(cell.origin) and _can_fill(reading.fingerprints.get(cell.window, (0, 0)), cell)
    ]


def _can_fill(known: tuple[int, int], cell: MissingCell) -> bool:
    """Whether a window of these rows and revisions gives a rival the rows of our cell, or newer ones."""
    return known[1] > cell.num_revisions or known == (cell.num_rows, cell.num_revisions)


def _open_network(
    reading: Reading,
    method: str,
    origin: int,
    settings: TrainerSettings,
    device: torch.device,
    *,
    shared: SharedFits | None,
) -> FittedRival:
    rival = with_method(reading, method)
    task = rival.schema.task
    store = FitStore(settings.home, task, shared)
    kept = store.find(origin)
    if kept is None:
        (fit,) = fit_origins(
            rival, [origin], device, settings.max_members, lambda _epoch: None, encoded_mib=settings.encoded_mib
        )
        keep_fit(fit, rival, store, device=device, git_sha=settings.git_sha, verdict=None)
        kept = store.open(origin)
    session = kept.session
    return FittedRival(kept.manifest.classes, lambda rows: answer(session, task, rows))


def _open_without_network(
    method: _WithoutNetwork[Any],
    reading: Reading,
    folder: Path,
    origin: int,
    threads: int,
    *,
    shared: SharedFits | None,
) -> FittedRival:
    """Such a rival is fitted on the processor, whatever the device."""
    task = reading.schema.task
    if shared is not None:
        shared.try_fetch(folder)
    fit = _read_kept(method.read, folder, task.recipe)
    if fit is None:
        fit = method.fit(task, reading.fit_rows(origin), origin, threads)
        method.keep(folder, fit, task.recipe)
        if shared is not None:
            shared.try_share(folder)
    return FittedRival(fit.encoder.classes, lambda rows: method.answer(fit, rows, threads))


def _read_kept(read: Callable[[Path, str], F], folder: Path, recipe: str) -> F | None:
    try:
        return read(folder, recipe) if folder.is_dir() else None
    except ArtefactRefused:
        return None
