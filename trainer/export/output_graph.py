"""From a cohort's raw outputs to one answer in the target's own terms, as nodes: average, temper, rescale.

Legend: z raw outputs of a member   p_e its probabilities   p their mean over the members   T temperature
        m_e, s_e mean and scale of a member, standardised   ′ ∂/∂u, with features and calendar held

A rate leaves as change per second: `∂/∂u` over the span in seconds.
"""

import numpy as np

from trainer.data.encoder import Encoder
from trainer.data.labels import LOG_LIMIT, LabelUnit
from trainer.export.onnx_builder import DOUBLE, FLOAT, Dual, Nodes
from trainer.network.losses import LOG_SCALE_LIMIT

_MEMBERS = np.array([0])
_CLASSES = np.array([-1])
_TINY = np.finfo(np.float32).tiny
_SECOND = 1_000_000


def answer_classes(nodes: Nodes, encoder: Encoder, raw: Dual, temperature: float) -> None:
    """`probabilities (n, C)`, in proportion to `p^(1/T)`, and `rate (n, C)` where raw outputs `(E, n, C)` have one."""
    shares = nodes.add("Softmax", raw.value, axis=-1)
    value = _temper(nodes, shares, temperature) if temperature != 1 else _average(nodes, shares)
    nodes.answer(value, "probabilities")
    if raw.rate is None:
        return
    rate = _average(nodes, _softmax_rate(nodes, shares, raw.rate))
    if temperature != 1:
        # The tempered logits `log p / T` have the rate `p′ / (p·T)`; where p is 0, so is p′.
        of_log = nodes.add("Div", rate, nodes.add("Max", _average(nodes, shares), _TINY))
        rate = _softmax_rate(nodes, value, nodes.add("Mul", of_log, np.float32(1 / temperature)))
    nodes.answer(nodes.add("Mul", rate, np.float32(_SECOND / encoder.clock.span)), "rate")


def _average(nodes: Nodes, of_members: str) -> str:
    return nodes.add("ReduceMean", of_members, _MEMBERS, keepdims=0)


def _temper(nodes: Nodes, shares: str, temperature: float) -> str:
    """`softmax(log p / T)`. It is that of `log Σ p_e` too: a factor of all classes is none."""
    of_sum = nodes.add("ReduceLogSum", shares, _MEMBERS, keepdims=0)
    return nodes.add("Softmax", nodes.add("Mul", of_sum, np.float32(1 / temperature)), axis=-1)


def _softmax_rate(nodes: Nodes, shares: str, rate: str) -> str:
    """Rate of shares whose logits have this rate: `p ∘ (z′ − Σ p·z′)`."""
    mean = nodes.add("ReduceSum", nodes.add("Mul", shares, rate), _CLASSES)
    return nodes.add("Mul", shares, nodes.add("Sub", rate, mean))


def answer_values(nodes: Nodes, encoder: Encoder, raw: Dual) -> None:
    """`mean (n,)` and `scale (n,)` in the label's unit, and their rates where raw outputs `(E, n, 2)` have theirs.

    In double, because that unit may be far from 1.
    """
    mean, scale = _in_unit_of_labels(nodes, encoder.label_unit, *_mixture(nodes, *_means_and_scales(nodes, raw)))
    _answer_column(nodes, mean.value, "mean")
    _answer_column(nodes, scale.value, "scale")
    if mean.rate is None or scale.rate is None:
        return
    per_second = np.float64(_SECOND / encoder.clock.span)
    _answer_column(nodes, nodes.add("Mul", mean.rate, per_second), "mean_rate")
    _answer_column(nodes, nodes.add("Mul", scale.rate, per_second), "scale_rate")


def _mixture(nodes: Nodes, means: Dual, scales: Dual) -> tuple[Dual, Dual]:
    """Mean and scale `(1, n, 1)` of the members' mixture.

    `mean = avg m_e`, `scale² = avg (s_e² + (m_e − mean)²)`, so `scale·scale′ = avg (s_e·s_e′ + (m_e − mean)·(m_e′ −
    mean′))`.
    """
    mean = nodes.add("ReduceMean", means.value, _MEMBERS)
    apart = nodes.add("Sub", means.value, mean)
    squares = _sum_of_products(nodes, (scales.value, scales.value), (apart, apart))
    scale = nodes.add("Sqrt", nodes.add("ReduceMean", squares, _MEMBERS))
    if means.rate is None or scales.rate is None:
        return Dual(mean, None), Dual(scale, None)
    mean_rate = nodes.add("ReduceMean", means.rate, _MEMBERS)
    apart_rate = nodes.add("Sub", means.rate, mean_rate)
    products = _sum_of_products(nodes, (scales.value, scales.rate), (apart, apart_rate))
    scale_rate = nodes.add("Div", nodes.add("ReduceMean", products, _MEMBERS), scale)
    return Dual(mean, mean_rate), Dual(scale, scale_rate)


def _in_unit_of_labels(nodes: Nodes, unit: LabelUnit, mean: Dual, scale: Dual) -> tuple[Dual, Dual]:
    """Mean and scale as `trainer.data.labels` has them; of a logarithm l with scale s, `e^l` and `s·e^l`.

    Their rates are `l′·e^l` and `(s′ + s·l′)·e^l`.
    """
    factor, centre = np.float64(unit.scale), np.float64(unit.mean)
    mean = Dual(nodes.add("Add", nodes.add("Mul", mean.value, factor), centre), _times(nodes, mean.rate, factor))
    scale = Dual(nodes.add("Mul", scale.value, factor), _times(nodes, scale.rate, factor))
    if unit.floor is None:
        return mean, scale
    limit = np.float64(LOG_LIMIT)
    power = nodes.add("Exp", nodes.add("Clip", mean.value, -limit, limit))
    scale_rate = None
    if mean.rate is not None and scale.rate is not None:
        scale_rate = nodes.add("Add", scale.rate, nodes.add("Mul", scale.value, mean.rate))
    return (
        Dual(power, _times(nodes, mean.rate, power)),
        Dual(nodes.add("Mul", scale.value, power), _times(nodes, scale_rate, power)),
    )


def _times(nodes: Nodes, rate: str | None, factor: str | np.float64) -> str | None:
    return None if rate is None else nodes.add("Mul", rate, factor)


def _means_and_scales(nodes: Nodes, raw: Dual) -> tuple[Dual, Dual]:
    """m_e and `s_e = exp(L·tanh(z / L))`, each `(E, n, 1)` in double, with `s_e′ = s_e·(1 − tanh²)·z′`."""
    halves = np.array([1, 1])
    mean, raw_log_scale = nodes.add_many("Split", 2, raw.value, halves, axis=-1)
    squashed = nodes.add("Tanh", nodes.add("Div", raw_log_scale, np.float32(LOG_SCALE_LIMIT)))
    log_scale = nodes.add("Mul", squashed, np.float32(LOG_SCALE_LIMIT))
    means = nodes.add("Cast", mean, to=DOUBLE)
    scales = nodes.add("Cast", nodes.add("Exp", log_scale), to=DOUBLE)
    if raw.rate is None:
        return Dual(means, None), Dual(scales, None)
    mean_rate, raw_rate = nodes.add_many("Split", 2, raw.rate, halves, axis=-1)
    slope = nodes.add("Sub", np.float32(1), nodes.add("Mul", squashed, squashed))
    log_scale_rate = nodes.add("Cast", nodes.add("Mul", slope, raw_rate), to=DOUBLE)
    return (
        Dual(means, nodes.add("Cast", mean_rate, to=DOUBLE)),
        Dual(scales, nodes.add("Mul", scales, log_scale_rate)),
    )


def _sum_of_products(nodes: Nodes, first: tuple[str, str], second: tuple[str, str]) -> str:
    return nodes.add("Add", nodes.add("Mul", *first), nodes.add("Mul", *second))


def _answer_column(nodes: Nodes, value: str, output: str) -> None:
    """A value `(1, n, 1)` in double as an output `(n,)`."""
    flat = nodes.add("Reshape", value, np.array([-1]))
    nodes.answer(nodes.add("Cast", flat, to=FLOAT), output)
