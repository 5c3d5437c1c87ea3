"""The layers of a time-conditioned network, for a whole cohort at once.

Every parameter has a leading axis E, every activation is `(E, n, width)`, and each member computes what it would alone.
Every layer maps a `Dual`, a value and its rate ∂/∂u, to a `Dual`. If the rate is None, the same code computes only the
value. The search for δ also needs the curvature ∂²/∂u², which is propagated in the same way.
`trainer.network.network` composes the network and has the legend.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

# Slowest and fastest initial sine of Time2Vec, in radians per span. Faster sines extrapolate a steady drift less far;
# cycles are covered by the calendar.
_FREQUENCIES = (0.5, 3.0)
_GATE_SCALE = 0.1
# Below this number of columns, operations along rows are several times faster on a CPU than operations along columns.
FEW_COLUMNS = 16


class Dual(NamedTuple):
    """A value `(E, n, c)`, its rate ∂/∂u and its curvature ∂²/∂u²; None if not requested.

    A rate with fewer columns than its value belongs to the value's last columns; the columns before them are held. The
    curvature has the rate's columns, and there is none without a rate.
    """

    value: Float[Tensor, "E n c"]
    rate: Float[Tensor, "E n r"] | None
    curvature: Float[Tensor, "E n r"] | None = None


class Linear(nn.Module):
    """`x·W + b`, one W and b per member."""

    def __init__(self, num_members: int, num_in: int, num_out: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_members, num_in, num_out))
        self.bias = nn.Parameter(torch.zeros(num_members, num_out))
        self.scale = scale

    def draw(self, member: int, generator: torch.Generator, unread: Sequence[int] = ()) -> None:
        """Weights uniform in ±scale/√in; biases likewise if scale is 1, and zero if it is smaller.

        Columns that the member does not read have weight 0 and do not count.
        """
        num_in, num_out = self.weight.shape[1:]
        read = sorted(set(range(num_in)).difference(unread))
        bound = self.scale / math.sqrt(max(1, len(read)))
        drawn = torch.empty(len(read), num_out, dtype=self.weight.dtype).uniform_(-bound, bound, generator=generator)
        self.weight[member, read] = drawn
        if self.scale == 1.0:
            self.bias[member].uniform_(-bound, bound, generator=generator)

    def forward(self, x: Dual) -> Dual:
        return Dual(_product(x.value, self.weight, self.bias[:, None]), *self._derivatives(x))

    def _derivatives(self, x: Dual) -> tuple[Tensor | None, Tensor | None]:
        """Rate and curvature of the outputs."""
        if x.rate is None:
            return None, None
        weight = self.weight[:, self.weight.shape[1] - x.rate.shape[-1] :]
        return _product(x.rate, weight), None if x.curvature is None else _product(x.curvature, weight)

    def held(self, *inputs: Float[Tensor, "E n _"]) -> Float[Tensor, "E n out"]:
        """The contribution of the first columns, given in blocks, to the outputs; the bias is included.

        Blocks are not joined, so no gradients are computed for blocks that are data.
        """
        sizes = [block.shape[-1] for block in inputs]
        weights = torch.split(self.weight, [*sizes, self.weight.shape[1] - sum(sizes)], dim=1)
        sums = self.bias[:, None]
        for block, weight in zip(inputs, weights, strict=False):
            sums = torch.baddbmm(sums, block, weight)
        return sums

    def add_to(self, held: Float[Tensor, "E n out"], x: Dual) -> Dual:
        """The outputs for the last columns x, given the contribution of the columns before them."""
        value = torch.baddbmm(held, x.value, self.weight[:, self.weight.shape[1] - x.value.shape[-1] :])
        return Dual(value, *self._derivatives(x))


def split_pieces(positions: Float[Tensor, "E n p"], num_pieces: int) -> Float[Tensor, "E n pP"]:
    """How far each position has passed each of its `num_pieces` pieces, from 0 to 1, number by number."""
    starts = torch.arange(num_pieces, dtype=positions.dtype, device=positions.device)
    return (positions[..., None] - starts).clamp(0, 1).flatten(2)


class Embedding(nn.Module):
    """Embedding vectors of categories. Code 0, the unseen bucket, starts at zero: the middle of all others."""

    starts: Tensor

    def __init__(self, vocabulary_sizes: Sequence[tuple[int, ...]], width: int) -> None:
        super().__init__()
        padded = [max(sizes) for sizes in zip(*vocabulary_sizes, strict=True)]
        ends = torch.tensor(padded).cumsum(0)
        self.vocabulary_sizes = tuple(vocabulary_sizes)
        self.register_buffer("starts", ends - torch.tensor(padded), persistent=False)
        self.table = nn.Parameter(torch.zeros(len(vocabulary_sizes), int(ends[-1]), width))

    def draw(self, member: int, generator: torch.Generator) -> None:
        """Standard normal, in the member's own sizes; the padding to the largest vocabulary stays zero."""
        for start, size in zip(self.starts.tolist(), self.vocabulary_sizes[member], strict=True):
            rows = torch.randn(size - 1, self.table.shape[2], dtype=self.table.dtype, generator=generator)
            self.table[member, start + 1 : start + size] = rows

    def forward(self, codes: Int[Tensor, "E n q"]) -> Float[Tensor, "E n qa"]:
        num_members, num_rows, width = self.table.shape
        first_row = self.starts + num_rows * torch.arange(num_members, device=codes.device)[:, None, None]
        # Not nn.functional.embedding, whose backward pass is several times slower on a CPU.
        return self.table.reshape(-1, width)[codes + first_row].flatten(2)


class Time2Vec(nn.Module):
    """τ(u): p linear entries and m − p sines of model time, all learned."""

    def __init__(self, num_members: int, width: int, num_linear: int) -> None:
        super().__init__()
        self.num_linear = num_linear
        self.frequency = nn.Parameter(torch.zeros(num_members, width))
        self.phase = nn.Parameter(torch.zeros(num_members, width))

    def draw(self, member: int, generator: torch.Generator) -> None:
        """Linear entries start at about ±u; sines start slow, at any phase (the calendar covers the fast cycles)."""
        frequency, phase, p = self.frequency[member], self.phase[member], self.num_linear
        slowest, fastest = (math.log(f) for f in _FREQUENCIES)
        frequency.uniform_(slowest, fastest, generator=generator).exp_()
        frequency[:p].normal_(generator=generator)
        phase.uniform_(-math.pi, math.pi, generator=generator)
        phase[:p] = 0

    def forward(self, u: Float[Tensor, "E n"], with_rate: bool, with_curvature: bool = False) -> Dual:
        angle = u[..., None] * self.frequency[:, None] + self.phase[:, None]
        linear, periodic = angle[..., : self.num_linear], angle[..., self.num_linear :]
        value = torch.cat([linear, periodic.sin()], dim=-1)
        if not with_rate:
            return Dual(value, None)
        frequency = self.frequency[:, None]
        rate = torch.cat([torch.ones_like(linear), periodic.cos()], dim=-1) * frequency
        if not with_curvature:
            return Dual(value, rate)
        sines = torch.cat([torch.zeros_like(linear), value[..., self.num_linear :]], dim=-1)
        return Dual(value, rate, -sines * frequency * frequency)


class ReLU(nn.Module):
    """`max(x, 0)`."""

    def forward(self, x: Dual, _tau: Dual | None) -> Dual:
        value = x.value.relu()
        if x.rate is None:
            return Dual(value, None)
        is_on = _is_positive(value)
        return Dual(value, x.rate * is_on, None if x.curvature is None else x.curvature * is_on)


class TReLU(nn.Module):
    """`x if x ≥ g else h·(x − g) + g`, with slope h(τ) and threshold g(τ); it starts near the ReLU, h = g = 0.

    Computed as `x + (1 − h)·max(g − x, 0)`, which is the same and exact at h = 0, g = 0.
    """

    def __init__(self, num_members: int, time_width: int, gate_width: int, width: int) -> None:
        super().__init__()
        self.hidden = Linear(num_members, time_width, 2 * gate_width)
        self.slope = Linear(num_members, gate_width, width, scale=_GATE_SCALE)
        self.threshold = Linear(num_members, gate_width, width, scale=_GATE_SCALE)

    def forward(self, x: Dual, tau: Dual) -> Dual:
        return trelu(x, *self.gates(tau))

    def gates(self, tau: Dual) -> tuple[Dual, Dual]:
        """Slope h(τ) and threshold g(τ)."""
        for_slope, for_threshold = _halves(_tanh(self.hidden(tau)))
        return self.slope(for_slope), self.threshold(for_threshold)


def trelu(x: Dual, h: Dual, g: Dual) -> Dual:
    """The TReLU of x for a slope h and a threshold g of its shape; an x without a rate is held.

    Below the threshold, with p = g − x, the value is `x + (1 − h)·p`, and its derivatives follow by the product rule.
    """
    gap = (g.value - x.value).relu()
    shrink = 1 - h.value
    value = torch.addcmul(x.value, shrink, gap)
    if h.rate is None or g.rate is None:
        return Dual(value, None)
    is_below = _is_positive(gap)
    gap_rate = (g.rate if x.rate is None else g.rate - x.rate) * is_below
    rate = torch.addcmul(_plus(x.rate, shrink, gap_rate), h.rate, gap, value=-1)
    if h.curvature is None or g.curvature is None:
        return Dual(value, rate)
    gap_curvature = (g.curvature if x.curvature is None else g.curvature - x.curvature) * is_below
    curvature = _plus(x.curvature, shrink, gap_curvature)
    curvature = torch.addcmul(torch.addcmul(curvature, h.rate, gap_rate, value=-2), h.curvature, gap, value=-1)
    return Dual(value, rate, curvature)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x·W + b` of `(E, n, in)`, `(E, in, out)` and `(E, 1, out)`.

    Few columns are computed as rows, unless gradients are recorded: the gradient in x would have another memory layout
    than x, and operations on both would cost several times more than is gained here.
    """
    is_few = weight.shape[2] < FEW_COLUMNS and not torch.is_grad_enabled()
    left, right = (weight.mT, x.mT) if is_few else (x, weight)
    product = torch.bmm(left, right) if bias is None else torch.baddbmm(bias.mT if is_few else bias, left, right)
    return product.mT if is_few else product


def _is_positive(x: Tensor) -> Tensor:
    """1 where x is positive, else 0, for x ≥ 0; many times faster on a CPU than a comparison."""
    return x.detach().sign()


def _plus(x: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """`x + a·b`; an x that is None is zero."""
    return a * b if x is None else torch.addcmul(x, a, b)


def _tanh(x: Dual) -> Dual:
    value = x.value.tanh()
    if x.rate is None:
        return Dual(value, None)
    slope = 1 - value * value
    rate = x.rate * slope
    if x.curvature is None:
        return Dual(value, rate)
    return Dual(value, rate, torch.addcmul(x.curvature * slope, value * rate, x.rate, value=-2))


def _halves(x: Dual) -> tuple[Dual, Dual]:
    value, other = x.value.chunk(2, dim=-1)
    rate, other_rate = (None, None) if x.rate is None else x.rate.chunk(2, dim=-1)
    curvature, other_curvature = (None, None) if x.curvature is None else x.curvature.chunk(2, dim=-1)
    return Dual(value, rate, curvature), Dual(other, other_rate, other_curvature)
