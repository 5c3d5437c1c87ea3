"""A cohort as ONNX graphs, built node by node from its weights.

A graph takes raw values and answers in the target's own unit (`contracts.manifest` names its inputs and outputs). So
any ONNX runtime gives the same answer, and serving needs no encoder of its own. The graph repeats
`trainer.network.layers` and `trainer.network.network`, with the same legend, over the columns of
`trainer.export.input_graph`; tests compare both. As there, every layer maps a `Dual` to a `Dual`, so the same code
builds the graph of values and the graph of their rates. Every activation of the cohort is `(E, n, width)`, as in torch.
"""

import json
from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from contracts.manifest import VOCABULARIES
from trainer.data.encoder import Encoder
from trainer.export.input_graph import look_up_embeddings, read_columns
from trainer.export.onnx_builder import DOUBLE, FLOAT, INT64, STRING, Constant, Dual, GraphBuilder, rows_of
from trainer.export.output_graph import (
    Trees,
    add_class_experts,
    add_class_outputs,
    add_regression_experts,
    add_regression_outputs,
)
from trainer.export.tree_graph import Blend, add_trees
from trainer.export.weights import Affine, Weights, is_gated, read_weights
from trainer.methods.gbdt import Gbdt
from trainer.network.network import CohortNetwork


def build_graph(
    encoder: Encoder,
    network: CohortNetwork,
    members: Sequence[int],
    temperature: float = 1.0,
    *,
    blend: Blend | None = None,
) -> onnx.ModelProto:
    """The graph of the averaged answer of these members, all fitted with this encoder, to raw rows.

    Classification averages the probabilities p and answers `p^(1/T) / Σ p^(1/T)`. Regression has no temperature; it
    answers the mean and the standard deviation of the members' equal mixture, `scale² = mean over members of
    (scale_e² + (mean_e − mean)²)`, in the target's own unit. With a blend, p is averaged once more with the trees'
    probabilities, or mean and scale are those of the weighted mixture of both answers.
    """
    return _build(encoder, network, members, temperature, blend=blend, with_rate=False)


def build_rate_graph(
    encoder: Encoder,
    network: CohortNetwork,
    members: Sequence[int],
    temperature: float = 1.0,
    *,
    blend: Blend | None = None,
) -> onnx.ModelProto:
    """The graph of the same answer and its rate per second, with features and calendar held; trees have rate 0."""
    return _build(encoder, network, members, temperature, blend=blend, with_rate=True)


def build_experts_graph(
    encoder: Encoder, network: CohortNetwork, members: Sequence[int], trees: Gbdt
) -> onnx.ModelProto:
    """The graph of what the members and the trees answer, in turn, without a temperature."""
    blend = Blend(trees, 0.0)
    graph = GraphBuilder()
    raw = _network(graph, read_weights(encoder, network, members), with_rate=False)
    if encoder.is_classification:
        names = add_class_experts(graph, raw, _trees(graph, blend))
        outputs = [rows_of(name, FLOAT, encoder.num_outputs) for name in names]
    else:
        names = add_regression_experts(graph, encoder, raw, _trees(graph, blend))
        outputs = [rows_of(name, FLOAT) for name in names]
    return graph.build(_inputs(encoder), outputs)


def _build(
    encoder: Encoder,
    network: CohortNetwork,
    members: Sequence[int],
    temperature: float,
    *,
    blend: Blend | None,
    with_rate: bool,
) -> onnx.ModelProto:
    graph = GraphBuilder()
    raw = _network(graph, read_weights(encoder, network, members), with_rate)
    trees = None if blend is None else _trees(graph, blend)
    if encoder.is_classification:
        add_class_outputs(graph, encoder, raw, temperature, trees)
        outputs = [rows_of(name, FLOAT, encoder.num_outputs) for name in ("probabilities", "rate")]
    else:
        add_regression_outputs(graph, encoder, raw, trees)
        outputs = [rows_of(name, FLOAT) for name in ("mean", "scale", "mean_rate", "scale_rate")]
    inputs = _inputs(encoder)
    if with_rate:
        return graph.build(inputs, outputs)
    vocabularies = {VOCABULARIES: json.dumps(encoder.vocabularies, ensure_ascii=False)}
    return graph.build(inputs, outputs[: len(outputs) // 2], vocabularies if encoder.vocabularies else {})


def _trees(graph: GraphBuilder, blend: Blend) -> Trees:
    return Trees(add_trees(graph, blend.trees), blend.trees.scale, 1 - blend.weight)


def _inputs(encoder: Encoder) -> list[onnx.ValueInfoProto]:
    inputs = [rows_of("at", INT64)]
    if encoder.numbers:
        inputs.append(rows_of("numbers", DOUBLE, len(encoder.numbers)))
    if encoder.vocabularies:
        inputs.append(rows_of("categories", STRING, len(encoder.vocabularies)))
    return inputs


def _network(graph: GraphBuilder, weights: Weights, with_rate: bool) -> Dual:
    """Raw outputs of the cohort, `(E, n, K)`, and their rate if requested."""
    columns, pieces = read_columns(graph, weights.encoder, weights.waves(), with_rate)
    gates = _gates(graph, columns, weights)
    held = [graph.add("MatMul", pieces, weights.of_pieces().astype(np.float32))] if pieces else []
    x = _linear(graph, columns, weights.first(), [*held, *_embeddings(graph, weights)])
    for activation, layer in zip(weights.network.activations, weights.rest(), strict=True):
        x = _trelu(graph, x, next(gates), next(gates)) if is_gated(activation) else _relu(graph, x)
        x = _linear(graph, x, layer)
    if with_rate and x.rate is None:  # a time-oblivious network has rate 0
        return Dual(x.value, graph.add("Mul", x.value, np.float32(0)))
    return x


def _embeddings(graph: GraphBuilder, weights: Weights) -> list[str]:
    """The contribution of categories to the first layer, `(E, n, H)`; empty if there are none."""
    embedding = weights.network.embedding
    if embedding is None:
        return []
    table = weights.parameters["embedding.table"].astype(np.float32)
    found = look_up_embeddings(graph, weights.encoder, table, embedding.starts.tolist())
    return [graph.add("MatMul", found, weights.of_embeddings().astype(np.float32))]


def _linear(graph: GraphBuilder, x: Dual, layer: Affine, held: Sequence[str] = ()) -> Dual:
    """`x·W + b` plus other held terms. A rate belongs to the last columns of x."""
    weight = graph.constant(layer.weight.astype(np.float32))
    terms: list[str | Constant] = [graph.add("MatMul", x.value, weight)] if x.value else []
    terms += held
    if layer.bias is not None:
        terms.append(layer.bias.astype(np.float32))
    value = graph.add("Sum", *terms) if len(terms) > 1 else str(terms[0])
    if x.rate is None:
        return Dual(value, None)
    return Dual(value, graph.add("MatMul", x.rate, layer.weight[:, layer.num_held :].astype(np.float32)))


def _gates(graph: GraphBuilder, columns: Dual, weights: Weights) -> Iterator[Dual]:
    """Slope minus one, h(τ) − 1, and threshold g(τ) of each TReLU in turn, each `(E, n, H)`."""
    num_gates = 2 * sum(map(is_gated, weights.network.activations))
    if num_gates == 0:
        return
    inner, outer = weights.gates()
    both = _linear(graph, _tanh(graph, _linear(graph, columns, inner)), outer)
    sizes = graph.constant(np.full(num_gates, weights.num_members))
    values = graph.add_many("Split", num_gates, both.value, sizes, axis=0)
    rates = None if both.rate is None else graph.add_many("Split", num_gates, both.rate, sizes, axis=0)
    for gate, value in enumerate(values):
        yield Dual(value, None if rates is None else rates[gate])


def _relu(graph: GraphBuilder, x: Dual) -> Dual:
    value = graph.add("Relu", x.value)
    return Dual(value, None if x.rate is None else graph.add("Mul", x.rate, graph.add("Sign", value)))


def _trelu(graph: GraphBuilder, x: Dual, slope_minus_one: Dual, g: Dual) -> Dual:
    """`x + (h − 1)·short` with `short = min(x − g, 0)`, and `x′ + h′·short + (h − 1)·(x′ − g′)` where short < 0."""
    short = graph.add("Min", graph.add("Sub", x.value, g.value), np.float32(0))
    value = graph.add("Add", x.value, graph.add("Mul", slope_minus_one.value, short))
    if x.rate is None or slope_minus_one.rate is None or g.rate is None:
        return Dual(value, None)
    towards = graph.add("Mul", slope_minus_one.value, graph.add("Sub", g.rate, x.rate))
    of_short = graph.add("Mul", graph.add("Sign", short), towards)
    of_slope = graph.add("Mul", slope_minus_one.rate, short)
    return Dual(value, graph.add("Add", x.rate, graph.add("Add", of_slope, of_short)))


def _tanh(graph: GraphBuilder, x: Dual) -> Dual:
    value = graph.add("Tanh", x.value)
    if x.rate is None:
        return Dual(value, None)
    return Dual(value, graph.add("Mul", x.rate, graph.add("Sub", np.float32(1), graph.add("Mul", value, value))))
