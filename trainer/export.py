"""An encoder and its cohort as one ONNX graph, built by hand from the weights.

The graph takes raw values and answers in the target's own terms (`contracts.manifest` names its inputs and outputs), so
any ONNX runtime gives the same answer and nothing about encoding is written twice for serving. It is `trainer.dataset`
and `trainer.network` once more, operator by operator, with the same legend; tests hold the two to each other.

Every activation of the cohort is `(E, n, width)`, as in torch. Features are the same for all members; they take their
axis E by a product with ones, the only way that needs no count of rows.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from trainer.dataset import DENSE_LIMIT, PERIODS, Encoder
from trainer.network import CohortNetwork, TReLU
from trainer.objectives import LOG_SCALE_LIMIT

# Old enough for every ONNX Runtime that we allow, new enough for reductions over an axis that is an input.
_OPSETS = (helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3))
_IR_VERSION = 8

Weights = dict[str, NDArray[np.float32]]


class _Graph:
    """Nodes and constants in the order in which they are asked for. A value is known by its name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str | NDArray[Any] | np.generic, **attributes: Any) -> str:
        """One node with one output; arrays among its inputs become constants."""
        (output,) = self.add_many(operator, 1, *inputs, **attributes)
        return output

    def add_many(
        self, operator: str, num_outputs: int, *inputs: str | NDArray[Any] | np.generic, **attributes: Any
    ) -> list[str]:
        """One node with several outputs."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        outputs = [f"{operator}_{len(self.nodes)}_{k}" for k in range(num_outputs)]
        self.nodes.append(helper.make_node(operator, names, outputs, **attributes))
        return outputs

    def name(self, value: str, output: str) -> None:
        """Call a value by the name of an output of the graph."""
        self.nodes.append(helper.make_node("Identity", [value], [output]))

    def _constant(self, value: NDArray[Any] | np.generic) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def build_graph(encoder: Encoder, network: CohortNetwork, members: Sequence[int]) -> onnx.ModelProto:
    """The averaged answer of these members, all fitted with this encoder, to raw rows.

    Classification averages probabilities. Regression answers with the mean and the standard deviation of the members'
    equal mixture, `scale² = mean over members of (scale_e² + (mean_e − mean)²)`, in the target's own unit.
    """
    graph = _Graph()
    weights = _weights(network, members)
    raw = _network(graph, encoder, network, weights, len(members))
    if encoder.is_classification:
        _add_probabilities(graph, raw)
        outputs = [_tensor("probabilities", TensorProto.FLOAT, encoder.num_outputs)]
    else:
        _add_mean_and_scale(graph, encoder, raw)
        outputs = [_tensor("mean", TensorProto.FLOAT), _tensor("scale", TensorProto.FLOAT)]
    inputs = [_tensor("at", TensorProto.INT64)]
    if encoder.numbers:
        inputs.append(_tensor("numbers", TensorProto.DOUBLE, len(encoder.numbers)))
    if encoder.vocabularies:
        inputs.append(_tensor("categories", TensorProto.STRING, len(encoder.vocabularies)))
    body = helper.make_graph(graph.nodes, "morrow", inputs, outputs, graph.constants)
    model = helper.make_model(body, opset_imports=_OPSETS, ir_version=_IR_VERSION, producer_name="morrow")
    onnx.checker.check_model(model, full_check=True)
    return model


def _tensor(name: str, element: int, *columns: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, ["n", *columns])


def _weights(network: CohortNetwork, members: Sequence[int]) -> Weights:
    """Parameters by name, `(len(members), …)`, as `trainer.network` lists them."""
    chosen = list(members)
    return {name: tensor.detach()[chosen].float().cpu().numpy() for name, tensor in network.named_parameters()}


def _model_time(graph: _Graph, encoder: Encoder) -> str:
    """u, `(n, 1)`."""
    lead = graph.add("Cast", graph.add("Sub", "at", np.int64(encoder.cutoff)), to=TensorProto.DOUBLE)
    u = graph.add("Cast", graph.add("Div", lead, np.float64(encoder.clock.span)), to=TensorProto.FLOAT)
    return graph.add("Unsqueeze", u, np.array([1]))


def _calendar(graph: _Graph, encoder: Encoder) -> str:
    """Sine and cosine of each phase, `(n, 2c)`: a cosine is the sine of a quarter of a turn more."""
    periods = np.repeat(np.array([PERIODS[name] for name in encoder.calendar], np.int64), 2)
    quarters = np.tile(np.array([0.0, math.pi / 2]), len(encoder.calendar))
    since = graph.add("Mod", graph.add("Unsqueeze", "at", np.array([1])), periods)
    turned = graph.add("Mul", graph.add("Cast", since, to=TensorProto.DOUBLE), 2 * math.pi / periods)
    return graph.add("Cast", graph.add("Sin", graph.add("Add", turned, quarters)), to=TensorProto.FLOAT)


def _numbers(graph: _Graph, encoder: Encoder) -> list[str]:
    """Standardised numbers `(n, p)` and, where there are optional ones, their indicators `(n, o)`."""
    constants = np.array([(number.median, number.mean, number.scale) for number in encoder.numbers])
    medians, means, scales = constants.T
    is_missing = graph.add("IsNaN", "numbers")
    filled = graph.add("Where", is_missing, medians, "numbers")
    scaled = graph.add("Div", graph.add("Sub", filled, means), scales)
    clipped = graph.add("Clip", scaled, np.float64(-DENSE_LIMIT), np.float64(DENSE_LIMIT))
    columns = [graph.add("Cast", clipped, to=TensorProto.FLOAT)]
    optional = np.flatnonzero([number.is_optional for number in encoder.numbers])
    if len(optional):
        chosen = graph.add("Gather", is_missing, optional.astype(np.int64), axis=1)
        columns.append(graph.add("Cast", chosen, to=TensorProto.FLOAT))
    return columns


def _embeddings(graph: _Graph, encoder: Encoder, network: CohortNetwork, table: NDArray[np.float32]) -> str:
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
    numbers = graph.add(
        "LabelEncoder",
        "categories",
        domain="ai.onnx.ml",
        keys_strings=union,
        values_int64s=list(range(1, 1 + len(union))),
        default_int64=0,
    )
    cells = graph.add("Add", numbers, np.arange(rows.shape[0]) * rows.shape[1])
    found = graph.add("Gather", table, graph.add("Gather", rows.ravel(), cells), axis=1)
    return graph.add("Reshape", found, np.array([table.shape[0], -1, rows.shape[0] * table.shape[2]]))


def _network(graph: _Graph, encoder: Encoder, network: CohortNetwork, weights: Weights, num_members: int) -> str:
    """Raw outputs of the cohort, `(E, n, K)`."""
    dense = _numbers(graph, encoder) if encoder.numbers else []
    if network.time is not None and encoder.calendar:
        dense.append(_calendar(graph, encoder))
    inputs = []
    if dense:
        shared = graph.add("Concat", *dense, axis=1)
        inputs.append(graph.add("Mul", shared, np.ones((num_members, 1, 1), np.float32)))
    if network.embedding is not None:
        inputs.append(_embeddings(graph, encoder, network, weights["embedding.table"]))
    tau = ""
    if network.time is not None:
        tau = _time2vec(graph, _model_time(graph, encoder), weights, network.time.num_linear)
        inputs.append(tau)
    x = graph.add("Concat", *inputs, axis=-1)
    for i, activation in enumerate(network.activations):
        x = _linear(graph, x, weights, f"hidden.{i}")
        if isinstance(activation, TReLU):
            x = _trelu(graph, x, tau, weights, f"activations.{i}")
        else:
            x = graph.add("Relu", x)
    return _linear(graph, x, weights, "head")


def _linear(graph: _Graph, x: str, weights: Weights, name: str) -> str:
    product = graph.add("MatMul", x, weights[f"{name}.weight"])
    return graph.add("Add", product, weights[f"{name}.bias"][:, None])


def _time2vec(graph: _Graph, u: str, weights: Weights, num_linear: int) -> str:
    frequency, phase = weights["time.frequency"][:, None], weights["time.phase"][:, None]
    angle = graph.add("Add", graph.add("Mul", u, frequency), phase)
    num_sines = frequency.shape[2] - num_linear
    if num_sines == 0:
        return angle
    if num_linear == 0:
        return graph.add("Sin", angle)
    linear, periodic = graph.add_many("Split", 2, angle, np.array([num_linear, num_sines]), axis=-1)
    return graph.add("Concat", linear, graph.add("Sin", periodic), axis=-1)


def _trelu(graph: _Graph, x: str, tau: str, weights: Weights, name: str) -> str:
    """`x + (h − 1)·min(x − g, 0)`."""
    hidden = graph.add("Tanh", _linear(graph, tau, weights, f"{name}.hidden"))
    width = weights[f"{name}.hidden.bias"].shape[1] // 2
    for_slope, for_threshold = graph.add_many("Split", 2, hidden, np.array([width, width]), axis=-1)
    slope = graph.add("Sub", _linear(graph, for_slope, weights, f"{name}.slope"), np.float32(1))
    threshold = _linear(graph, for_threshold, weights, f"{name}.threshold")
    short = graph.add("Min", graph.add("Sub", x, threshold), np.float32(0))
    return graph.add("Add", x, graph.add("Mul", slope, short))


def _add_probabilities(graph: _Graph, raw: str) -> None:
    probabilities = graph.add("Softmax", raw, axis=-1)
    graph.name(graph.add("ReduceMean", probabilities, np.array([0]), keepdims=0), "probabilities")


def _add_mean_and_scale(graph: _Graph, encoder: Encoder, raw: str) -> None:
    """Moments of the mixture. In double, because the target's unit may be far from 1."""
    mean_of_each, raw_log_scale = graph.add_many("Split", 2, raw, np.array([1, 1]), axis=-1)
    squashed = graph.add("Tanh", graph.add("Div", raw_log_scale, np.float32(LOG_SCALE_LIMIT)))
    log_scale = graph.add("Mul", squashed, np.float32(LOG_SCALE_LIMIT))
    means = graph.add("Cast", mean_of_each, to=TensorProto.DOUBLE)
    scales = graph.add("Cast", graph.add("Exp", log_scale), to=TensorProto.DOUBLE)
    members = np.array([0])
    mean = graph.add("ReduceMean", means, members)
    apart = graph.add("Sub", means, mean)
    squares = graph.add("Add", graph.add("Mul", scales, scales), graph.add("Mul", apart, apart))
    scale = graph.add("Sqrt", graph.add("ReduceMean", squares, members))
    unit = np.float64(encoder.label_scale)
    in_unit = graph.add("Add", graph.add("Mul", mean, unit), np.float64(encoder.label_mean))
    for value, output in ((in_unit, "mean"), (graph.add("Mul", scale, unit), "scale")):
        flat = graph.add("Reshape", value, np.array([-1]))
        graph.name(graph.add("Cast", flat, to=TensorProto.FLOAT), output)
