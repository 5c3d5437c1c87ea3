"""What a cycle writes down in its MLflow run: parameters, rows, losses by epoch, errors by age, pictures and verdict.

Fits of single origins are runs below it. Everything goes through `trainer.tracking.run_buffer`, so none of it waits
for MLflow.
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import torch
from onnxruntime import InferenceSession

from contracts.clock import format_moment
from contracts.manifest import MANIFEST_FILE, Manifest
from contracts.task import Task
from store.catalog import Schema
from store.cells import Cell
from store.columns import EventColumns
from store.cycles import Cycle
from store.releases import list_releases
from trainer.data.snapshot import Reading
from trainer.evaluation.fit_store import candidate_folder
from trainer.evaluation.horizon import Verdict
from trainer.evaluation.origin_fits import Fit
from trainer.evaluation.release_gates import age_metrics
from trainer.evaluation.scoring import answer
from trainer.monitoring.outcomes import released_outcomes
from trainer.network.device import device_name
from trainer.network.training_loop import EpochReport
from trainer.plots.matrix import save_error_by_age, save_expected_and_realised, save_matrix
from trainer.plots.model import Outputs, save_confusion, save_paths, save_reliability, save_residuals
from trainer.retraining.ledger import Attempt
from trainer.settings import TrainerSettings, count_threads
from trainer.tracking.lineage import Lineage
from trainer.tracking.tags import CUTOFF_TAG, CYCLE_TAG, LEASE_TAG, ORIGIN_TAG

PICTURE_FILE = "error_by_age.svg"
MATRIX_FILE = "error_matrix.json"
MATRIX_PICTURE_FILE = "error_matrix.svg"
OUTCOMES_FILE = "expected_and_realised.svg"
RELIABILITY_FILE = "reliability.svg"
CONFUSION_FILE = "confusion.svg"
RESIDUALS_FILE = "residuals.svg"
PATHS_FILE = "paths.svg"


def first_tags(task: Task, cycle: Cycle, settings: TrainerSettings) -> dict[str, str]:
    """What a run is known by from its first moment on; cycle and lease say whose it is if its trainer goes away.

    The device is the one that is asked for, until there is one.
    """
    return {
        "morrow.task": task.name,
        "morrow.recipe": task.recipe,
        "morrow.git_sha": settings.git_sha,
        "morrow.device": settings.device,
        CUTOFF_TAG: format_moment(cycle.cutoff),
        CYCLE_TAG: str(cycle.cycle_id),
        LEASE_TAG: str(cycle.lease),
    }


def note_start(attempt: Attempt, device: torch.device) -> None:
    """Windows and guard as parameters, and where it runs."""
    task = attempt.schema.task
    plain = task.model_dump(mode="json", include={"window", "offset", "label_delay", "span"})
    guard = {f"guard.{key}": value for key, value in task.guard.model_dump(mode="json").items()}
    machine = {"device": device.type, "threads": count_threads(attempt.settings)}
    attempt.run.note(params={**plain, **guard, **machine}, tags={"morrow.device": device_name(device)})
    attempt.run.deliver()


def note_recipe(attempt: Attempt) -> None:
    """The whole recipe as parameters: they are written once, so not before it is known."""
    training = attempt.schema.task.training.model_dump(mode="json")
    attempt.run.note(params={f"training.{key}": value for key, value in training.items()})


def note_rows(attempt: Attempt, reading: Reading) -> None:
    """How many rows the cutoff allows and a minibatch has, and their digest; and for MLflow's list of data sets how to
    find them again."""
    known, task = reading.latest, attempt.schema.task
    batch_size = task.training.rows_per_minibatch(reading.num_fit_rows(reading.cutoff))
    params = {"rows": len(known), "batch_size": batch_size}
    attempt.run.note(params=params, tags={"morrow.rows_digest": known.digest})
    attempt.run.note_lineage(
        Lineage(
            name=task.name,
            digest=known.digest,
            source={
                "task": task.name,
                "revision": attempt.schema.revision,
                "read_at": format_moment(reading.read_at),
                "query": _describe_reading(attempt.schema, reading.cutoff),
            },
            columns=[
                {"name": "at", "type": "datetime", "required": True},
                *(
                    {"name": one.name, "type": _COLUMN_TYPES[one.kind], "required": not one.optional}
                    for one in task.features
                ),
                {"name": task.target.name, "type": _COLUMN_TYPES[task.target.kind], "required": True},
            ],
            counts={
                "num_rows": len(known),
                "num_withheld": int(known.withheld.sum()),
                "num_windows": len(np.unique(task.clock.window_starts(known.at))),
            },
        )
    )


def measure_epochs(attempt: Attempt, prefix: str = "") -> Callable[[EpochReport], None]:
    """A follower that keeps each epoch's mean loss and size of δ, one figure a phase with the epoch as its step."""

    def follow(epoch: EpochReport) -> None:
        for key, value, step in _epoch_figures(epoch):
            attempt.run.measure(prefix + key, value, step)
        attempt.run.deliver()

    return follow


def note_verdict(attempt: Attempt, manifest: Manifest, cells: Sequence[Cell], verdict: Verdict) -> None:
    """Errors by age as figures and as a picture, the matrix they are read off, the horizon, and the manifest."""
    task = attempt.schema.task
    folder = candidate_folder(attempt.settings.home, task, manifest.cutoff)
    with attempt.engine.connect() as connection:
        released = list_releases(connection, attempt.cycle.task_id, actions=["release"], with_calibration=False)
        closed = list_releases(connection, attempt.cycle.task_id, actions=["close"], with_calibration=False)
    for key, value, age in age_metrics(verdict.ages):
        attempt.run.measure(key, value, age)
    attempt.run.measure("horizon", verdict.horizon, 0)
    attempt.run.measure("temperature", manifest.calibration.temperature, 0)
    save_error_by_age(task, manifest.cutoff, verdict, folder / PICTURE_FILE)
    (folder / MATRIX_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(cells)))
    save_matrix(task, cells, folder / MATRIX_PICTURE_FILE)
    files = [MATRIX_FILE, MATRIX_PICTURE_FILE, PICTURE_FILE, MANIFEST_FILE]
    if met := released_outcomes(task, released, cells):
        save_expected_and_realised(task, met, {row.valid_until for row in closed}, folder / OUTCOMES_FILE)
        files.append(OUTCOMES_FILE)
    for name in files:
        attempt.run.attach(folder / name)


def note_answers(
    attempt: Attempt, manifest: Manifest, session: InferenceSession, outputs: Outputs, rows: EventColumns
) -> None:
    """Pictures of what the version answers on its newest withheld rows, at least one."""
    task = attempt.schema.task
    folder = candidate_folder(attempt.settings.home, task, manifest.cutoff)
    if task.is_classification:
        save_reliability(task, manifest.classes, outputs, rows, folder / RELIABILITY_FILE)
        save_confusion(task, manifest.classes, outputs, rows, folder / CONFUSION_FILE)
        files = [RELIABILITY_FILE, CONFUSION_FILE]
    else:
        save_residuals(task, outputs, rows, folder / RESIDUALS_FILE)
        files = [RESIDUALS_FILE]
    save_paths(task, manifest, lambda asked: answer(session, task, asked), rows, folder / PATHS_FILE)
    for name in (*files, PATHS_FILE):
        attempt.run.attach(folder / name)


def note_fit(attempt: Attempt) -> Callable[[Fit, Manifest, Sequence[Cell]], None]:
    """A follower that makes a run of each origin that was fitted: its losses by epoch, its errors by age if scored."""
    task = attempt.schema.task

    def follow(fit: Fit, manifest: Manifest, cells: Sequence[Cell]) -> None:
        figures = [figure for epoch in fit.epochs for figure in _epoch_figures(epoch)]
        figures += [
            (f"{cell.method}.{name}", value, task.clock.age(cell.origin, cell.window))
            for cell in cells
            for name, value in (("loss", cell.loss), ("metric", cell.metric))
            if math.isfinite(value)
        ]
        origin = format_moment(manifest.cutoff)
        params = {
            "origin": origin,
            "rows": str(manifest.num_rows),
            "batch_size": str(manifest.batch_size),
            "seeds": ", ".join(map(str, manifest.seeds)),
        }
        tags = {
            ORIGIN_TAG: origin,
            "morrow.rows_digest": manifest.rows_digest,
            "morrow.device": manifest.device,
        }
        attempt.run.add_child(f"origin {origin}", figures, params, tags)
        attempt.run.deliver()

    return follow


def version_tags(attempt: Attempt, manifest: Manifest) -> dict[str, str]:
    """What the registered version says of itself beside its cutoff."""
    return {
        "morrow.task": attempt.schema.task.name,
        "morrow.recipe": manifest.recipe,
        "morrow.rows_digest": manifest.rows_digest,
        "morrow.git_sha": manifest.git_sha,
        "morrow.method": attempt.schema.task.training.method,
        "morrow.horizon": str(manifest.horizon),
        "morrow.valid_until": format_moment(manifest.valid_until),
        CYCLE_TAG: str(attempt.cycle.cycle_id),
    }


def _epoch_figures(epoch: EpochReport) -> list[tuple[str, float, int]]:
    figures = [(f"loss.{epoch.phase}", epoch.mean_loss, epoch.epoch)]
    return [*figures, (f"delta.{epoch.phase}", epoch.mean_delta, epoch.epoch)] if epoch.mean_delta else figures


_COLUMN_TYPES = {"number": "double", "category": "string", "classification": "string", "regression": "double"}


def _describe_reading(schema: Schema, cutoff: int) -> str:
    """The rows of a cutoff as SQL over the event store, for people who want to see them: nothing here runs it."""
    task, moment = schema.task, format_moment(cutoff)
    history = task.training.history
    since = "" if history is None else f" AND at >= '{format_moment(cutoff - history * task.clock.window)}'"
    return (
        f"SELECT * FROM events WHERE task_id = {schema.task_id} AND at < '{moment}'{since} AND known_at <= '{moment}' "  # noqa: S608
        f"AND coalesce(superseded_at, 'infinity') > '{moment}' ORDER BY at, event_id COLLATE \"C\""
    )
