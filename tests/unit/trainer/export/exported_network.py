"""Small tasks, rows and cohorts to export, and the check that a graph answers as its cohort does."""

from itertools import cycle
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from contracts.calibration import Calibration
from contracts.manifest import Manifest, graph_feed
from contracts.task import Feature, Target, Task, Training
from store.events.reading.columns import NEVER, EventColumns
from trainer.data.encoder import Encoder
from trainer.export.artefact import torch_answers, write_artefact
from trainer.export.onnx_export import build_graph
from trainer.export.opened_artefact import open_graph, raw_categories
from trainer.network.network import CohortNetwork, architecture

DAY = 86_400_000_000
CUTOFF = 16_000 * DAY
NUMBERS = (Feature(name="x", kind="number"), Feature(name="y", kind="number", optional=True))
CATEGORIES = (Feature(name="carrier", kind="category"), Feature(name="origin", kind="category", optional=True))
TRAINING = Training(width=16, trelu_width=4, time_width=5, time_linear=2, embedding=3)
TEMPERATURE = 1.7


def make_training(**changes: object) -> Training:
    """The recipe of these tests with some settings replaced."""
    return Training.model_validate(TRAINING.model_dump() | changes)


def make_task(
    features: tuple[Feature, ...] = NUMBERS + CATEGORIES, kind: str = "classification", training: Training = TRAINING
) -> Task:
    return Task.model_validate(
        {"name": "t", "features": features, "target": Target(name="z", kind=kind), "window": "P7D"}
        | {"training": training}
    )


def make_rows(task: Task, num_rows: int, seed: int = 0, end: int = CUTOFF) -> EventColumns:
    """Rows of the year before `end`: one number skewed and one often missing, one class and some values rare."""
    random = np.random.default_rng(seed)
    numbers = np.column_stack([random.lognormal(3, 2, num_rows), random.normal(-1e6, 1.0, num_rows)])
    numbers[random.random(num_rows) < 0.2, 1] = np.nan
    vocabularies = (("", "AA", "ÅÅ", "rare", "zz"), ("EWR", "JFK"))
    return EventColumns(
        at=np.sort(random.integers(end - 365 * DAY, end, num_rows)),
        known_at=np.zeros(num_rows, np.int64),
        superseded_at=np.full(num_rows, NEVER),
        numbers=numbers[:, : len(task.numbers)],
        categories=np.column_stack(
            [random.choice(5, num_rows, p=[0.3, 0.3, 0.3, 0.001, 0.099]), random.integers(0, 2, num_rows)]
        ).astype(np.int32)[:, : len(task.categories)],
        vocabularies=vocabularies[: len(task.categories)],
        labels=(
            random.integers(0, 3, num_rows).astype(np.int32)
            if task.is_classification
            else random.normal(5e4, 300.0, num_rows)
        ),
        classes=("no", "perhaps", "yes") if task.is_classification else (),
        withheld=np.zeros(num_rows, np.bool_),
    )


def make_network(
    encoder: Encoder, training: Training, num_members: int, *, is_timed: bool = True, other: tuple[int, ...] = ()
) -> CohortNetwork:
    """A cohort with every parameter moved from its start; `other`: vocabulary sizes of one more member, the first."""
    sizes = ([other] if other else []) + [encoder.vocabulary_sizes] * num_members
    num_dense, num_categories, num_positions = encoder.num_dense, len(encoder.vocabularies), encoder.num_positions
    shape = architecture(
        training,
        num_dense,
        num_categories,
        encoder.num_outputs,
        is_timed,
        num_positions=num_positions,
        unread=tuple(columns for columns, _ in zip(cycle(encoder.unread), sizes, strict=False)),
    )
    network = CohortNetwork(shape, sizes, range(len(sizes)))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return network


def write(folder: Path, task: Task, encoder: Encoder, network: CohortNetwork, *, horizon: int = 2) -> Manifest:
    """The artefact of a cohort's first two members, as if fitted on 900 rows."""
    rows = make_rows(task, 900)
    return write_artefact(
        folder,
        encoder=encoder,
        network=network,
        members=[0, 1],
        rows=rows,
        task=task,
        schema_id=1,
        horizon=horizon,
        ages=[],
        calibration=Calibration(TEMPERATURE if task.is_classification else 1.0, []),
        num_rows=len(rows),
        rows_digest=rows.digest,
        read_at=encoder.cutoff,
        seeds=[0, 1],
        device="cpu",
        git_sha="0" * 40,
    )


def graph_answers(graph: onnx.ModelProto, task: Task, rows: EventColumns) -> NDArray[np.float64]:
    feed = graph_feed(task, rows.at, rows.numbers, raw_categories(rows))
    return np.column_stack(open_graph(graph.SerializeToString()).run(None, feed)).astype(np.float64)


def assert_graph_is_torch(
    task: Task, encoder: Encoder, network: CohortNetwork, members: list[int], rows: EventColumns
) -> None:
    found = graph_answers(build_graph(encoder, network, members), task, rows)
    expected = torch_answers(encoder, network, members, rows)
    unit = 1.0 if task.is_classification else encoder.label_unit.scale
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found / unit, expected / unit, rtol=1e-7, atol=1e-5)
