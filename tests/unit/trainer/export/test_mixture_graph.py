"""The graph of a mixture: network and LightGBM's trees in one answer, its rates, and what each expert says alone."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from contracts.manifest import graph_feed
from contracts.task import Task
from store.events.reading.columns import EventColumns
from tests.unit.trainer.export.exported_network import (
    CATEGORIES,
    CUTOFF,
    DAY,
    NUMBERS,
    graph_answers,
    make_network,
    make_rows,
    make_task,
    make_training,
)
from trainer.data.encoder import Encoder, fit_encoder
from trainer.export.artefact import torch_answers
from trainer.export.onnx_export import build_experts_graph, build_graph, build_rate_graph
from trainer.export.opened_artefact import open_graph, raw_categories
from trainer.export.tree_graph import Blend
from trainer.methods.gbdt import answer_gbdt, fit_gbdt
from trainer.network.network import CohortNetwork

MEMBERS = [0, 2]
WEIGHT = 0.7
SECOND = 1_000_000


@dataclass(frozen=True)
class Fitted:
    task: Task
    encoder: Encoder
    network: CohortNetwork
    blend: Blend
    rows: EventColumns

    @property
    def unit(self) -> float:
        return 1.0 if self.task.is_classification else self.encoder.label_unit.scale


@cache
def fitted(kind: str, label_form: str = "plain") -> Fitted:
    task = make_task(NUMBERS + CATEGORIES, kind, make_training(label_form=label_form, boosting={"learning_rate": 0.5}))
    known = make_rows(task, 1500)
    if task.is_classification:
        known = replace(known, labels=(known.categories[:, 0] % 3).astype(np.int32))
    else:
        known = replace(known, labels=5e4 + 100 * known.categories[:, 0] + 50 * (known.numbers[:, 0] > 20))
    encoder = fit_encoder(task, known, CUTOFF)
    trees = fit_gbdt(task, known, CUTOFF, seed=0, threads=1)
    rows = make_rows(task, 200, seed=1, end=CUTOFF + 50 * DAY)
    return Fitted(task, encoder, make_network(encoder, task.training, 3), Blend(trees, WEIGHT), rows)


# A regression has no temperature.
CASES = [
    ("classification", "plain", 1.0),
    ("classification", "plain", 1.6),
    ("regression", "plain", 1.0),
    ("regression", "log", 1.0),
]


@pytest.mark.parametrize(("kind", "form", "temperature"), CASES)
def test_the_graph_answers_as_torch_and_lightgbm_together(kind: str, form: str, temperature: float) -> None:
    of = fitted(kind, form)
    graph = build_graph(of.encoder, of.network, MEMBERS, temperature, blend=of.blend)
    found = graph_answers(graph, of.task, of.rows)
    expected = torch_answers(of.encoder, of.network, MEMBERS, of.rows, temperature, blend=of.blend)
    np.testing.assert_allclose(found / of.unit, expected / of.unit, rtol=2e-5 if form == "log" else 1e-6, atol=1e-5)
    alone = torch_answers(of.encoder, of.network, MEMBERS, of.rows, temperature)
    assert np.abs((expected - alone) / of.unit).max() > 0.1


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_the_mixture_is_the_weighted_mean_of_both_answers(kind: str) -> None:
    of = fitted(kind)
    ours = torch_answers(of.encoder, of.network, MEMBERS, of.rows)
    theirs = np.column_stack(answer_gbdt(of.blend.trees, of.rows, 1)).astype(np.float64)
    found = graph_answers(build_graph(of.encoder, of.network, MEMBERS, blend=of.blend), of.task, of.rows)
    centres = slice(None) if of.task.is_classification else slice(0, 1)
    expected = WEIGHT * ours[:, centres] + (1 - WEIGHT) * theirs[:, centres]
    np.testing.assert_allclose(found[:, centres] / of.unit, expected / of.unit, rtol=1e-6, atol=1e-5)
    if kind == "regression":
        spread = WEIGHT * (ours[:, 1] ** 2 + (ours[:, 0] - expected[:, 0]) ** 2)
        spread += (1 - WEIGHT) * (theirs[:, 1] ** 2 + (theirs[:, 0] - expected[:, 0]) ** 2)
        np.testing.assert_allclose(found[:, 1], np.sqrt(spread), rtol=1e-4)


def run(graph: onnx.ModelProto, task: Task, rows: EventColumns) -> list[NDArray[np.float32]]:
    feed = graph_feed(task, rows.at, rows.numbers, raw_categories(rows))
    found: list[NDArray[np.float32]] = open_graph(graph.SerializeToString()).run(None, feed)
    return found


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_the_graph_of_experts_says_what_each_answers_alone(kind: str) -> None:
    of = fitted(kind)
    found = run(build_experts_graph(of.encoder, of.network, MEMBERS, of.blend.trees), of.task, of.rows)
    ours = run(build_graph(of.encoder, of.network, MEMBERS), of.task, of.rows)
    theirs = answer_gbdt(of.blend.trees, of.rows, 1)
    for output, expected in zip(found, [*ours, *theirs], strict=True):
        np.testing.assert_allclose(output / of.unit, expected / of.unit, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("kind", "form", "temperature"), CASES)
def test_rates_of_the_mixture_are_those_of_the_network_in_it(kind: str, form: str, temperature: float) -> None:
    """A difference in time, in which trees stand still, divided by its length."""
    of = fitted(kind, form)
    values = run(build_rate_graph(of.encoder, of.network, MEMBERS, temperature, blend=of.blend), of.task, of.rows)
    half = len(values) // 2
    plain = run(build_graph(of.encoder, of.network, MEMBERS, temperature, blend=of.blend), of.task, of.rows)
    for value, expected in zip(values[:half], plain, strict=True):
        np.testing.assert_allclose(value / of.unit, expected / of.unit, rtol=1e-6, atol=1e-6)
    alone = run(build_rate_graph(of.encoder, of.network, MEMBERS, 1.0), of.task, of.rows)
    if temperature == 1:  # the rate of a weighted mean
        np.testing.assert_allclose(values[half], WEIGHT * alone[half], rtol=1e-5, atol=1e-12)
    assert all(np.isfinite(rate).all() for rate in values)
    if kind == "classification":
        scale = np.abs(values[1]).max()
        np.testing.assert_allclose(values[1].sum(axis=1) / scale, 0, atol=1e-5)
