"""The fits of origins, kept on disk as artefacts: made once, scored on every later window.

A cycle's candidate, released or held, is its cutoff's fit, so its errors on later windows are cells of the matrix. The
folder `<home>/candidates/<task>/<recipe>/<origin>` lets them be scored without fitting again, and lets a cycle that
could not register take up its finished fit.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec
import torch

from contracts.calibration import Calibration
from contracts.errors import ArtefactRefused
from contracts.manifest import MANIFEST_FILE, Manifest, encode_manifest
from contracts.task import Task
from trainer.data.encoder import Encoded, Encoder, encode, fit_encoder
from trainer.data.snapshot import Reading
from trainer.evaluation.horizon import Verdict
from trainer.evaluation.release_gates import validated_ages
from trainer.evaluation.stored_fits import Kept, open_kept, recipe_folder
from trainer.export.artefact import write_artefact
from trainer.network.device import device_name
from trainer.network.network import CohortNetwork
from trainer.network.training_loop import EpochReport, Member, finish, fit

UNCALIBRATED = Calibration(1.0, [])


@dataclass(frozen=True)
class Fit:
    """The fit of one origin: its encoder, its members of a trained cohort and how these were trained."""

    origin: int
    encoder: Encoder
    network: CohortNetwork
    members: tuple[int, ...]
    epochs: tuple[EpochReport, ...]


def candidate_folder(home: Path, task: Task, origin: int) -> Path:
    """Where the fit of an origin (microseconds) is kept."""
    return recipe_folder(home, task.name, task.recipe) / str(origin)


def seeds_of(task: Task) -> list[int]:
    """The recipe's seeds: the same at every origin, so that fitting again gives the same weights."""
    digests = (
        hashlib.sha256(f"{task.name}/{task.recipe}/{k}".encode()).digest() for k in range(task.training.num_seeds)
    )
    return [int.from_bytes(digest[:4], "big") for digest in digests]


def fit_origins(
    reading: Reading,
    origins: Sequence[int],
    device: torch.device,
    max_members: int,
    on_epoch: Callable[[EpochReport], None],
) -> Iterator[Fit]:
    """Fit these origins × the recipe's seeds side by side, in cohorts of at most `max_members` (one origin at least).

    Origins that know different numbers of classes, or so many more rows that their minibatches are larger, cannot share
    a program and so go into cohorts of their own.
    """
    task = reading.schema.task
    encoders = [_fit_encoder(reading, origin) for origin in origins]
    per_cohort = max(1, max_members // task.training.num_seeds)

    def kind(encoder: Encoder) -> tuple[int, int]:
        num_rows = reading.num_fit_rows(encoder.cutoff)
        return encoder.num_outputs, task.training.rows_per_minibatch(num_rows)

    for _, alike in groupby(sorted(encoders, key=kind), key=kind):
        same = list(alike)
        for start in range(0, len(same), per_cohort):
            yield from _fit_cohort(reading, same[start : start + per_cohort], device, on_epoch)


def _fit_cohort(
    reading: Reading, encoders: Sequence[Encoder], device: torch.device, on_epoch: Callable[[EpochReport], None]
) -> Iterator[Fit]:
    task, seeds = reading.schema.task, seeds_of(reading.schema.task)
    members = [
        Member(rows, encoder.vocabulary_sizes, encoder.num_outputs, seed)
        for encoder, rows in _encoded(reading, encoders)
        for seed in seeds
    ]
    epochs: list[EpochReport] = []

    def follow(epoch: EpochReport) -> None:
        epochs.append(epoch)
        on_epoch(epoch)

    network = finish(fit(members, task.training, task.clock, device), follow).cpu()
    for number, encoder in enumerate(encoders):
        own = tuple(range(number * len(seeds), (number + 1) * len(seeds)))
        told = tuple(found for epoch in epochs if (found := epoch.of(own)) is not None)
        yield Fit(encoder.cutoff, encoder, network, own, told)


def _encoded(reading: Reading, encoders: Sequence[Encoder]) -> Iterator[tuple[Encoder, Encoded]]:
    for encoder in encoders:
        known = reading.known(encoder.cutoff)
        yield encoder, encode(encoder, known, ~known.withheld)


def _fit_encoder(reading: Reading, origin: int) -> Encoder:
    known = reading.known(origin)
    return fit_encoder(reading.schema.task, known, origin, ~known.withheld)


def keep(
    fit_: Fit,
    reading: Reading,
    *,
    home: Path,
    device: torch.device,
    git_sha: str,
    verdict: Verdict | None,
    calibration: Calibration = UNCALIBRATED,
) -> Manifest:
    """Export a fit into its folder. An origin of a backtest has no verdict of its own, and so no horizon."""
    task = reading.schema.task
    known, rows = reading.known(fit_.origin), reading.fit_rows(fit_.origin)
    return write_artefact(
        candidate_folder(home, task, fit_.origin),
        encoder=fit_.encoder,
        network=fit_.network,
        members=fit_.members,
        rows=rows,
        task=task,
        schema_id=reading.schema.schema_id,
        horizon=0 if verdict is None else verdict.horizon,
        ages=[] if verdict is None else validated_ages(verdict),
        calibration=calibration,
        num_rows=len(known),
        rows_digest=known.digest,
        read_at=reading.read_at,
        seeds=seeds_of(task),
        device=device_name(device),
        git_sha=git_sha,
    )


def find_kept(home: Path, task: Task, origin: int) -> Kept | None:
    """The fit that is kept for an origin, opened; None where there is none or its files are not sound."""
    folder = candidate_folder(home, task, origin)
    try:
        return open_kept(folder) if folder.is_dir() else None
    except ArtefactRefused:
        return None


def renew_verdict(
    home: Path, reading: Reading, manifest: Manifest, verdict: Verdict, calibration: Calibration
) -> Manifest:
    """Give a kept fit the verdict and the quantiles of now; its graph keeps its temperature.

    Where they say the same as before, the file stays as it was, byte for byte.
    """
    renewed = msgspec.structs.replace(
        manifest,
        horizon=verdict.horizon,
        ages=validated_ages(verdict),
        calibration=Calibration(manifest.calibration.temperature, calibration.ages),
        task=reading.schema.task.model_dump(mode="json"),
        schema_id=reading.schema.schema_id,
    )
    if renewed == manifest:
        return manifest
    file = candidate_folder(home, reading.schema.task, manifest.cutoff) / MANIFEST_FILE
    partial = file.with_suffix(".partial")
    partial.write_bytes(encode_manifest(renewed))
    partial.replace(file)
    return renewed


def discard(home: Path, task: Task, origin: int) -> None:
    """Delete what is kept of an origin, sound or not: it is fitted anew, and nothing may be scored by it meanwhile."""
    shutil.rmtree(candidate_folder(home, task, origin), ignore_errors=True)


def delete_older(home: Path, task: Task, oldest: int) -> None:
    """Delete kept fits of origins before `oldest`, of whatever recipe: no later cycle can need them."""
    for recipe in (home / "candidates" / task.name).glob("*"):
        for folder in recipe.iterdir():
            if folder.name.removesuffix(".partial").lstrip("-").isdecimal() and int(folder.stem) < oldest:
                shutil.rmtree(folder, ignore_errors=True)
