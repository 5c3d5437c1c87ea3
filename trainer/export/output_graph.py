"""From a cohort's raw outputs to one answer in the target's own unit, as nodes: average, mix, temper, rescale.

Legend: z raw outputs of a member   p_e its probabilities   p their mean over the members   T temperature
        m_e, s_e mean and scale of a member, standardised   ′ ∂/∂u, with features and calendar held
        q what trees answer, which has the weight 1 − w and no rate: probabilities, or standardised means

Rates are output as change per second: `∂/∂u` divided by the span in seconds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data.encoder import Encoder
from trainer.data.labels import LOG_LIMIT, LabelUnit
from trainer.export.onnx_builder import DOUBLE, FLOAT, Dual, GraphBuilder
from trainer.network.losses import LOG_SCALE_LIMIT

_MEMBERS = np.array([0])
_CLASSES = np.array([-1])
_TINY = np.finfo(np.float32).tiny
_SECOND = 1_000_000


@dataclass(frozen=True)
class Trees:
    """What trees answer: q, with the constant scale of a regression and the weight `1 − w`."""

    value: str
    scale: float
    weight: float


def add_class_outputs(
    graph: GraphBuilder, encoder: Encoder, raw: Dual, temperature: float, trees: Trees | None = None
) -> None:
    """`probabilities (n, C)`, proportional to `p^(1/T)`, and `rate (n, C)` if raw outputs `(E, n, C)` have a rate.

    With trees, p is the weighted mean of the members' mean and of q.
    """
    shares = graph.add("Softmax", raw.value, axis=-1)
    if trees is not None:
        value = mixed = _mix_classes(graph, shares, trees)
        if temperature != 1:
            value = graph.add(
                "Softmax", graph.add("Mul", graph.add("Log", mixed), np.float32(1 / temperature)), axis=-1
            )
    else:
        value = _temper(graph, shares, temperature) if temperature != 1 else _average(graph, shares)
    graph.output(value, "probabilities")
    if raw.rate is None:
        return
    rate = _average(graph, _softmax_rate(graph, shares, raw.rate))
    if trees is not None:
        rate = graph.add("Mul", rate, np.float32(1 - trees.weight))
    if temperature != 1:
        # The tempered logits `log p / T` have the rate `p′ / (p·T)`; where p is 0, so is p′.
        plain = _average(graph, shares) if trees is None else mixed
        of_log = graph.add("Div", rate, graph.add("Max", plain, _TINY))
        rate = _softmax_rate(graph, value, graph.add("Mul", of_log, np.float32(1 / temperature)))
    graph.output(graph.add("Mul", rate, np.float32(_SECOND / encoder.clock.span)), "rate")


def add_class_experts(graph: GraphBuilder, raw: Dual, trees: Trees) -> list[str]:
    """Probabilities `(n, C)` of the members and of the trees, without a temperature; returns their names."""
    graph.output(_average(graph, graph.add("Softmax", raw.value, axis=-1)), "alone")
    graph.output(trees.value, "gbdt")
    return ["alone", "gbdt"]


def _mix_classes(graph: GraphBuilder, shares: str, trees: Trees) -> str:
    ours = graph.add("Mul", _average(graph, shares), np.float32(1 - trees.weight))
    return graph.add("Add", ours, graph.add("Mul", trees.value, np.float32(trees.weight)))


def _average(graph: GraphBuilder, of_members: str) -> str:
    return graph.add("ReduceMean", of_members, _MEMBERS, keepdims=0)


def _temper(graph: GraphBuilder, shares: str, temperature: float) -> str:
    """`softmax(log p / T)`, computed from `log Σ p_e`: a common factor of all classes cancels."""
    of_sum = graph.add("ReduceLogSum", shares, _MEMBERS, keepdims=0)
    return graph.add("Softmax", graph.add("Mul", of_sum, np.float32(1 / temperature)), axis=-1)


def _softmax_rate(graph: GraphBuilder, shares: str, rate: str) -> str:
    """Rate of shares whose logits have this rate: `p ∘ (z′ − Σ p·z′)`."""
    mean = graph.add("ReduceSum", graph.add("Mul", shares, rate), _CLASSES)
    return graph.add("Mul", shares, graph.add("Sub", rate, mean))


def add_regression_outputs(graph: GraphBuilder, encoder: Encoder, raw: Dual, trees: Trees | None = None) -> None:
    """`mean (n,)` and `scale (n,)` in the label's unit, and their rates if raw outputs `(E, n, 2)` have rates.

    They are computed in double, because that unit may be far from 1. With trees, they are those of the weighted mixture
    of the members' answer and the trees', both in that unit.
    """
    mean, scale = _of_members(graph, encoder, raw)
    if trees is not None:
        mean, scale = _with_trees(graph, (mean, scale), _of_trees(graph, encoder, trees), trees.weight)
    _output_column(graph, mean.value, "mean")
    _output_column(graph, scale.value, "scale")
    if mean.rate is None or scale.rate is None:
        return
    per_second = np.float64(_SECOND / encoder.clock.span)
    _output_column(graph, graph.add("Mul", mean.rate, per_second), "mean_rate")
    _output_column(graph, graph.add("Mul", scale.rate, per_second), "scale_rate")


def add_regression_experts(graph: GraphBuilder, encoder: Encoder, raw: Dual, trees: Trees) -> list[str]:
    """Mean and scale `(n,)` of the members and of the trees; returns the names of these four outputs."""
    names = []
    answers = (("alone", _of_members(graph, encoder, raw)), ("gbdt", _of_trees(graph, encoder, trees)))
    for expert, answer in answers:
        for part, value in zip(("mean", "scale"), answer, strict=True):
            names.append(f"{expert}_{part}")
            _output_column(graph, value.value, names[-1])
    return names


def _of_members(graph: GraphBuilder, encoder: Encoder, raw: Dual) -> tuple[Dual, Dual]:
    """Mean and scale `(1, n, 1)` of the members' mixture in the label's unit."""
    return _in_unit_of_labels(graph, encoder.label_unit, *_mixture(graph, *_means_and_scales(graph, raw)))


def _of_trees(graph: GraphBuilder, encoder: Encoder, trees: Trees) -> tuple[Dual, Dual]:
    """Mean and scale `(1, n, 1)` of the trees in the label's unit, without rates."""
    scale = graph.add("Add", graph.add("Mul", trees.value, np.float64(0)), np.float64(trees.scale))
    return _in_unit_of_labels(graph, encoder.label_unit, Dual(trees.value, None), Dual(scale, None))


def _with_trees(
    graph: GraphBuilder, ours: tuple[Dual, Dual], theirs: tuple[Dual, Dual], weight: float
) -> tuple[Dual, Dual]:
    """Mean and scale of the mixture in which the trees have this weight; their rates are 0."""

    def stack(own: Dual, other: Dual) -> Dual:
        value = graph.add("Concat", own.value, other.value, axis=0)
        if own.rate is None:
            return Dual(value, None)
        return Dual(value, graph.add("Concat", own.rate, graph.add("Mul", other.value, np.float64(0)), axis=0))

    means, scales = (stack(own, other) for own, other in zip(ours, theirs, strict=True))
    return _mixture(graph, means, scales, np.array([1 - weight, weight])[:, None, None])


def _mixture(
    graph: GraphBuilder, means: Dual, scales: Dual, weights: NDArray[np.float64] | None = None
) -> tuple[Dual, Dual]:
    """Mean and scale `(1, n, 1)` of the mixture of `(E, n, 1)`, whose weights `(E, 1, 1)` are equal if None.

    `mean = avg m_e`, `scale² = avg (s_e² + (m_e − mean)²)`, so `scale·scale′ = avg (s_e·s_e′ + (m_e − mean)·(m_e′ −
    mean′))`.
    """

    def average(of_members: str) -> str:
        if weights is None:
            return graph.add("ReduceMean", of_members, _MEMBERS)
        return graph.add("ReduceSum", graph.add("Mul", of_members, weights), _MEMBERS)

    mean = average(means.value)
    apart = graph.add("Sub", means.value, mean)
    squares = _sum_of_products(graph, (scales.value, scales.value), (apart, apart))
    scale = graph.add("Sqrt", average(squares))
    if means.rate is None or scales.rate is None:
        return Dual(mean, None), Dual(scale, None)
    mean_rate = average(means.rate)
    apart_rate = graph.add("Sub", means.rate, mean_rate)
    products = _sum_of_products(graph, (scales.value, scales.rate), (apart, apart_rate))
    scale_rate = graph.add("Div", average(products), scale)
    return Dual(mean, mean_rate), Dual(scale, scale_rate)


def _in_unit_of_labels(graph: GraphBuilder, unit: LabelUnit, mean: Dual, scale: Dual) -> tuple[Dual, Dual]:
    """Mean and scale as in `trainer.data.labels`; for a logarithm l with scale s, `e^l` and `s·e^l`.

    Their rates are `l′·e^l` and `(s′ + s·l′)·e^l`.
    """
    factor, centre = np.float64(unit.scale), np.float64(unit.mean)
    mean = Dual(graph.add("Add", graph.add("Mul", mean.value, factor), centre), _times(graph, mean.rate, factor))
    scale = Dual(graph.add("Mul", scale.value, factor), _times(graph, scale.rate, factor))
    if unit.floor is None:
        return mean, scale
    limit = np.float64(LOG_LIMIT)
    power = graph.add("Exp", graph.add("Clip", mean.value, -limit, limit))
    scale_rate = None
    if mean.rate is not None and scale.rate is not None:
        scale_rate = graph.add("Add", scale.rate, graph.add("Mul", scale.value, mean.rate))
    return (
        Dual(power, _times(graph, mean.rate, power)),
        Dual(graph.add("Mul", scale.value, power), _times(graph, scale_rate, power)),
    )


def _times(graph: GraphBuilder, rate: str | None, factor: str | np.float64) -> str | None:
    return None if rate is None else graph.add("Mul", rate, factor)


def _means_and_scales(graph: GraphBuilder, raw: Dual) -> tuple[Dual, Dual]:
    """m_e and `s_e = exp(L·tanh(z / L))`, each `(E, n, 1)` in double, with `s_e′ = s_e·(1 − tanh²)·z′`."""
    halves = np.array([1, 1])
    mean, raw_log_scale = graph.add_many("Split", 2, raw.value, halves, axis=-1)
    squashed = graph.add("Tanh", graph.add("Div", raw_log_scale, np.float32(LOG_SCALE_LIMIT)))
    log_scale = graph.add("Mul", squashed, np.float32(LOG_SCALE_LIMIT))
    means = graph.add("Cast", mean, to=DOUBLE)
    scales = graph.add("Cast", graph.add("Exp", log_scale), to=DOUBLE)
    if raw.rate is None:
        return Dual(means, None), Dual(scales, None)
    mean_rate, raw_rate = graph.add_many("Split", 2, raw.rate, halves, axis=-1)
    slope = graph.add("Sub", np.float32(1), graph.add("Mul", squashed, squashed))
    log_scale_rate = graph.add("Cast", graph.add("Mul", slope, raw_rate), to=DOUBLE)
    return (
        Dual(means, graph.add("Cast", mean_rate, to=DOUBLE)),
        Dual(scales, graph.add("Mul", scales, log_scale_rate)),
    )


def _sum_of_products(graph: GraphBuilder, first: tuple[str, str], second: tuple[str, str]) -> str:
    return graph.add("Add", graph.add("Mul", *first), graph.add("Mul", *second))


def _output_column(graph: GraphBuilder, value: str, output: str) -> None:
    """A value `(1, n, 1)` in double as an output `(n,)`."""
    flat = graph.add("Reshape", value, np.array([-1]))
    graph.output(graph.add("Cast", flat, to=FLOAT), output)
