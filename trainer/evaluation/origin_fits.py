"""The fits of origins: networks trained side by side, and each exported into the folder where it is kept.

The seeds of a recipe are the same at every origin, so fitting again on the same rows gives the same bytes.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby
from statistics import fmean

import structlog
import torch

from contracts.calibration import Calibration
from contracts.manifest import Manifest
from contracts.task import Task
from store.events.reading.columns import EventColumns
from trainer.data.encoder import Encoded, Encoder, class_positions, encode, fit_encoder, prepare
from trainer.data.labels import clip_labels
from trainer.data.snapshot import Reading
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import HorizonVerdict
from trainer.evaluation.mixture import Mixture, has_experts
from trainer.evaluation.release_gates import validated_ages
from trainer.export.artefact import write_artefact
from trainer.export.tree_graph import cut_to
from trainer.methods.gbdt import Gbdt, fit_gbdt
from trainer.network.device import device_name
from trainer.network.network import CohortNetwork
from trainer.network.training_loop import EpochReport, Member, finish, fit
from trainer.settings import ENCODED_MIB

log = structlog.get_logger(__name__)

# Withheld rows whose loss is told while a candidate is fitted.
_FEWEST_WATCHED, _MOST_WATCHED = 50, 512
# The newest rows of its own fit on which a candidate is scored.
_NUM_OWN_ROWS = 2000
# Rows of a fit of LightGBM as an expert, so that its memory and time stay within those of a network's fit.
_MOST_BOOSTED_ROWS = 500_000
# Leaves of its trees, and bytes of them in a graph, so that answers stay quick and versions small.
MOST_LEAVES, _MOST_BYTES = 16_384, 4 << 20
UNCALIBRATED = Calibration(1.0, [])


@dataclass(frozen=True)
class Fit:
    """The fit of one origin: its encoder, its members of a trained cohort, and their epochs."""

    origin: int
    encoder: Encoder
    network: CohortNetwork
    members: tuple[int, ...]
    epochs: tuple[EpochReport, ...]

    @property
    def late_gain(self) -> float | None:
        """The share by which the loss on unseen rows fell from the middle third of pre-training to its last third."""
        losses = [epoch.unseen_loss for epoch in self.epochs if epoch.unseen_loss is not None]
        third = len(losses) // 3
        if third == 0 or (middle := fmean(losses[-2 * third : -third])) == 0:
            return None
        return (middle - fmean(losses[-third:])) / abs(middle)


def seeds_of(task: Task) -> list[int]:
    """The recipe's seeds: the same at every origin, so that fitting again gives the same weights."""
    digests = (
        hashlib.sha256(f"{task.name}/{task.recipe}/{k}".encode()).digest() for k in range(task.training.num_seeds)
    )
    return [int.from_bytes(digest[:4], "big") for digest in digests]


def is_fit_of(kept: Manifest, reading: Reading, mixture: Mixture | None = None) -> bool:
    """Whether a kept fit was made from exactly the rows that the reading knows at its cutoff, seeds and mixture."""
    task, experts = reading.schema.task, kept.experts
    weights = {} if mixture is None else mixture.weights(task)
    if (kept.rows_digest, kept.seeds, kept.weights) != (reading.latest.digest, seeds_of(task), weights):
        return False
    if mixture is None or experts is None:
        return mixture is None and experts is None
    return experts.weight == mixture.weight and experts.is_blended == mixture.is_answering


def fit_origins(
    reading: Reading,
    origins: Sequence[int],
    device: torch.device,
    max_members: int,
    on_epoch: Callable[[EpochReport], None],
    *,
    encoded_mib: int = ENCODED_MIB,
    watches: bool = False,
) -> Iterator[Fit]:
    """Fit these origins × the recipe's seeds together, in cohorts of at most `max_members` (but at least one origin).

    If the encoded rows of a cohort take more than `encoded_mib`, each minibatch is encoded when it is drawn: the fits
    are the same, bit by bit. If it `watches`, epochs of pre-training tell the loss on withheld rows, and nothing else.

    Origins that differ in their number of classes, or in the size of their minibatches, cannot share a program and so
    form separate cohorts.
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
            part = same[start : start + per_cohort]
            yield from _fit_cohort(reading, part, device, on_epoch, encoded_mib=encoded_mib, watches=watches)


def _fit_cohort(
    reading: Reading,
    encoders: Sequence[Encoder],
    device: torch.device,
    on_epoch: Callable[[EpochReport], None],
    *,
    encoded_mib: int,
    watches: bool,
) -> Iterator[Fit]:
    task, seeds = reading.schema.task, seeds_of(reading.schema.task)
    prepared = prepare([(encoder, reading.fit_rows(encoder.cutoff)) for encoder in encoders], encoded_mib)
    watched = [_encode_withheld(reading, encoder) if watches else None for encoder in encoders]
    members = [
        Member(rows, encoder.vocabulary_sizes, encoder.num_outputs, seed, unread, unseen)
        for encoder, rows, unseen in zip(encoders, prepared, watched, strict=True)
        for seed, unread in zip(seeds, cycle(encoder.unread), strict=False)
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


def _encode_withheld(reading: Reading, encoder: Encoder) -> Encoded | None:
    """Withheld rows that the origin knows, evenly spaced, of classes that the fit knows; None if they are few."""
    known = reading.known(encoder.cutoff)
    withheld = known.select(known.withheld)
    if encoder.is_classification:
        withheld = withheld.select(class_positions(encoder.classes, withheld) >= 0)
    if len(withheld) < _FEWEST_WATCHED:
        return None
    return encode(encoder, withheld.select(slice(None, None, -(-len(withheld) // _MOST_WATCHED))))


def _fit_encoder(reading: Reading, origin: int) -> Encoder:
    return fit_encoder(reading.schema.task, reading.fit_rows(origin), origin)


def keep_fit(
    made: Fit,
    reading: Reading,
    store: FitStore,
    *,
    device: torch.device,
    git_sha: str,
    verdict: HorizonVerdict | None,
    calibration: Calibration = UNCALIBRATED,
    mixture: Mixture | None = None,
) -> Manifest:
    """Export a fit into its folder, and share it. An origin of a backtest has no verdict, and so no horizon.

    If the task has experts, LightGBM is fitted on the same rows, by as many threads as torch has. With a mixture that
    answers, its trees become part of the graph.
    """
    store.clear(made.origin)
    task = reading.schema.task
    known, rows = reading.known(made.origin), reading.fit_rows(made.origin)
    manifest = write_artefact(
        store.folder(made.origin),
        encoder=made.encoder,
        network=made.network,
        members=made.members,
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
        trees=_fit_trees(task, rows, made.origin) if has_experts(task) else None,
        weight=None if mixture is None else mixture.weight,
        weights={} if mixture is None else mixture.weights(task),
        late_gain=made.late_gain,
    )
    if verdict is not None and not task.is_classification:
        newest = clip_labels(task, rows.select(slice(-_NUM_OWN_ROWS, None)), rows)
        manifest = store.note_own_scores(made.origin, newest)
    store.share(made.origin)
    return manifest


def _fit_trees(task: Task, rows: EventColumns, origin: int) -> Gbdt:
    fit = fit_gbdt(
        task,
        rows,
        origin,
        seed=seeds_of(task)[0],
        threads=torch.get_num_threads(),
        most_rows=_MOST_BOOSTED_ROWS,
        most_leaves=MOST_LEAVES,
    )
    kept = cut_to(fit, _MOST_BYTES)
    if kept is not fit:
        rounds = {"num_rounds": fit.booster.current_iteration(), "num_kept": kept.booster.current_iteration()}
        log.info("expert.cut", task=task.name, **rounds, reason=f"more would take over {_MOST_BYTES >> 20} MiB a graph")
    return kept
