"""A released model as files: graphs, manifest, and a probe that proves on loading that they are what was fitted.

The probe's answers come from torch, and from LightGBM if its trees answer too. If a loaded graph gives the same
answers, it agrees with them on rows like the fit's, on unseen values and on missing values. The probe's rows are
synthetic: a version outlives the events that it was trained on, and erased values must not survive in its manifest or
in the input example that MLflow shows.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from contracts.calibration import Calibration
from contracts.clock import Clock
from contracts.manifest import (
    EXPERTS_FILE,
    FORMAT_VERSION,
    GRAPH_FILE,
    MANIFEST_FILE,
    RATE_FILE,
    AgeError,
    Experts,
    Manifest,
    Probe,
    checksum,
    encode_manifest,
)
from contracts.quality.far_values import find_gaps
from contracts.task import Task
from store.events.reading.columns import NEVER, EventColumns
from trainer.data.encoder import Encoder, encode
from trainer.data.labels import clip_labels, label_bounds
from trainer.data.windows import newest_window
from trainer.export.onnx_export import build_experts_graph, build_graph, build_rate_graph
from trainer.export.opened_artefact import raw_categories
from trainer.export.tree_graph import Blend
from trainer.methods.gbdt import Gbdt, answer_gbdt, mix_answers
from trainer.methods.naive_answer import naive_answer
from trainer.network.losses import log_scale
from trainer.network.network import CohortNetwork
from trainer.network.training_loop import outputs

NUM_PROBE_ROWS = 16
_SEED = 0
_MISSING_SHARE = 0.2
# Beyond any real amount; even there, a graph must answer as its network does.
_FARTHEST = 1e300


def torch_answers(
    encoder: Encoder,
    network: CohortNetwork,
    members: Sequence[int],
    rows: EventColumns,
    temperature: float = 1.0,
    *,
    blend: Blend | None = None,
) -> NDArray[np.float64]:
    """The answers that the graph of these members must give: probabilities `(n, C)`, or mean and scale `(n, 2)`."""
    answers = _answers_alone(encoder, network, members, rows)
    if blend is not None:
        theirs = answer_gbdt(blend.trees, rows, 1)
        ours = [answers] if encoder.is_classification else [*answers.T]
        answers = np.column_stack(mix_answers(ours, theirs, blend.weight))
    if encoder.is_classification and temperature != 1:
        tempered: NDArray[np.float64] = (torch.from_numpy(answers).log() / temperature).softmax(-1).numpy()
        return tempered
    return answers


def _answers_alone(
    encoder: Encoder, network: CohortNetwork, members: Sequence[int], rows: EventColumns
) -> NDArray[np.float64]:
    raw = torch.from_numpy(outputs(network, encode(encoder, rows), members)).double()
    if encoder.is_classification:
        shares: NDArray[np.float64] = raw.softmax(-1).mean(0).numpy()
        return shares
    means, scales = raw[..., 0], log_scale(raw[..., 1]).exp()
    mean = means.mean(0)
    scale = (scales**2 + (means - mean) ** 2).mean(0).sqrt()
    in_unit = encoder.label_unit.means(mean.numpy())
    return np.column_stack([in_unit, encoder.label_unit.scales(scale.numpy(), in_unit)])


def make_probe(
    encoder: Encoder,
    network: CohortNetwork,
    members: Sequence[int],
    trained_from: int,
    temperature: float = 1.0,
    *,
    blend: Blend | None = None,
) -> Probe:
    """A probe of synthetic rows from `trained_from` (microseconds) on.

    The last two rows are one at the cutoff with unseen categories, and one a window later with all values missing.
    """
    rows = _synthetic_rows(encoder, trained_from)
    return Probe(
        at=rows.at.tolist(),
        numbers=[[None if np.isnan(value) else value for value in row] for row in rows.numbers.tolist()],
        categories=raw_categories(rows).tolist(),
        outputs=torch_answers(encoder, network, members, rows, temperature, blend=blend).tolist(),
    )


def _synthetic_rows(encoder: Encoder, trained_from: int) -> EventColumns:
    """Rows of independent values, drawn from the encoder's mean and scale of a number, or from its vocabulary."""
    count, rng = NUM_PROBE_ROWS + 2, np.random.default_rng(_SEED)
    at = np.linspace(trained_from, encoder.cutoff, NUM_PROBE_ROWS, endpoint=False).astype(np.int64)
    numbers = np.empty((count, len(encoder.numbers)))
    for j, number in enumerate(encoder.numbers):
        drawn = (number.mean + number.scale * rng.standard_normal(count)).clip(-_FARTHEST, _FARTHEST)
        numbers[:, j] = np.where((rng.random(count) < _MISSING_SHARE) & number.is_optional, np.nan, drawn)
    num_values = np.array([len(vocabulary) for vocabulary in encoder.vocabularies], np.int32)
    categories = rng.integers(0, np.maximum(num_values, 1), (count, len(num_values)), np.int32)
    categories[-2:] = num_values, num_values + 1
    numbers[-1] = np.nan
    moments = np.array([*at, encoder.cutoff, encoder.cutoff + encoder.clock.window], np.int64)
    return EventColumns(
        at=moments,
        known_at=moments,
        superseded_at=np.full(count, NEVER),
        numbers=numbers,
        categories=categories,
        vocabularies=tuple((*vocabulary, _unseen(vocabulary), "") for vocabulary in encoder.vocabularies),
        labels=np.zeros(count, np.int32) if encoder.is_classification else np.zeros(count),
        classes=encoder.classes,
        withheld=np.zeros(count, np.bool_),
    )


def _find_unsupported(rows: EventColumns, clock: Clock, horizon: int) -> list[tuple[int, int]]:
    """The times in long gaps between rows for which nothing speaks; moments in microseconds.

    The error matrix validates as many windows after the newest rows as the horizon has. So those windows after the last
    row before a gap are left out, as is the window of the first row after it.
    """
    bounds = (
        (clock.window_start(gap.last) + (1 + horizon) * clock.window, clock.window_start(gap.first))
        for gap in find_gaps(rows.at, clock.window)
    )
    return [(begin, end) for begin, end in bounds if begin < end]


def _unseen(vocabulary: Sequence[str]) -> str:
    """A value longer than any in the vocabulary."""
    return "?" * (1 + max(map(len, vocabulary), default=0))


def write_artefact(
    folder: Path,
    *,
    encoder: Encoder,
    network: CohortNetwork,
    members: Sequence[int],
    rows: EventColumns,
    task: Task,
    schema_id: int,
    horizon: int,
    ages: Sequence[AgeError],
    calibration: Calibration,
    num_rows: int,
    rows_digest: str,
    read_at: int,
    seeds: Sequence[int],
    device: str,
    git_sha: str,
    trees: Gbdt | None = None,
    weight: float | None = None,
    weights: Mapping[str, float] = {},
    late_gain: float | None = None,
) -> Manifest:
    """Write graphs and manifest into `folder`, which appears whole or not at all and replaces the rest of a killed try.

    With `trees` the graph of experts is written too. The version answers with the mixture if its `weights` are given;
    `weight` is then that of the network.

    `rows` are those of the fit, at least one. `num_rows` and `rows_digest` count all rows known at the cutoff, withheld
    rows included. Both graphs have the temperature of `calibration`. Moments in microseconds; `horizon` in windows.
    """
    temperature, trained_from = calibration.temperature, int(rows.at[0])
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    answering = Blend(trees, weight) if weights and trees is not None and weight is not None else None
    for name, build in ((GRAPH_FILE, build_graph), (RATE_FILE, build_rate_graph)):
        (partial / name).write_bytes(build(encoder, network, members, temperature, blend=answering).SerializeToString())
    experts = None
    if trees is not None:
        graph = build_experts_graph(encoder, network, members, trees)
        (partial / EXPERTS_FILE).write_bytes(graph.SerializeToString())
        experts = Experts(checksum(partial / EXPERTS_FILE), weight, is_blended=answering is not None)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        task=task.model_dump(mode="json"),
        schema_id=schema_id,
        recipe=task.recipe,
        classes=list(encoder.classes),
        trained_from=trained_from,
        newest=int(rows.at.max()),
        cutoff=encoder.cutoff,
        window=encoder.clock.window,
        horizon=horizon,
        error_name=task.error_name,
        ages=list(ages),
        calibration=calibration,
        naive=naive_answer(task, clip_labels(task, newest_window(rows, task.clock), rows), encoder.classes),
        label_bounds=label_bounds(task, rows),
        num_rows=num_rows,
        rows_digest=rows_digest,
        read_at=read_at,
        seeds=list(seeds),
        batch_size=task.training.rows_per_minibatch(len(rows)),
        weights=dict(weights),
        experts=experts,
        late_gain=late_gain,
        gaps=_find_unsupported(rows, encoder.clock, horizon),
        device=device,
        git_sha=git_sha,
        checksums={name: checksum(partial / name) for name in (GRAPH_FILE, RATE_FILE)},
        probe=make_probe(encoder, network, members, trained_from, temperature, blend=answering),
    )
    (partial / MANIFEST_FILE).write_bytes(encode_manifest(manifest))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return manifest
