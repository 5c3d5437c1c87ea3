"""What a cycle writes down in its MLflow run: parameters, rows, losses by epoch, errors by age, picture and verdict."""

from collections.abc import Callable, Sequence

import msgspec
import torch

from contracts.cells import Cell
from contracts.clock import format_moment
from contracts.cycles import Cycle
from contracts.manifest import MANIFEST_FILE, Manifest
from contracts.matrix import Verdict
from contracts.task import Task
from trainer.attempt import Attempt
from trainer.candidates import candidate_folder
from trainer.charts import save_error_by_age, save_matrix
from trainer.device import device_name
from trainer.fit import EpochReport
from trainer.judge import age_metrics
from trainer.reading import Reading
from trainer.registry import CUTOFF_TAG, CYCLE_TAG, LEASE_TAG
from trainer.settings import TrainerSettings, count_threads

PICTURE_FILE = "error_by_age.png"
MATRIX_FILE = "error_matrix.json"
MATRIX_PICTURE_FILE = "error_matrix.png"


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
    """How many rows the cutoff allows, and their digest."""
    known = reading.known(reading.cutoff)
    attempt.run.note(params={"rows": len(known)}, tags={"morrow.rows_digest": known.digest})


def measure_epochs(attempt: Attempt, prefix: str) -> Callable[[EpochReport], None]:
    """A follower that keeps each epoch's mean loss, one figure a phase with the epoch as its step."""

    def follow(epoch: EpochReport) -> None:
        attempt.run.measure(f"{prefix}.{epoch.phase}", epoch.mean_loss, epoch.epoch)
        attempt.run.deliver()

    return follow


def note_verdict(attempt: Attempt, manifest: Manifest, cells: Sequence[Cell], verdict: Verdict) -> None:
    """Errors by age as figures and as a picture, the matrix they are read off, the horizon, and the manifest."""
    task = attempt.schema.task
    folder = candidate_folder(attempt.settings.home, task, manifest.cutoff)
    for key, value, age in age_metrics(verdict.ages):
        attempt.run.measure(key, value, age)
    attempt.run.measure("horizon", verdict.horizon, 0)
    attempt.run.measure("temperature", manifest.calibration.temperature, 0)
    save_error_by_age(task, manifest.cutoff, verdict, folder / PICTURE_FILE)
    (folder / MATRIX_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(cells)))
    save_matrix(task, cells, folder / MATRIX_PICTURE_FILE)
    for name in (MATRIX_FILE, MATRIX_PICTURE_FILE, PICTURE_FILE, MANIFEST_FILE):
        attempt.run.attach(folder / name)


def version_tags(attempt: Attempt, manifest: Manifest) -> dict[str, str]:
    """What the registered version says of itself beside its cutoff."""
    return {
        "morrow.task": attempt.schema.task.name,
        "morrow.recipe": manifest.recipe,
        "morrow.rows_digest": manifest.rows_digest,
        "morrow.git_sha": manifest.git_sha,
        CYCLE_TAG: str(attempt.cycle.cycle_id),
    }
