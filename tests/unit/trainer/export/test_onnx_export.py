"""The graph contains encoder and cohort, and answers as they do."""

import json

import numpy as np
import pytest
import torch

from contracts.manifest import VOCABULARIES, graph_feed
from contracts.task import Feature, View
from tests.unit.trainer.export.exported_network import (
    CATEGORIES,
    CUTOFF,
    DAY,
    NUMBERS,
    assert_graph_is_torch,
    graph_answers,
    make_network,
    make_rows,
    make_task,
    make_training,
)
from trainer.data.encoder import encode, fit_encoder
from trainer.export.artefact import torch_answers
from trainer.export.onnx_export import build_graph
from trainer.export.opened_artefact import open_graph, raw_categories


@pytest.mark.parametrize("num_members", [1, 3, 4])
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("features", [NUMBERS, CATEGORIES, NUMBERS[:1] + CATEGORIES[:1], NUMBERS + CATEGORIES])
def test_graph_answers_as_torch_does(features: tuple[Feature, ...], kind: str, num_members: int) -> None:
    task = make_task(features, kind)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, num_members)
    graph = build_graph(encoder, network, range(num_members))
    session = open_graph(graph.SerializeToString())
    for num_rows in (1, 2, 257):
        rows = make_rows(task, num_rows, seed=num_rows, end=CUTOFF + 90 * DAY)
        found = np.column_stack(session.run(None, graph_feed(task, rows.at, rows.numbers, raw_categories(rows))))
        unit = encoder.label_unit.scale
        expected = torch_answers(encoder, network, range(num_members), rows)
        np.testing.assert_allclose(found / unit, expected / unit, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("features", [NUMBERS, NUMBERS + CATEGORIES])
def test_a_graph_says_which_categories_its_fit_knows(features: tuple[Feature, ...]) -> None:
    task = make_task(features)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    graph = build_graph(encoder, make_network(encoder, task.training, 2), [0, 1])
    metadata = open_graph(graph.SerializeToString()).get_modelmeta().custom_metadata_map
    assert json.loads(metadata.get(VOCABULARIES, "[]")) == [*map(list, encoder.vocabularies)]


NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NO_CUDA)])
def test_what_has_seen_one_row_on_any_device_is_exported_to_answer_any_number_on_the_cpu(device: str) -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2).to(device)
    row = make_rows(task, 1)
    there = torch_answers(encoder, network, [0, 1], row)
    network = network.cpu()  # as `trainer.evaluation.origin_fits` does
    np.testing.assert_allclose(graph_answers(build_graph(encoder, network, [0, 1]), task, row), there, atol=1e-5)
    for num_rows in (1, 2, 257):
        assert_graph_is_torch(task, encoder, network, [0, 1], make_rows(task, num_rows, seed=num_rows))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_trelu": 0},
        {"num_trelu": 1, "num_layers": 3},
        {"time_linear": 0},
        {"time_linear": 5},
        {"calendar": ()},
        {"calendar": ("year",)},
        {"number_form": "plain"},
        {"number_form": "piecewise", "calendar": (), "num_trelu": 0},
        {"views": ("plain", "last_day")},
        {"views": ("plain", "last_day"), "number_form": "plain", "calendar": (), "num_trelu": 0},
        {"views": ("last_week", "last_window"), "number_form": "quantile"},
    ],
)
def test_graph_answers_as_torch_does_for_every_architecture(changes: dict[str, object]) -> None:
    task = make_task(training=make_training(**changes))
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    assert_graph_is_torch(task, encoder, network, [0, 1], make_rows(task, 100, seed=1))


def test_graph_of_a_time_oblivious_network_answers_as_torch_does() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2, is_timed=False)
    assert_graph_is_torch(task, encoder, network, [0, 1], make_rows(task, 100, seed=1))


def test_graph_holds_the_chosen_members_of_a_cohort_whose_other_vocabularies_are_larger() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 3, other=(40, 30))
    assert_graph_is_torch(task, encoder, network, [3, 1], make_rows(task, 100, seed=1))


@pytest.mark.parametrize("end", [0, CUTOFF + 1, CUTOFF + 4000 * DAY])
@pytest.mark.parametrize("views", [("plain",), ("plain", "last_day")])
def test_graph_answers_as_torch_does_at_any_time(end: int, views: tuple[View, ...]) -> None:
    task = make_task(training=make_training(views=views))
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    rows = make_rows(task, 64, end=end)
    assert end > 0 or rows.at.max() < 0
    assert_graph_is_torch(task, encoder, network, [0, 1], rows)


@pytest.mark.parametrize("views", [("plain",), ("plain", "last_day")])
def test_graph_answers_as_torch_does_on_unseen_missing_and_absurd_values(views: tuple[View, ...]) -> None:
    task = make_task(training=make_training(views=views))
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    rows = make_rows(task, 6)
    rows.numbers[:] = [[np.nan, np.nan], [1e308, 1e38], [-1e308, 0.0], [np.inf, -np.inf], [5e-324, 1.0], [0.0, -0.0]]
    rows.categories[:, 0] = [0, 3, 4, 1, 2, 0]
    assert "rare" not in encoder.vocabularies[0]
    assert_graph_is_torch(task, encoder, network, [0, 1], rows)


def test_graph_knows_a_fit_without_any_known_category() -> None:
    task = make_task(CATEGORIES)
    encoder = fit_encoder(task, make_rows(task, 4), CUTOFF)
    assert encoder.vocabularies == ((), ())
    assert_graph_is_torch(task, encoder, make_network(encoder, task.training, 2), [0, 1], make_rows(task, 9))


def test_graph_answers_no_rows_with_no_answers() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    graph = build_graph(encoder, make_network(encoder, task.training, 2), [0, 1])
    assert graph_answers(graph, task, make_rows(task, 0)).shape == (0, 3)


def test_regression_answers_with_the_moments_of_the_mixture() -> None:
    task = make_task(NUMBERS, "regression")
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    found = graph_answers(build_graph(encoder, network, [0, 1]), task, make_rows(task, 1))
    standardised = (found[0] - [encoder.label_unit.mean, 0.0]) / encoder.label_unit.scale
    np.testing.assert_allclose(standardised, [2.0, 2**0.5], atol=1e-5)


def test_the_same_cohort_gives_the_same_bytes() -> None:
    task = make_task()
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    first, second = (build_graph(encoder, network, [0, 1]).SerializeToString() for _ in range(2))
    assert first == second


def test_encoding_and_answers_do_not_depend_on_the_batch() -> None:
    task = make_task()
    rows = make_rows(task, 40)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    whole = graph_answers(build_graph(encoder, network, [0, 1]), task, rows)
    alone = [
        graph_answers(build_graph(encoder, network, [0, 1]), task, rows.select(slice(i, i + 1)))[0] for i in (0, 39)
    ]
    np.testing.assert_allclose(whole[[0, 39]], alone, atol=1e-6)
    np.testing.assert_array_equal(encode(encoder, rows).dense[:7], encode(encoder, rows.select(slice(0, 7))).dense)
