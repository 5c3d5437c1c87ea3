"""What a cycle logs in its MLflow run: parameters, rows, losses by epoch, errors by age, pictures and verdict.

Fits of single origins are runs below it. Everything goes through `trainer.tracking.run_buffer`, so nothing here waits
for MLflow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch

from contracts.clock import Clock, format_moment
from contracts.manifest import MANIFEST_FILE, Manifest
from contracts.task import Task
from store.cycles.ledger import Cycle
from store.error_cells import Cell
from store.events.reading.columns import EventColumns
from store.releases import Release
from store.tasks.catalog import Schema
from store.tasks.installation import INSTALLATION_TAG
from trainer.data.snapshot import Reading
from trainer.evaluation.backtest import report_epoch
from trainer.evaluation.horizon import HorizonVerdict
from trainer.evaluation.release_gates import age_metrics
from trainer.evaluation.scoring import answer
from trainer.evaluation.units import KeptFit
from trainer.export.opened_artefact import Artefact
from trainer.monitoring.promises import released_outcomes
from trainer.network.device import device_name
from trainer.network.training_loop import EpochReport
from trainer.plots.matrix import save_error_by_age, save_expected_and_realised, save_matrix
from trainer.plots.model import Outputs, save_confusion, save_paths, save_reliability, save_residuals
from trainer.progress import Report
from trainer.settings import TrainerSettings
from trainer.tracking.run_buffer import Run
from trainer.tracking.runs import Lineage
from trainer.tracking.tags import CUTOFF_TAG, CYCLE_TAG, LEASE_TAG, ORIGIN_TAG

PICTURE_FILE = "error_by_age.svg"
MATRIX_FILE = "error_matrix.json"
MATRIX_PICTURE_FILE = "error_matrix.svg"
OUTCOMES_FILE = "expected_and_realised.svg"
RELIABILITY_FILE = "reliability.svg"
CONFUSION_FILE = "confusion.svg"
RESIDUALS_FILE = "residuals.svg"
PATHS_FILE = "paths.svg"


@dataclass(frozen=True)
class Answers:
    """A candidate's answers to its newest withheld rows, at least one, and their mean loss and metric."""

    rows: EventColumns
    outputs: Outputs
    loss: float
    metric: float


def first_tags(task: Task, cycle: Cycle, settings: TrainerSettings, installation: str) -> dict[str, str]:
    """The tags of a run from its start. Installation, cycle and lease say whose it is if its trainer goes away.

    The device is the requested one until the trainer has found one.
    """
    return {
        "morrow.task": task.name,
        "morrow.recipe": task.recipe,
        "morrow.git_sha": settings.git_sha,
        "morrow.device": settings.device,
        CUTOFF_TAG: format_moment(cycle.cutoff),
        INSTALLATION_TAG: installation,
        CYCLE_TAG: str(cycle.cycle_id),
        LEASE_TAG: str(cycle.lease),
    }


def log_start(run: Run, task: Task, device: torch.device, num_threads: int) -> None:
    """Log windows, guard and machine. Creates the run if MLflow answers."""
    windows = task.model_dump(mode="json", include={"window", "offset", "label_delay", "span"})
    guard = {f"guard.{key}": value for key, value in task.guard.model_dump(mode="json").items()}
    run.log_params({**windows, **guard, "device": device.type, "threads": num_threads})
    run.set_tags({"morrow.device": device_name(device)})
    run.flush_if_due()


def log_rows(run: Run, reading: Reading) -> None:
    """Log the recipe, and the rows that the cutoff allows: their number, digest and origin.

    The recipe is logged only here, because a parameter is written once and the cycle may have chosen it just now.
    """
    task, known = reading.schema.task, reading.latest
    recipe = task.training.model_dump(mode="json")
    batch_size = task.training.rows_per_minibatch(reading.num_fit_rows(reading.cutoff))
    run.log_params({f"training.{key}": value for key, value in recipe.items()})
    run.log_params({"rows": len(known), "batch_size": batch_size})
    run.set_tags({"morrow.rows_digest": known.digest})
    run.log_lineage(_describe_rows(reading))


def follow_epochs(report: Report, run: Run, step: str, prefix: str = "") -> Callable[[EpochReport], None]:
    """A callback that reports each epoch, and logs its mean loss and size of δ under one metric per phase."""

    def follow(epoch: EpochReport) -> None:
        report_epoch(report, step, epoch)
        for key, value, number in _epoch_metrics(epoch):
            run.log_metric(prefix + key, value, number)
        run.flush_if_due()

    return follow


def log_fit(run: Run, fit: KeptFit, manifest: Manifest, metrics: Sequence[tuple[str, float, int]] = ()) -> None:
    """Log an origin's fit as a run below the cycle's: its losses by epoch, and its errors by age if it was scored."""
    origin = format_moment(manifest.cutoff)
    params = {
        "origin": origin,
        "rows": str(manifest.num_rows),
        "batch_size": str(manifest.batch_size),
        "seeds": ", ".join(map(str, manifest.seeds)),
    }
    tags = {ORIGIN_TAG: origin, "morrow.rows_digest": manifest.rows_digest, "morrow.device": manifest.device}
    losses = [metric for epoch in fit.epochs for metric in _epoch_metrics(epoch)]
    run.add_child(f"origin {origin}", [*losses, *metrics], params, tags)
    run.flush_if_due()


def log_scored_fits(run: Run, clock: Clock) -> Callable[[KeptFit, Manifest, Sequence[Cell]], None]:
    """A callback that logs each origin's fit with the errors of its cells."""

    def log_scored(fit: KeptFit, manifest: Manifest, cells: Sequence[Cell]) -> None:
        errors = [
            (f"{cell.method}.{name}", value, clock.age(cell.origin, cell.window))
            for cell in cells
            for name, value in (("loss", cell.loss), ("metric", cell.metric))
            if math.isfinite(value)
        ]
        log_fit(run, fit, manifest, errors)

    return log_scored


def log_answers(run: Run, folder: Path, candidate: Artefact, answers: Answers) -> None:
    """Log the errors of the candidate's answers, and pictures of them, which are drawn when they are sent."""
    task, manifest = candidate.task, candidate.manifest
    classes, outputs, rows = manifest.classes, answers.outputs, answers.rows
    run.log_metric("withheld_loss", answers.loss, 0)
    run.log_metric("withheld_metric", answers.metric, 0)
    if task.is_classification:
        run.log_file(folder / RELIABILITY_FILE, partial(save_reliability, task, classes, outputs, rows))
        run.log_file(folder / CONFUSION_FILE, partial(save_confusion, task, classes, outputs, rows))
    else:
        run.log_file(folder / RESIDUALS_FILE, partial(save_residuals, task, outputs, rows))
    ask = partial(answer, candidate.session, task)
    run.log_file(folder / PATHS_FILE, partial(save_paths, task, manifest, ask, rows))


def log_verdict(
    run: Run,
    folder: Path,
    candidate: Artefact,
    cells: Sequence[Cell],
    verdict: HorizonVerdict,
    *,
    past: Sequence[Release],
) -> None:
    """Log errors by age, their matrix, the horizon, the manifest, and what became of `past` releases."""
    task, manifest = candidate.task, candidate.manifest
    for key, value, age in age_metrics(verdict.ages):
        run.log_metric(key, value, age)
    run.log_metric("horizon", verdict.horizon, 0)
    run.log_metric("temperature", manifest.calibration.temperature, 0)
    run.log_file(folder / MATRIX_FILE, partial(_write_cells, cells))
    run.log_file(folder / MATRIX_PICTURE_FILE, partial(save_matrix, task, cells))
    run.log_file(folder / PICTURE_FILE, partial(save_error_by_age, task, manifest.cutoff, verdict))
    run.log_file(folder / MANIFEST_FILE)
    released = [row for row in past if row.action == "release"]
    closed = {row.valid_until for row in past if row.action == "close"}
    if outcomes := released_outcomes(task, released, cells):
        run.log_file(folder / OUTCOMES_FILE, partial(save_expected_and_realised, task, outcomes, closed))


def _write_cells(cells: Sequence[Cell], file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(cells)))


def version_tags(cycle: Cycle, candidate: Artefact, installation: str) -> dict[str, str]:
    """The tags of a registered version, apart from its cutoff."""
    task, manifest = candidate.task, candidate.manifest
    return {
        "morrow.task": task.name,
        "morrow.recipe": manifest.recipe,
        "morrow.rows_digest": manifest.rows_digest,
        "morrow.git_sha": manifest.git_sha,
        "morrow.method": task.training.method,
        "morrow.horizon": str(manifest.horizon),
        "morrow.valid_until": format_moment(manifest.valid_until),
        INSTALLATION_TAG: installation,
        CYCLE_TAG: str(cycle.cycle_id),
    }


def _epoch_metrics(epoch: EpochReport) -> list[tuple[str, float, int]]:
    loss = (f"loss.{epoch.phase}", epoch.mean_loss, epoch.epoch)
    return [loss, (f"delta.{epoch.phase}", epoch.mean_delta, epoch.epoch)] if epoch.mean_delta else [loss]


_COLUMN_TYPES = {
    "number": "double",
    "integer": "long",
    "boolean": "boolean",
    "category": "string",
    "classification": "string",
    "regression": "double",
}


def _describe_rows(reading: Reading) -> Lineage:
    """The rows of a reading as MLflow's list of data sets shows them."""
    task, known = reading.schema.task, reading.latest
    features = [(one.name, one.kind, not one.optional) for one in task.features]
    columns = [("at", "datetime", True)]
    columns += [(name, _COLUMN_TYPES[kind], required) for name, kind, required in features]
    columns += [(task.target.name, _COLUMN_TYPES[task.target.kind], True)]
    return Lineage(
        name=task.name,
        digest=known.digest,
        source={
            "task": task.name,
            "revision": reading.schema.revision,
            "read_at": format_moment(reading.read_at),
            "query": _describe_query(reading.schema, reading.cutoff),
        },
        columns=[{"name": name, "type": kind, "required": required} for name, kind, required in columns],
        counts={
            "num_rows": len(known),
            "num_withheld": int(known.withheld.sum()),
            "num_windows": len(np.unique(task.clock.window_starts(known.at))),
        },
    )


def _describe_query(schema: Schema, cutoff: int) -> str:
    """The rows of a cutoff as SQL on the event store, for people to run; no code runs it."""
    task, moment = schema.task, format_moment(cutoff)
    history = task.training.history
    since = "" if history is None else f" AND at >= '{format_moment(cutoff - history * task.clock.window)}'"
    return (
        f"SELECT * FROM events WHERE task_id = {schema.task_id} AND at < '{moment}'{since} AND known_at <= '{moment}' "  # noqa: S608
        f"AND coalesce(superseded_at, 'infinity') > '{moment}' ORDER BY at, event_id COLLATE \"C\""
    )
