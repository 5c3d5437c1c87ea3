"""The fits on disk: they are found, opened, scored, renewed and deleted here, all without torch.

A cycle's candidate, released or held, is the fit of its cutoff, so its errors on later windows are cells of the matrix.
Kept in the folder `<home>/candidates/<task>/<recipe>/<origin>`, it is scored without fitting again. After a cycle that
could not register, the next attempt takes its fit from there. `trainer.evaluation.origin_fits` writes these folders.

A fit's manifest and graph hold everything that scoring needs, so neither the live job nor a cycle reads old rows.

With an object store (`trainer.sharing`) the folder is a copy: a fit that another trainer made is fetched into it.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import structlog
from sqlalchemy import Engine

from contracts.calibration import Calibration
from contracts.errors import ArtefactRefused, CycleError
from contracts.manifest import MANIFEST_FILE, Manifest, decode_manifest, encode_manifest
from contracts.task import Method, Task
from store.error_cells import Cell
from store.errors import ObjectStoreAway
from store.events.reading.columns import EventColumns
from store.tasks.catalog import Schema
from trainer.evaluation.calibration import nonconformity, sketch
from trainer.evaluation.horizon import HorizonVerdict
from trainer.evaluation.mixture import Mixture
from trainer.evaluation.release_gates import validated_ages
from trainer.evaluation.scoring import answer, score_cell, score_experts, score_naive
from trainer.export.opened_artefact import Artefact, open_artefact, with_experts
from trainer.settings import TrainerSettings
from trainer.sharing.bundles import unmark, unpack
from trainer.sharing.shared_fits import SharedFits, open_shared

log = structlog.get_logger(__name__)


class FitStore:
    """The kept fits of a task's recipe. Each is opened at most once, until it is fitted again.

    Without `shared` they are in this home alone.
    """

    def __init__(self, home: Path, task: Task, shared: SharedFits | None = None) -> None:
        self._home, self._task, self._shared = home, task, shared
        self._opened: dict[int, Artefact] = {}

    def folder(self, origin: int) -> Path:
        """The folder of an origin's fit (microseconds)."""
        return candidate_folder(self._home, self._task, origin)

    def open(self, origin: int) -> Artefact:
        """The kept fit of an origin. Raises ArtefactRefused."""
        if origin not in self._opened:
            self._opened[origin] = open_fit(self.folder(origin))
        return self._opened[origin]

    def find(self, origin: int) -> Artefact | None:
        """The kept fit of an origin; None if there is none or its files are not sound, which is logged."""
        folder = self.folder(origin)
        if self._shared is not None and origin not in self._opened:
            self._shared.try_fetch(folder)
        try:
            return self.open(origin) if folder.is_dir() else None
        except ArtefactRefused as error:
            log.warning("fit.refused", folder=str(folder), reason=str(error), remedy="none needed: it is fitted again")
        if self._shared is None or not self._shared.replace_copy(folder):
            return None
        try:
            return self.open(origin)
        except ArtefactRefused:
            return None

    def read_moments(self) -> dict[int, int]:
        """Origin -> when the rows of its kept fit were read, for every fit whose manifest can be read; microseconds."""
        found = find_origins(recipe_folder(self._home, self._task.name, self._task.recipe))
        if self._shared is not None:
            with suppress(ObjectStoreAway):
                found = self._shared.add_named(found, self.folder(0).parent)
                for folder in found.values():
                    self._shared.fetch(folder)
        moments = {origin: read_moment(folder) for origin, folder in found.items()}
        return {origin: moment for origin, moment in moments.items() if moment is not None}

    def share(self, origin: int) -> None:
        """Let other trainers score and reuse the fit of an origin as it is now, if trainers share their fits."""
        if self._shared is not None:
            self._shared.try_share(self.folder(origin))

    def receive(self, origin: int, bundle: bytes) -> None:
        """Keep and share a fit that another machine has made (`trainer.sharing.bundles`). Raises ArtefactRefused."""
        self.clear(origin)
        unpack(bundle, self.folder(origin))
        self.share(origin)

    def renew(self, kept: Manifest, schema: Schema, verdict: HorizonVerdict, calibration: Calibration) -> Manifest:
        """Give a kept fit a new verdict and new quantiles; its graph keeps its temperature.

        If nothing changes, the file stays byte-identical.
        """
        renewed = msgspec.structs.replace(
            kept,
            horizon=verdict.horizon,
            ages=validated_ages(verdict),
            calibration=Calibration(kept.calibration.temperature, calibration.ages),
            task=schema.task.model_dump(mode="json"),
            schema_id=schema.schema_id,
        )
        if renewed == kept:
            return kept
        self._write(renewed)
        self.share(kept.cutoff)
        return renewed

    def weigh(self, origin: int, mixture: Mixture) -> None:
        """Note the mixture of a kept fit of a backtest, which is scored accordingly from now on."""
        fit = self.open(origin)
        assert fit.manifest.experts is not None
        experts = msgspec.structs.replace(fit.manifest.experts, weight=mixture.weight)
        self._write(msgspec.structs.replace(fit.manifest, experts=experts, weights=mixture.weights(fit.task)))
        self.share(origin)

    def note_own_scores(self, origin: int, rows: EventColumns) -> Manifest:
        """Add the scores of a regression's fit on these rows of its own to its manifest, which is returned."""
        fit = self.open(origin)
        scores = nonconformity(fit.task, [], answer(fit.session, fit.task, rows), rows)
        return self._write(msgspec.structs.replace(fit.manifest, own_scores=list(sketch(scores))))

    def _write(self, manifest: Manifest) -> Manifest:
        file = self.folder(manifest.cutoff) / MANIFEST_FILE
        partial = file.with_suffix(".partial")
        partial.write_bytes(encode_manifest(manifest))
        unmark(file.parent)
        partial.replace(file)
        self._opened.pop(manifest.cutoff, None)
        return manifest

    def discard(self, origin: int) -> None:
        """Delete the fit of an origin, sound or not, before it is fitted again, so that nothing is scored by it."""
        if self._shared is not None:
            self._shared.withdraw(self.folder(origin))
        self.clear(origin)

    def discard_rivals(self, origin: int) -> None:
        """Delete the fits of the task's rivals at an origin."""
        for recipe in rival_recipes(self._task):
            folder = recipe_folder(self._home, self._task.name, recipe) / str(origin)
            if self._shared is not None:
                self._shared.withdraw(folder)
            shutil.rmtree(folder, ignore_errors=True)

    def clear(self, origin: int) -> None:
        """Delete the fit of an origin from this home."""
        self._opened.pop(origin, None)
        shutil.rmtree(self.folder(origin), ignore_errors=True)

    def delete_older(self, oldest: int) -> None:
        """Delete kept fits of origins before `oldest`, of any recipe of the task: no later cycle can need them."""
        if self._shared is not None:
            self._shared.withdraw_older(oldest)
        for recipe in self._home.joinpath("candidates", self._task.name).glob("*"):
            for folder in recipe.iterdir():
                origin = folder.name.partition(".")[0]
                if origin.removeprefix("-").isdecimal() and int(origin) < oldest:
                    shutil.rmtree(folder, ignore_errors=True)


def open_fits(engine: Engine, settings: TrainerSettings, schema: Schema) -> FitStore:
    """The kept fits of a task as the settings say: in this home, or shared through an object store."""
    return FitStore(settings.home, schema.task, open_shared(engine, settings, schema.task_id))


def recipe_folder(home: Path, name: str, recipe: str) -> Path:
    """The folder of the fits of a task's recipe, with one folder per origin."""
    return home / "candidates" / name / recipe


def rival_recipes(task: Task) -> list[str]:
    """The recipes under which the fits of the task's rivals are kept, of networks and of other methods."""
    networks = [method for method in task.guard.rivals if method in get_args(Method)]
    return [
        *(task.with_training(task.training.model_copy(update={"method": method})).recipe for method in networks),
        *(plain_rival_recipe(task, method) for method in task.guard.rivals if method not in networks),
    ]


def plain_rival_recipe(task: Task, method: str) -> str:
    """The name under which the fits of a rival without a network are kept."""
    return f"{task.recipe}.{method}"


def read_moment(folder: Path) -> int | None:
    """When the rows of a kept fit were read (microseconds); None if its manifest cannot be read."""
    try:
        return decode_manifest(folder).read_at
    except CycleError:
        return None


def candidate_folder(home: Path, task: Task, origin: int) -> Path:
    """The folder of the fit of an origin (microseconds)."""
    return recipe_folder(home, task.name, task.recipe) / str(origin)


def find_origins(folder: Path) -> dict[int, Path]:
    """Origin (microseconds) -> folder of every whole fit of a recipe."""
    if not folder.is_dir():
        return {}
    return {
        int(fit.name): fit
        for fit in folder.iterdir()
        if fit.name.removeprefix("-").isdecimal() and (fit / MANIFEST_FILE).is_file()
    }


def open_fit(folder: Path) -> Artefact:
    """Open the fit in a folder, its experts included, and verify it by its probe. Raises ArtefactRefused."""
    fit = with_experts(open_artefact(folder), folder)
    if str(fit.manifest.cutoff) != folder.name or fit.manifest.recipe != folder.parent.name:
        raise ArtefactRefused("The manifest is of another fit.")
    return fit


def score_fit(
    fit: Artefact, rows: EventColumns, *, window: int, num_revisions: int, is_complete: bool
) -> Sequence[Cell]:
    """The cells of a fit, of naive at its origin and of its experts, on a target window's rows. Raises CycleError."""
    manifest, task = fit.manifest, fit.task
    if manifest.label_bounds is not None:
        rows = replace(rows, labels=rows.labels.clip(*manifest.label_bounds))
    experts = score_experts(fit, rows, window=window, num_revisions=num_revisions, is_complete=is_complete)
    ours = score_cell(
        task,
        fit.session,
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
    answered = [cell for cell in experts if cell.method == task.training.method] or [ours]
    return *answered, naive, *(cell for cell in experts if cell.method != task.training.method)
