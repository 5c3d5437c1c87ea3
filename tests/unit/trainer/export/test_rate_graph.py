"""The rate graph carries torch's dual pass through average, temperature and mixture; temperature gives p^(1/T)."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from contracts.manifest import graph_feed
from contracts.task import Task
from store.events.reading.columns import EventColumns
from tests.unit.trainer.export.exported_network import (
    CUTOFF,
    DAY,
    assert_graph_is_torch,
    make_network,
    make_rows,
    make_task,
    make_training,
)
from trainer.data.encoder import Encoder, encode, fit_encoder
from trainer.export.artefact import torch_answers
from trainer.export.onnx_export import build_graph, build_rate_graph
from trainer.export.opened_artefact import open_graph, raw_categories
from trainer.network.losses import LOG_SCALE_LIMIT
from trainer.network.network import CohortNetwork

# torch.func.jvp itself calls deprecated functions of torch.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

KINDS = ["classification", "regression"]
OTHER_SHAPES = [
    {"time_linear": 0},
    {"time_linear": 5},
    {"num_layers": 3, "num_trelu": 1},
    {"num_trelu": 0},
    {"calendar": ()},
    {"label_form": "log"},
    {"views": ("plain", "last_day"), "number_form": "piecewise"},
]


def run(graph: onnx.ModelProto, task: Task, rows: EventColumns) -> list[NDArray[np.float64]]:
    """The graph's outputs, each as `(n, K)`."""
    feed = graph_feed(task, rows.at, rows.numbers, raw_categories(rows))
    found = open_graph(graph.SerializeToString()).run(None, feed)
    return [output.astype(np.float64).reshape(len(rows), *output.shape[1:] or (1,)) for output in found]


def fitted(kind: str, **changes: object) -> tuple[Task, Encoder, CohortNetwork]:
    training = make_training(**changes)
    task = make_task(kind=kind, training=training)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    return task, encoder, make_network(encoder, training, 3)


def double_pass(
    encoder: Encoder, network: CohortNetwork, rows: EventColumns, u: NDArray[np.float64]
) -> tuple[Tensor, Tensor]:
    """`network.dual` in float64, `(E, n, K)`, at model times `u` with the calendar that the rows have."""
    encoded = encode(encoder, rows)
    members = network.num_members
    double = network.select(range(members)).double()
    dense = torch.from_numpy(encoded.dense).double().expand(members, -1, -1)
    codes = torch.from_numpy(encoded.codes).expand(members, -1, -1)
    with torch.no_grad():
        return double.dual(dense, codes, torch.from_numpy(u).expand(members, -1))


def shares(raw: Tensor, temperature: float) -> Tensor:
    """Tempered mean probabilities `(n, C)` of logits `(E, n, C)`."""
    powered = raw.softmax(-1).mean(0) ** (1 / temperature)
    return powered / powered.sum(-1, keepdim=True)


def moments(raw: Tensor, encoder: Encoder) -> tuple[Tensor, Tensor]:
    """Mean and scale `(n,)` of the mixture of raw outputs `(E, n, 2)`."""
    means = raw[..., 0]
    scales = (LOG_SCALE_LIMIT * (raw[..., 1] / LOG_SCALE_LIMIT).tanh()).exp()
    mean = means.mean(0)
    scale = (scales**2 + (means - mean) ** 2).mean(0).sqrt()
    mean, scale = mean * encoder.label_unit.scale + encoder.label_unit.mean, scale * encoder.label_unit.scale
    return (mean, scale) if encoder.label_unit.floor is None else (mean.exp(), scale * mean.exp())


def expected_rates(
    encoder: Encoder, network: CohortNetwork, rows: EventColumns, temperature: float
) -> list[NDArray[np.float64]]:
    """Rates per second by the chain rule, from the dual pass in float64."""
    u = (rows.at - encoder.cutoff) / encoder.clock.span
    raw, raw_rate = double_pass(encoder, network, rows, u)

    def answers(raw: Tensor) -> tuple[Tensor, ...]:
        return (shares(raw, temperature),) if encoder.is_classification else moments(raw, encoder)

    rates: tuple[Tensor, ...] = torch.func.jvp(answers, (raw,), (raw_rate,))[1]
    per_second = 1e6 / encoder.clock.span
    return [(rate * per_second).numpy().reshape(len(rows), -1) for rate in rates]


def assert_close_to_scale(found: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    """Within a thousandth of the rates' own scale."""
    scale = np.abs(expected).max()
    assert scale > 0
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-3)


@pytest.mark.parametrize("changes", [{}, *OTHER_SHAPES], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.4, 2.5])
def test_rates_are_the_dual_pass_of_torch(kind: str, temperature: float, changes: dict[str, object]) -> None:
    task, encoder, network = fitted(kind, **changes)
    rows = make_rows(task, 200, seed=1, end=CUTOFF + 90 * DAY)
    graph = build_rate_graph(encoder, network, range(3), temperature)
    num_values = 1 if task.is_classification else 2
    found = run(graph, task, rows)[num_values:]
    for rate, expected in zip(found, expected_rates(encoder, network, rows, temperature), strict=True):
        assert_close_to_scale(rate, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_rates_are_central_differences_of_the_value_graph_where_there_is_no_calendar(
    kind: str, temperature: float
) -> None:
    task, encoder, network = fitted(kind, calendar=(), number_form="plain")  # few weights, so values stay small
    encoder = replace(
        encoder, label_unit=replace(encoder.label_unit, mean=0.0)
    )  # so that float32 resolves small differences
    rows = make_rows(task, 400, seed=2, end=CUTOFF + 60 * DAY)
    step = encoder.clock.span // 1000
    values = build_graph(encoder, network, range(3), temperature)
    rates = build_rate_graph(encoder, network, range(3), temperature)
    later, sooner = replace(rows, at=rows.at + step), replace(rows, at=rows.at - step)
    after, before = run(values, task, later), run(values, task, sooner)
    rate, rate_after, rate_before = (run(rates, task, given)[len(after) :] for given in (rows, later, sooner))
    for k in range(len(after)):
        scale = np.abs(rate[k]).max()
        difference = (after[k] - before[k]) / (2 * step / 1e6)
        # If a row crosses a kink of a TReLU between the two moments, a difference spans two slopes.
        is_smooth = (np.abs(rate_after[k] - rate_before[k]) < 2e-3 * scale).all(axis=1)
        assert is_smooth.mean() > 0.6
        assert (np.abs(rate[k] - difference)[is_smooth] < 1e-3 * scale).all()
        assert np.quantile(np.abs(rate[k] - difference), 0.9) < 1e-2 * scale


@pytest.mark.parametrize("kind", KINDS)
def test_rates_hold_the_calendar_that_the_value_graph_moves(kind: str) -> None:
    task, encoder, network = fitted(kind)
    rows = make_rows(task, 200, seed=3, end=CUTOFF + 60 * DAY)
    u, step = (rows.at - encoder.cutoff) / encoder.clock.span, 1e-6

    def held(shift: float) -> list[NDArray[np.float64]]:
        raw, _ = double_pass(encoder, network, rows, u + shift)
        answers = (shares(raw, 1.3),) if task.is_classification else moments(raw, encoder)
        return [answer.numpy().reshape(len(rows), -1) for answer in answers]

    rates = run(build_rate_graph(encoder, network, range(3), 1.3), task, rows)
    rates = rates[len(rates) // 2 :]
    for rate, after, before in zip(rates, held(step), held(-step), strict=True):
        expected = (after - before) / (2 * step) * (1e6 / encoder.clock.span)
        assert_close_to_scale(rate, expected)
        hour = 3_600_000_000
        values = build_graph(encoder, network, range(3), 1.3)
        k = [array is rate for array in rates].index(True)
        moved = run(values, task, replace(rows, at=rows.at + hour))[k] - run(values, task, rows)[k]
        assert np.abs(moved / 3600 - expected).max() > 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_oblivious_network_stands_still(kind: str) -> None:
    task = make_task(kind=kind)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2, is_timed=False)
    rows = make_rows(task, 50, seed=1)
    found = run(build_rate_graph(encoder, network, [0, 1], 1.5), task, rows)
    for rate in found[len(found) // 2 :]:
        np.testing.assert_array_equal(rate, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_graph_gives_the_values_of_the_value_graph(kind: str) -> None:
    task, encoder, network = fitted(kind)
    for num_rows in (0, 1, 130):
        rows = make_rows(task, num_rows, seed=4, end=CUTOFF + 30 * DAY)
        values = run(build_graph(encoder, network, [2, 0], 1.4), task, rows)
        both = run(build_rate_graph(encoder, network, [2, 0], 1.4), task, rows)
        assert len(both) == 2 * len(values)
        for value, again in zip(values, both, strict=False):
            np.testing.assert_allclose(again, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.05, 0.6, 1.0, 3.0, 20.0])
def test_a_tempered_graph_answers_as_torch_does(temperature: float) -> None:
    task, encoder, network = fitted("classification")
    rows = make_rows(task, 300, seed=5, end=CUTOFF + 30 * DAY)
    (found,) = run(build_graph(encoder, network, [0, 2], temperature), task, rows)
    expected = torch_answers(encoder, network, [0, 2], rows, temperature)
    plain = torch_answers(encoder, network, [0, 2], rows) ** (1 / temperature)
    np.testing.assert_allclose(expected, plain / plain.sum(1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))


def test_a_class_that_is_impossible_has_probability_and_rate_zero_at_any_temperature() -> None:
    task, encoder, network = fitted("classification")
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([1000.0, 0.0, -1000.0]).expand(3, -1))
    rows = make_rows(task, 5)
    for temperature in (0.1, 1.0, 10.0):
        probabilities, rates = run(build_rate_graph(encoder, network, range(3), temperature), task, rows)
        np.testing.assert_array_equal(probabilities, [[1.0, 0.0, 0.0]] * 5)
        np.testing.assert_array_equal(rates, 0)


def test_a_temperature_of_one_adds_nothing_to_the_graph() -> None:
    task, encoder, network = fitted("classification")
    plain, same, other = (build_graph(encoder, network, [0], *given) for given in ((), (1.0,), (1.1,)))
    assert plain.SerializeToString() == same.SerializeToString()
    assert len(other.graph.node) == len(plain.graph.node) + 2
    assert_graph_is_torch(task, encoder, network, [0], make_rows(task, 20))
