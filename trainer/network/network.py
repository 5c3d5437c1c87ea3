"""The time-conditioned network, for a whole cohort at once.

E networks of one shape run side by side, built from the layers of `trainer.network.layers`: every parameter has a
leading axis E, and each member computes what it would alone. One pass of values and rates gives F and ∂F/∂u in ordinary
operations that differentiate, export and compile like any others. Features and calendar phases are held: rate 0.

Legend, and the parameters by name in the order in which the layers are applied (d numbers, q categories, H = width):

    E members   n rows   K outputs   m = time_width   p = time_linear   s = trelu_width   a = embedding   P = num_pieces

    embedding.table       (E, V, a)      all categories' codes, one below the other; category j starts at row starts[j]
    time.frequency, time.phase  (E, m)   Time2Vec: τ(u) = [ω·u + b for the first p, sin(ω·u + b) for the others]
    hidden.{i}.weight     (E, in, H)     in = H, and for i = 0: d + q·a + m, the columns [dense, embeddings, τ]; a
                                         position among pieces (`trainer.data.numbers`) counts as P columns of dense
    hidden.{i}.bias       (E, H)
    activations.{i}.hidden.weight, .bias     (E, m, 2s), (E, 2s)   then tanh: s for the slope, s for the threshold
    activations.{i}.slope.weight, .bias      (E, s, H), (E, H)     h(τ)
    activations.{i}.threshold.weight, .bias  (E, s, H), (E, H)     g(τ)
    head.weight, .bias    (E, H, K), (E, K)

The activations before the last `num_trelu` are plain ReLUs without parameters. A time-oblivious network has no `time`
and only plain ReLUs, and does not read the last `num_calendar` columns of dense.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contracts.task import Training
from trainer.data.numbers import num_added, num_pieces
from trainer.network.layers import Dual, Embedding, Linear, ReLU, Time2Vec, TReLU, split_pieces


@dataclass(frozen=True)
class Architecture:
    """The shape that all members of a cohort share.

    `unread` holds, per member, the columns of dense that it does not read; empty if every member reads all.
    """

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
    num_positions: int = 0
    unread: tuple[tuple[int, ...], ...] = ()

    @property
    def num_pieces(self) -> int:
        """Columns of the first layer that one position becomes."""
        return num_pieces(self.num_positions)

    @property
    def num_read(self) -> int:
        """Columns of dense that the network reads."""
        return self.num_dense if self.is_timed else self.num_dense - self.num_calendar

    @property
    def num_numbers(self) -> int:
        """Columns of the first linear layer that these become."""
        return self.num_read + num_added(self.num_positions)

    @property
    def num_inputs(self) -> int:
        """Columns that the first linear layer reads."""
        return self.num_numbers + self.num_categories * self.embedding + self.time_width * self.is_timed

    def unread_inputs(self, member: int) -> list[int]:
        """Columns of the first linear layer that a member does not read."""
        if not self.unread:
            return []
        width = np.ones(self.num_dense, np.intp)
        width[: self.num_positions] = self.num_pieces
        ends = width.cumsum()
        return [place for column in self.unread[member] for place in range(ends[column] - width[column], ends[column])]


def architecture(
    training: Training,
    num_dense: int,
    num_categories: int,
    num_outputs: int,
    is_timed: bool,
    *,
    num_positions: int = 0,
    unread: tuple[tuple[int, ...], ...] = (),
) -> Architecture:
    """The architecture of a recipe.

    The first `num_positions` columns of dense are positions among pieces, the last ones the calendar's sines and
    cosines. Each member leaves its columns in `unread` out.
    """
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
        num_positions=num_positions,
        unread=unread if any(unread) else (),
    )


@runtime_checkable
class Network(Protocol):
    """A cohort of networks F(x, u) with rates, as a fit trains it; see `CohortNetwork` for the shapes."""

    def __call__(self, dense: Tensor, codes: Tensor, u: Tensor) -> Tensor: ...
    def dual(self, dense: Tensor, codes: Tensor, u: Tensor) -> tuple[Tensor, Tensor]: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...
    def requires_grad_(self, requires_grad: bool = True) -> "Network": ...
    def to(self, device: torch.device) -> "Network": ...
    def select(self, members: Sequence[int]) -> "Network": ...
    @property
    def num_members(self) -> int: ...


# F(x, ·) for held features: outputs, rates and curvatures `(E, n, K)` at model times `(E, n)`.
TimeFunction = Callable[[Tensor], Dual]


@runtime_checkable
class HasCurvature(Protocol):
    """A network that also computes curvatures, which makes the search for δ cheap."""

    def along_time(self, dense: Tensor, codes: Tensor) -> TimeFunction: ...


N_co = TypeVar("N_co", bound=Network, covariant=True)


class Build(Protocol[N_co]):
    """Builds an untrained network, with the arguments of `CohortNetwork`."""

    def __call__(
        self,
        architecture: Architecture,
        vocabulary_sizes: Sequence[tuple[int, ...]],
        seeds: Sequence[int],
        dtype: torch.dtype,
    ) -> N_co: ...


def _is_read(shape: Architecture) -> Tensor | None:
    """1 for each column of dense that a member reads, else 0, `(E, 1, d)`; None if every member reads all."""
    if not shape.unread:
        return None
    found = torch.ones(len(shape.unread), 1, shape.num_dense)
    for member, columns in enumerate(shape.unread):
        found[member, :, list(columns)] = 0
    return found


class CohortNetwork(nn.Module):
    """E networks of one architecture; see the module's docstring for the layers and the parameters' names.

    A member's parameters are drawn from its own seed, on the CPU and in its own sizes, so neither the other members nor
    their vocabularies change them. `vocabulary_sizes` holds, per member, the number of codes of each category.
    """

    is_read: Tensor | None

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
        self.register_buffer("is_read", _is_read(shape), persistent=False)
        self.to(dtype)
        with torch.no_grad():
            for member, seed in enumerate(seeds):
                generator = torch.Generator().manual_seed(seed)
                for layer in self.modules():
                    if isinstance(layer, Linear):
                        layer.draw(member, generator, shape.unread_inputs(member) if layer is self.hidden[0] else ())
                    elif isinstance(layer, Embedding | Time2Vec):
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
        result = self._layers(dense, codes, u, with_rate=True)
        return result.value, torch.zeros_like(result.value) if result.rate is None else result.rate

    def along_time(self, dense: Float[Tensor, "E n d"], codes: Int[Tensor, "E n q"]) -> TimeFunction:
        """F(x, ·) with rate and curvature, to evaluate at many u; the contribution of the features is computed once.

        Only for a network that sees time.
        """
        first, time = self.hidden[0], self.time
        assert isinstance(first, Linear)
        assert time is not None, "a time-oblivious network does not depend on time"
        held = first.held(*self._features(dense, codes))

        def at(u: Tensor) -> Dual:
            tau = time(u, with_rate=True, with_curvature=True)
            return self._later_layers(first.add_to(held, tau), tau)

        return at

    def _layers(self, dense: Tensor, codes: Tensor, u: Tensor, with_rate: bool) -> Dual:
        first = self.hidden[0]
        assert isinstance(first, Linear)
        held = first.held(*self._features(dense, codes))
        if self.time is None:
            return self._later_layers(Dual(held, None), None)
        tau = self.time(u, with_rate)
        return self._later_layers(first.add_to(held, tau), tau)

    def _features(self, dense: Tensor, codes: Tensor) -> list[Tensor]:
        """The inputs of the first layer other than time."""
        shape = self.architecture
        if self.is_read is not None:
            dense = dense * self.is_read
        positions, others = dense[..., : shape.num_positions], dense[..., shape.num_positions : shape.num_read]
        numbers = [others] if shape.num_positions == 0 else [split_pieces(positions, shape.num_pieces), others]
        return numbers if self.embedding is None else [*numbers, self.embedding(codes)]

    def _later_layers(self, x: Dual, tau: Dual | None) -> Dual:
        """The outputs, from the first layer's sums."""
        x = self.activations[0](x, tau)
        for linear, activation in zip(self.hidden[1:], self.activations[1:], strict=True):
            x = activation(linear(x), tau)
        result: Dual = self.head(x)
        return result

    def select(self, members: Sequence[int]) -> "CohortNetwork":
        """A copy with only these members, in this order; the embedding table keeps its padding."""
        chosen = copy.deepcopy(self)
        index = torch.tensor(list(members), device=self.head.weight.device)
        for parameter in chosen.parameters():
            parameter.data = parameter.data[index]
        if self.is_read is not None:
            unread = self.architecture.unread
            chosen.architecture = replace(self.architecture, unread=tuple(unread[member] for member in members))
            chosen.is_read = self.is_read[index]
        if chosen.embedding is not None:
            sizes = chosen.embedding.vocabulary_sizes
            chosen.embedding.vocabulary_sizes = tuple(sizes[member] for member in members)
        return chosen
