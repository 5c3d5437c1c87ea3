"""The time-conditioned network, for a whole cohort at once.

E networks of one shape run side by side: every parameter has a leading axis E, every activation is `(E, n, width)`,
and each member computes what it would alone. Every layer maps a `Dual`, a value and its rate ∂/∂u, to a `Dual`; where
no rate is asked for it is None, and the same code computes the value only. So one pass gives F and ∂F/∂u in ordinary
operations that differentiate, export and compile like any others. Features and calendar phases are held: rate 0.

Legend, and the parameters by name in the order in which the layers are applied (d numbers, q categories, H = width):

    E members   n rows   K outputs   m = time_width   p = time_linear   s = trelu_width   a = embedding

    embedding.table       (E, V, a)      all categories' codes, one below the other; category j starts at row starts[j]
    time.frequency, time.phase  (E, m)   Time2Vec: τ(u) = [ω·u + b for the first p, sin(ω·u + b) for the others]
    hidden.{i}.weight     (E, in, H)     in = H, and for i = 0: d + q·a + m, the columns [dense, embeddings, τ]
    hidden.{i}.bias       (E, H)
    activations.{i}.hidden.weight, .bias     (E, m, 2s), (E, 2s)   then tanh: s for the slope, s for the threshold
    activations.{i}.slope.weight, .bias      (E, s, H), (E, H)     h(τ)
    activations.{i}.threshold.weight, .bias  (E, s, H), (E, H)     g(τ)
    head.weight, .bias    (E, H, K), (E, K)

The activations before the last `num_trelu` are plain ReLUs without parameters. A time-oblivious network has no `time`,
plain ReLUs only, and does not read the last `num_calendar` columns of dense.
"""

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contracts.task import Training

# Slowest and fastest sine of Time2Vec at the start, in radians per span. Faster ones carry a steady drift less far; for
# cycles there is the calendar.
_FREQUENCIES = (0.5, 3.0)
_GATE_SCALE = 0.1


class Dual(NamedTuple):
    """A value `(E, n, c)` and its rate ∂/∂u, or None where no rate is asked for.

    A rate with fewer columns than its value belongs to the value's last columns; the columns before them are held.
    """

    value: Float[Tensor, "E n c"]
    rate: Float[Tensor, "E n r"] | None


@dataclass(frozen=True)
class Architecture:
    """The shape that all members of a cohort share."""

    num_dense: int
    num_calendar: int
    num_categories: int
    num_outputs: int
    width: int
    num_layers: int
    num_trelu: int
    embedding: int
    time_width: int
    time_linear: int
    trelu_width: int
    is_timed: bool

    @property
    def num_numbers(self) -> int:
        """Columns of dense that the network reads."""
        return self.num_dense if self.is_timed else self.num_dense - self.num_calendar

    @property
    def num_inputs(self) -> int:
        """Columns that the first linear layer reads."""
        return self.num_numbers + self.num_categories * self.embedding + self.time_width * self.is_timed


def architecture(
    training: Training, num_dense: int, num_categories: int, num_outputs: int, is_timed: bool
) -> Architecture:
    """The architecture of a recipe; the calendar's sines and cosines are the last columns of dense."""
    return Architecture(
        num_dense=num_dense,
        num_calendar=2 * len(training.calendar),
        num_categories=num_categories,
        num_outputs=num_outputs,
        width=training.width,
        num_layers=training.num_layers,
        num_trelu=training.num_layers if training.num_trelu is None else training.num_trelu,
        embedding=training.embedding,
        time_width=training.time_width,
        time_linear=training.time_linear,
        trelu_width=training.trelu_width,
        is_timed=is_timed,
    )


class Linear(nn.Module):
    """`x·W + b`, one W and b per member."""

    def __init__(self, num_members: int, num_in: int, num_out: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_members, num_in, num_out))
        self.bias = nn.Parameter(torch.zeros(num_members, num_out))
        self.scale = scale

    def draw(self, member: int, generator: torch.Generator) -> None:
        """Weights uniform in ±scale/√in, biases likewise where scale is 1 and zero where it is smaller."""
        bound = self.scale / math.sqrt(max(1, self.weight.shape[1]))
        self.weight[member].uniform_(-bound, bound, generator=generator)
        if self.scale == 1.0:
            self.bias[member].uniform_(-bound, bound, generator=generator)

    def forward(self, x: Dual) -> Dual:
        value = torch.baddbmm(self.bias[:, None], x.value, self.weight)
        if x.rate is None:
            return Dual(value, None)
        return Dual(value, torch.bmm(x.rate, self.weight[:, self.weight.shape[1] - x.rate.shape[-1] :]))


class Embedding(nn.Module):
    """Numbers that stand for categories. Code 0, the unseen bucket, starts at zero: the middle of all others."""

    starts: Tensor

    def __init__(self, vocabulary_sizes: Sequence[tuple[int, ...]], width: int) -> None:
        super().__init__()
        padded = [max(sizes) for sizes in zip(*vocabulary_sizes, strict=True)]
        ends = torch.tensor(padded).cumsum(0)
        self.vocabulary_sizes = tuple(vocabulary_sizes)
        self.register_buffer("starts", ends - torch.tensor(padded), persistent=False)
        self.table = nn.Parameter(torch.zeros(len(vocabulary_sizes), int(ends[-1]), width))

    def draw(self, member: int, generator: torch.Generator) -> None:
        """Standard normal, in the member's own sizes; what pads it to the largest vocabulary stays zero."""
        for start, size in zip(self.starts.tolist(), self.vocabulary_sizes[member], strict=True):
            rows = torch.randn(size - 1, self.table.shape[2], dtype=self.table.dtype, generator=generator)
            self.table[member, start + 1 : start + size] = rows

    def forward(self, codes: Int[Tensor, "E n q"]) -> Float[Tensor, "E n qa"]:
        num_members, num_rows, width = self.table.shape
        first_row = self.starts + num_rows * torch.arange(num_members, device=codes.device)[:, None, None]
        return nn.functional.embedding(codes + first_row, self.table.reshape(-1, width)).flatten(2)


class Time2Vec(nn.Module):
    """τ(u): p linear entries and m − p sines of model time, all learned."""

    def __init__(self, num_members: int, width: int, num_linear: int) -> None:
        super().__init__()
        self.num_linear = num_linear
        self.frequency = nn.Parameter(torch.zeros(num_members, width))
        self.phase = nn.Parameter(torch.zeros(num_members, width))

    def draw(self, member: int, generator: torch.Generator) -> None:
        """Linear entries start as about ±u, sines slow (the calendar has the fast cycles) and at any phase."""
        frequency, phase, p = self.frequency[member], self.phase[member], self.num_linear
        slowest, fastest = (math.log(f) for f in _FREQUENCIES)
        frequency.uniform_(slowest, fastest, generator=generator).exp_()
        frequency[:p].normal_(generator=generator)
        phase.uniform_(-math.pi, math.pi, generator=generator)
        phase[:p] = 0

    def forward(self, u: Float[Tensor, "E n"], with_rate: bool) -> Dual:
        angle = u[..., None] * self.frequency[:, None] + self.phase[:, None]
        linear, periodic = angle[..., : self.num_linear], angle[..., self.num_linear :]
        value = torch.cat([linear, periodic.sin()], dim=-1)
        if not with_rate:
            return Dual(value, None)
        slope = torch.cat([torch.ones_like(linear), periodic.cos()], dim=-1)
        return Dual(value, slope * self.frequency[:, None])


class ReLU(nn.Module):
    """`max(x, 0)`."""

    def forward(self, x: Dual, _tau: Dual | None) -> Dual:
        value = x.value.relu()
        return Dual(value, None if x.rate is None else x.rate * _is_positive(value))


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
        return bend(x, *self.gates(tau))

    def gates(self, tau: Dual) -> tuple[Dual, Dual]:
        """Slope h(τ) and threshold g(τ)."""
        for_slope, for_threshold = _halves(_tanh(self.hidden(tau)))
        return self.slope(for_slope), self.threshold(for_threshold)


def bend(x: Dual, h: Dual, g: Dual) -> Dual:
    """The TReLU of x for a slope and a threshold that fit its shape; an x without a rate is held."""
    gap = (g.value - x.value).relu()
    shrink = 1 - h.value
    value = torch.addcmul(x.value, shrink, gap)
    if h.rate is None or g.rate is None:
        return Dual(value, None)
    is_below = _is_positive(gap)
    if x.rate is None:
        return Dual(value, torch.addcmul(shrink * g.rate * is_below, h.rate, gap, value=-1))
    gap_rate = (g.rate - x.rate) * is_below
    return Dual(value, torch.addcmul(torch.addcmul(x.rate, shrink, gap_rate), h.rate, gap, value=-1))


@runtime_checkable
class Network(Protocol):
    """What a fit trains: a cohort of networks F(x, u) and their rates; see `CohortNetwork` for the shapes."""

    def __call__(self, dense: Tensor, codes: Tensor, u: Tensor) -> Tensor: ...
    def dual(self, dense: Tensor, codes: Tensor, u: Tensor) -> tuple[Tensor, Tensor]: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...
    def requires_grad_(self, requires_grad: bool = True) -> "Network": ...
    def to(self, device: torch.device) -> "Network": ...
    def select(self, members: Sequence[int]) -> "Network": ...
    @property
    def num_members(self) -> int: ...


N_co = TypeVar("N_co", bound=Network, covariant=True)


class Build(Protocol[N_co]):
    """How an untrained network is made: what `CohortNetwork` takes."""

    def __call__(
        self,
        architecture: Architecture,
        vocabulary_sizes: Sequence[tuple[int, ...]],
        seeds: Sequence[int],
        dtype: torch.dtype,
    ) -> N_co: ...


class CohortNetwork(nn.Module):
    """E networks of one architecture; see the module's docstring for the layers and the parameters' names.

    A member's parameters come from its own seed, drawn on the CPU in its own sizes: neither the other members nor
    their vocabularies change them. `vocabulary_sizes` holds, per member, the codes of each category.
    """

    def __init__(
        self,
        architecture: Architecture,
        vocabulary_sizes: Sequence[tuple[int, ...]],
        seeds: Sequence[int],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        shape, num_members = architecture, len(seeds)
        self.architecture = shape
        self.embedding = Embedding(vocabulary_sizes, shape.embedding) if shape.num_categories else None
        self.time = Time2Vec(num_members, shape.time_width, shape.time_linear) if shape.is_timed else None
        widths = [shape.num_inputs] + [shape.width] * shape.num_layers
        self.hidden = nn.ModuleList(Linear(num_members, narrow, wide) for narrow, wide in itertools.pairwise(widths))
        num_plain = shape.num_layers - shape.num_trelu * shape.is_timed
        self.activations = nn.ModuleList(
            ReLU() if i < num_plain else TReLU(num_members, shape.time_width, shape.trelu_width, shape.width)
            for i in range(shape.num_layers)
        )
        self.head = Linear(num_members, shape.width, shape.num_outputs)
        self.to(dtype)
        with torch.no_grad():
            for member, seed in enumerate(seeds):
                generator = torch.Generator().manual_seed(seed)
                for layer in self.modules():
                    if isinstance(layer, Embedding | Time2Vec | Linear):
                        layer.draw(member, generator)

    @property
    def num_members(self) -> int:
        return self.head.weight.shape[0]

    def forward(
        self, dense: Float[Tensor, "E n d"], codes: Int[Tensor, "E n q"], u: Float[Tensor, "E n"]
    ) -> Float[Tensor, "E n K"]:
        """F(x, u): logits, or (mean, raw log-scale)."""
        return self._layers(dense, codes, u, with_rate=False).value

    def dual(
        self, dense: Float[Tensor, "E n d"], codes: Int[Tensor, "E n q"], u: Float[Tensor, "E n"]
    ) -> tuple[Float[Tensor, "E n K"], Float[Tensor, "E n K"]]:
        """F(x, u) and ∂F(x, u)/∂u with all of dense held, the calendar included."""
        value, rate = self._layers(dense, codes, u, with_rate=True)
        return value, torch.zeros_like(value) if rate is None else rate

    def _layers(self, dense: Tensor, codes: Tensor, u: Tensor, with_rate: bool) -> Dual:
        inputs = [dense[..., : self.architecture.num_numbers]]
        if self.embedding is not None:
            inputs.append(self.embedding(codes))
        tau: Dual | None = None
        if self.time is not None:
            tau = self.time(u, with_rate)
            inputs.append(tau.value)
        x = Dual(torch.cat(inputs, dim=-1), None if tau is None else tau.rate)
        for linear, activation in zip(self.hidden, self.activations, strict=True):
            x = activation(linear(x), tau)
        result: Dual = self.head(x)
        return result

    def select(self, members: Sequence[int]) -> "CohortNetwork":
        """A copy with these members only, in this order; the table keeps its padding."""
        chosen = copy.deepcopy(self)
        index = torch.tensor(list(members), device=self.head.weight.device)
        for parameter in chosen.parameters():
            parameter.data = parameter.data[index]
        if chosen.embedding is not None:
            sizes = chosen.embedding.vocabulary_sizes
            chosen.embedding.vocabulary_sizes = tuple(sizes[member] for member in members)
        return chosen


def _is_positive(x: Tensor) -> Tensor:
    """1 where x, which is never negative, is positive, else 0: many times faster on a CPU than a comparison."""
    return x.detach().sign()


def _tanh(x: Dual) -> Dual:
    value = x.value.tanh()
    return Dual(value, None if x.rate is None else x.rate * (1 - value * value))


def _halves(x: Dual) -> tuple[Dual, Dual]:
    first, second = x.value.chunk(2, dim=-1)
    if x.rate is None:
        return Dual(first, None), Dual(second, None)
    first_rate, second_rate = x.rate.chunk(2, dim=-1)
    return Dual(first, first_rate), Dual(second, second_rate)
