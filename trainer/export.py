"""An encoder and its cohort as ONNX graphs, built by hand from the weights.

A graph takes raw values and answers in the target's own terms (`contracts.manifest` names its inputs and outputs), so
any ONNX runtime gives the same answer and nothing about encoding is written twice for serving. It is `trainer.dataset`,
`trainer.layers` and `trainer.network` once more, operator by operator, with the same legend; tests hold them to each
other. As there, every layer maps a `Dual` to a `Dual`, so the same description gives the graph of values and that of
their rates.

Every activation of the cohort is `(E, n, width)`, as in torch. Features are the same for all members; they take their
axis E by a product with ones, the only way that needs no count of rows.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from trainer.dataset import DENSE_LIMIT, PERIODS, Encoder
from trainer.heads import answer_classes, answer_values
from trainer.layers import TReLU
from trainer.network import CohortNetwork
from trainer.nodes import DOUBLE, FLOAT, INT64, STRING, Dual, Nodes, rows_of

Weights = dict[str, NDArray[np.float32]]


def build_graph(
    encoder: Encoder, network: CohortNetwork, members: Sequence[int], temperature: float = 1.0
) -> onnx.ModelProto:
    """The averaged answer of these members, all fitted with this encoder, to raw rows.

    Classification averages probabilities p and answers with `p^(1/T) / Σ p^(1/T)`. Regression, which has no
    temperature, answers with the mean and the standard deviation of the members' equal mixture, `scale² = mean over
    members of (scale_e² + (mean_e − mean)²)`, in the target's own unit.
    """
    return _build(encoder, network, members, temperature, with_rate=False)


def build_rate_graph(
    encoder: Encoder, network: CohortNetwork, members: Sequence[int], temperature: float = 1.0
) -> onnx.ModelProto:
    """The same answer and its rate per second, with features and calendar held."""
    return _build(encoder, network, members, temperature, with_rate=True)


def _build(
    encoder: Encoder, network: CohortNetwork, members: Sequence[int], temperature: float, *, with_rate: bool
) -> onnx.ModelProto:
    nodes = Nodes()
    raw = _network(nodes, encoder, network, _weights(network, members), with_rate)
    if encoder.is_classification:
        answer_classes(nodes, encoder, raw, temperature)
        outputs = [rows_of(name, FLOAT, encoder.num_outputs) for name in ("probabilities", "rate")]
    else:
        answer_values(nodes, encoder, raw)
        outputs = [rows_of(name, FLOAT) for name in ("mean", "scale", "mean_rate", "scale_rate")]
    inputs = [rows_of("at", INT64)]
    if encoder.numbers:
        inputs.append(rows_of("numbers", DOUBLE, len(encoder.numbers)))
    if encoder.vocabularies:
        inputs.append(rows_of("categories", STRING, len(encoder.vocabularies)))
    return nodes.model(inputs, outputs if with_rate else outputs[: len(outputs) // 2])


def _weights(network: CohortNetwork, members: Sequence[int]) -> Weights:
    """Parameters by name, `(len(members), …)`, as `trainer.network` lists them."""
    chosen = list(members)
    return {name: tensor.detach()[chosen].float().cpu().numpy() for name, tensor in network.named_parameters()}


def _model_time(nodes: Nodes, encoder: Encoder) -> str:
    """u, `(n, 1)`."""
    lead = nodes.add("Cast", nodes.add("Sub", "at", np.int64(encoder.cutoff)), to=DOUBLE)
    u = nodes.add("Cast", nodes.add("Div", lead, np.float64(encoder.clock.span)), to=FLOAT)
    return nodes.add("Unsqueeze", u, np.array([1]))


def _calendar(nodes: Nodes, encoder: Encoder) -> str:
    """Sine and cosine of each phase, `(n, 2c)`: a cosine is the sine of a quarter of a turn more."""
    periods = np.repeat(np.array([PERIODS[name] for name in encoder.calendar], np.int64), 2)
    quarters = np.tile(np.array([0.0, math.pi / 2]), len(encoder.calendar))
    since = nodes.add("Mod", nodes.add("Unsqueeze", "at", np.array([1])), periods)
    turned = nodes.add("Mul", nodes.add("Cast", since, to=DOUBLE), 2 * math.pi / periods)
    return nodes.add("Cast", nodes.add("Sin", nodes.add("Add", turned, quarters)), to=FLOAT)


def _numbers(nodes: Nodes, encoder: Encoder) -> list[str]:
    """Standardised numbers `(n, p)` and, where there are optional ones, their indicators `(n, o)`."""
    constants = np.array([(number.median, number.mean, number.scale) for number in encoder.numbers])
    medians, means, scales = constants.T
    is_missing = nodes.add("IsNaN", "numbers")
    filled = nodes.add("Where", is_missing, medians, "numbers")
    scaled = nodes.add("Div", nodes.add("Sub", filled, means), scales)
    clipped = nodes.add("Clip", scaled, np.float64(-DENSE_LIMIT), np.float64(DENSE_LIMIT))
    columns = [nodes.add("Cast", clipped, to=FLOAT)]
    optional = np.flatnonzero([number.is_optional for number in encoder.numbers])
    if len(optional):
        chosen = nodes.add("Gather", is_missing, optional.astype(np.int64), axis=1)
        columns.append(nodes.add("Cast", chosen, to=FLOAT))
    return columns


def _embeddings(nodes: Nodes, encoder: Encoder, network: CohortNetwork, table: NDArray[np.float32]) -> str:
    """Embeddings of all categories side by side, `(E, n, q·a)`.

    One look-up serves every column: a value's number in the union of all vocabularies, 0 for a value in none, leads to
    its row in the table, column by column.
    """
    assert network.embedding is not None
    union = sorted({""}.union(*encoder.vocabularies))
    rows = np.empty((len(encoder.vocabularies), 1 + len(union)), np.int64)
    for j, (vocabulary, start) in enumerate(zip(encoder.vocabularies, network.embedding.starts.tolist(), strict=True)):
        code_of = {value: code for code, value in enumerate(vocabulary, start=1)}
        rows[j] = start + np.array([0, *(code_of.get(value, 0) for value in union)])
    numbers = nodes.add(
        "LabelEncoder",
        "categories",
        domain="ai.onnx.ml",
        keys_strings=union,
        values_int64s=list(range(1, 1 + len(union))),
        default_int64=0,
    )
    cells = nodes.add("Add", numbers, np.arange(rows.shape[0]) * rows.shape[1])
    found = nodes.add("Gather", table, nodes.add("Gather", rows.ravel(), cells), axis=1)
    return nodes.add("Reshape", found, np.array([table.shape[0], -1, rows.shape[0] * table.shape[2]]))


def _network(nodes: Nodes, encoder: Encoder, network: CohortNetwork, weights: Weights, with_rate: bool) -> Dual:
    """Raw outputs of the cohort, `(E, n, K)`, and their rate where it is asked for."""
    dense = _numbers(nodes, encoder) if encoder.numbers else []
    if network.time is not None and encoder.calendar:
        dense.append(_calendar(nodes, encoder))
    inputs = []
    if dense:
        shared = nodes.add("Concat", *dense, axis=1)
        inputs.append(nodes.add("Mul", shared, np.ones((len(weights["head.bias"]), 1, 1), np.float32)))
    if network.embedding is not None:
        inputs.append(_embeddings(nodes, encoder, network, weights["embedding.table"]))
    tau = Dual("", None)
    if network.time is not None:
        tau = _time2vec(nodes, _model_time(nodes, encoder), weights, network.time.num_linear, with_rate)
        inputs.append(tau.value)
    x = Dual(nodes.add("Concat", *inputs, axis=-1), tau.rate)
    num_held = network.architecture.num_inputs - network.architecture.time_width
    for i, activation in enumerate(network.activations):
        x = _linear(nodes, x, weights, f"hidden.{i}", num_held if i == 0 else 0)
        x = _trelu(nodes, x, tau, weights, f"activations.{i}") if isinstance(activation, TReLU) else _relu(nodes, x)
    raw = _linear(nodes, x, weights, "head")
    if with_rate and raw.rate is None:  # a time-oblivious network stands still
        return Dual(raw.value, nodes.add("Mul", raw.value, np.float32(0)))
    return raw


def _linear(nodes: Nodes, x: Dual, weights: Weights, name: str, num_held: int = 0) -> Dual:
    """`x·W + b`. The first `num_held` columns of x have no rate."""
    weight = nodes.hold(weights[f"{name}.weight"])
    product = nodes.add("MatMul", x.value, weight)
    value = nodes.add("Add", product, weights[f"{name}.bias"][:, None])
    if x.rate is None:
        return Dual(value, None)
    return Dual(value, nodes.add("MatMul", x.rate, weights[f"{name}.weight"][:, num_held:] if num_held else weight))


def _time2vec(nodes: Nodes, u: str, weights: Weights, num_linear: int, with_rate: bool) -> Dual:
    frequency, phase = weights["time.frequency"][:, None], weights["time.phase"][:, None]
    angle = nodes.add("Add", nodes.add("Mul", u, frequency), phase)
    value = _periodic(nodes, angle, num_linear, frequency.shape[2] - num_linear)
    if not with_rate:
        return Dual(value, None)
    is_periodic = (np.arange(frequency.shape[2]) >= num_linear).astype(np.float32)
    slope = nodes.add("Cos", nodes.add("Mul", angle, is_periodic))  # 1 for the linear entries
    return Dual(value, nodes.add("Mul", slope, frequency))


def _periodic(nodes: Nodes, angle: str, num_linear: int, num_sines: int) -> str:
    """The first entries as they are, the sine of the others."""
    if num_sines == 0:
        return angle
    if num_linear == 0:
        return nodes.add("Sin", angle)
    linear, periodic = nodes.add_many("Split", 2, angle, np.array([num_linear, num_sines]), axis=-1)
    return nodes.add("Concat", linear, nodes.add("Sin", periodic), axis=-1)


def _relu(nodes: Nodes, x: Dual) -> Dual:
    value = nodes.add("Relu", x.value)
    return Dual(value, None if x.rate is None else nodes.add("Mul", x.rate, nodes.add("Sign", value)))


def _trelu(nodes: Nodes, x: Dual, tau: Dual, weights: Weights, name: str) -> Dual:
    """`x + (h − 1)·short` with `short = min(x − g, 0)`, and `x′ + h′·short + (h − 1)·(x′ − g′)` where it is below 0."""
    hidden = _tanh(nodes, _linear(nodes, tau, weights, f"{name}.hidden"))
    for_slope, for_threshold = _halves(nodes, hidden, weights[f"{name}.hidden.bias"].shape[1] // 2)
    h = _linear(nodes, for_slope, weights, f"{name}.slope")
    less_one = nodes.add("Sub", h.value, np.float32(1))
    g = _linear(nodes, for_threshold, weights, f"{name}.threshold")
    short = nodes.add("Min", nodes.add("Sub", x.value, g.value), np.float32(0))
    value = nodes.add("Add", x.value, nodes.add("Mul", less_one, short))
    if x.rate is None or h.rate is None or g.rate is None:
        return Dual(value, None)
    towards = nodes.add("Mul", less_one, nodes.add("Sub", g.rate, x.rate))
    of_short = nodes.add("Mul", nodes.add("Sign", short), towards)
    of_slope = nodes.add("Mul", h.rate, short)
    return Dual(value, nodes.add("Add", x.rate, nodes.add("Add", of_slope, of_short)))


def _tanh(nodes: Nodes, x: Dual) -> Dual:
    value = nodes.add("Tanh", x.value)
    if x.rate is None:
        return Dual(value, None)
    return Dual(value, nodes.add("Mul", x.rate, nodes.add("Sub", np.float32(1), nodes.add("Mul", value, value))))


def _halves(nodes: Nodes, x: Dual, width: int) -> tuple[Dual, Dual]:
    sizes = nodes.hold(np.array([width, width]))
    first, second = nodes.add_many("Split", 2, x.value, sizes, axis=-1)
    if x.rate is None:
        return Dual(first, None), Dual(second, None)
    first_rate, second_rate = nodes.add_many("Split", 2, x.rate, sizes, axis=-1)
    return Dual(first, first_rate), Dual(second, second_rate)
