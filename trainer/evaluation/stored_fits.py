"""The fits that are kept on disk, as whoever scores them meets them: found, opened and scored without torch.

`trainer.evaluation.fit_store` writes the folders `<home>/candidates/<task>/<recipe>/<origin>`. A fit's manifest
holds what scoring needs beside its graph, so neither the live job nor a cycle reads an old row for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnxruntime import InferenceSession

from contracts.errors import ArtefactRefused
from contracts.manifest import MANIFEST_FILE, Manifest, read_manifest
from contracts.task import Task
from store.cells import Cell
from store.columns import EventColumns
from trainer.evaluation.scoring import score_cell, score_naive
from trainer.export.session import verify_artefact


@dataclass(frozen=True)
class Kept:
    """One opened fit."""

    manifest: Manifest
    task: Task
    session: InferenceSession


def recipe_folder(home: Path, name: str, recipe: str) -> Path:
    """Where the fits of a task's recipe are kept, one folder an origin."""
    return home / "candidates" / name / recipe


def find_origins(folder: Path) -> dict[int, Path]:
    """Origin (microseconds) -> folder of every whole fit of a recipe."""
    if not folder.is_dir():
        return {}
    return {
        int(fit.name): fit
        for fit in folder.iterdir()
        if fit.name.removeprefix("-").isdecimal() and (fit / MANIFEST_FILE).is_file()
    }


def open_kept(folder: Path) -> Kept:
    """Open a fit and prove it by its probe. Raises ArtefactRefused."""
    manifest = read_manifest(folder)
    session = verify_artefact(folder)
    if str(manifest.cutoff) != folder.name or manifest.recipe != folder.parent.name:
        raise ArtefactRefused("The manifest is of another fit.")
    return Kept(manifest, manifest.parse_task(), session)


def score_kept(kept: Kept, rows: EventColumns, *, window: int, num_revisions: int, is_complete: bool) -> Sequence[Cell]:
    """The cells of a fit and of naive at its origin, on the rows of a target window. Raises CycleError."""
    manifest, task = kept.manifest, kept.task
    if manifest.label_bounds is not None:
        rows = replace(rows, labels=rows.labels.clip(*manifest.label_bounds))
    ours = score_cell(
        task,
        kept.session,
        manifest.classes,
        rows,
        origin=manifest.cutoff,
        window=window,
        num_revisions=num_revisions,
        is_complete=is_complete,
        temperature=manifest.calibration.temperature,
    )
    naive = score_naive(
        task,
        manifest.naive,
        manifest.classes,
        rows,
        origin=manifest.cutoff,
        window=window,
        num_revisions=num_revisions,
        is_complete=is_complete,
    )
    return ours, naive
