"""Weights of a network as its graph multiplies by them, so that what depends on no row is computed once.

`trainer.inputs` lays out the columns that all members share. Here the weights on a member's own inputs become weights
on these columns: linear entries of Time2Vec are the lead, weighed, and each member gives no weight to the sines of the
others. Legend and names of parameters are those of `trainer.network`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer.dataset import Encoder
from trainer.inputs import Waves, join_waves
from trainer.layers import TReLU
from trainer.network import CohortNetwork

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """`x·W + b` of each member: `weight (E, in, out)`, `bias (E, 1, out)`; the first `num_held` inputs have no rate."""

    weight: Array
    bias: Array
    num_held: int = 0


@dataclass(frozen=True)
class Weights:
    """Parameters of chosen members by name, `(E, …)`, in double; and how the network reads what the encoder gives."""

    encoder: Encoder
    network: CohortNetwork
    parameters: dict[str, Array]

    @property
    def num_members(self) -> int:
        return len(self.parameters["head.bias"])

    @property
    def num_linear(self) -> int:
        """Linear entries of Time2Vec."""
        return self.network.architecture.time_linear

    def affine(self, name: str) -> Affine:
        """A layer's own parameters."""
        return Affine(self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"][:, None])

    def waves(self) -> Waves | None:
        """The calendar's, and the sines of one member after the other; None where the network sees no time."""
        if self.network.time is None:
            return None
        frequency, phase = (self.parameters[f"time.{name}"][:, self.num_linear :] for name in ("frequency", "phase"))
        return join_waves(self.encoder, frequency.ravel(), phase.ravel())

    def first(self) -> Affine:
        """The first layer as a map of the columns."""
        shape, layer = self.network.architecture, self.affine("hidden.0")
        dense = layer.weight[:, : shape.num_numbers]
        return self._on_columns(dense, layer.weight[:, shape.num_inputs - shape.time_width :], layer.bias)

    def of_embeddings(self) -> Array:
        """What the first layer makes of embeddings, `(E, q·a, H)`."""
        shape = self.network.architecture
        start = shape.num_numbers
        return self.parameters["hidden.0.weight"][:, start : start + shape.num_categories * shape.embedding]

    def gates(self) -> tuple[Affine, Affine]:
        """What leads to tanh and what follows it, of all gates as one cohort of 2L·E.

        That is of each of L TReLUs all members' slope less 1, and then their threshold.
        """
        names = [f"activations.{i}" for i, one in enumerate(self.network.activations) if isinstance(one, TReLU)]
        inner, outer = [], []
        for name in names:
            hidden = self.affine(f"{name}.hidden")
            half = hidden.weight.shape[2] // 2
            for gate, part in (("slope", slice(half)), ("threshold", slice(half, None))):
                dense = np.zeros((self.num_members, self.network.architecture.num_numbers, half))
                inner.append(self._on_columns(dense, hidden.weight[..., part], hidden.bias[..., part]))
                outer.append(self.affine(f"{name}.{gate}"))
            outer[-2] = replace(outer[-2], bias=outer[-2].bias - 1)
        return _stack(inner), _stack(outer)

    def _on_columns(self, dense: Array, tau: Array, bias: Array) -> Affine:
        """The map that weighs dense `(E, d, out)` and τ `(E, m, out)` so, as one of the columns."""
        num_members, _, num_outputs = bias.shape
        num_numbers = len(self.encoder.numbers)
        optional = np.flatnonzero([number.is_optional for number in self.encoder.numbers])
        missing = np.zeros((num_members, num_numbers if len(optional) else 0, num_outputs))
        end = num_numbers + len(optional)
        missing[:, optional] = dense[:, num_numbers:end]
        parts = [dense[:, :num_numbers], missing, dense[:, end:]]
        num_held = sum(part.shape[1] for part in parts[:2])
        if self.network.time is not None:
            frequency, phase = (
                self.parameters[f"time.{name}"][:, None, : self.num_linear] for name in ("frequency", "phase")
            )
            linear, periodic = tau[:, : self.num_linear], tau[:, self.num_linear :]
            own = np.arange(num_members)
            sines = np.zeros((num_members, *periodic.shape))
            sines[own, own] = periodic
            parts += [sines.reshape(num_members, -1, num_outputs), frequency @ linear / self.encoder.clock.span]
            bias = bias + phase @ linear
        return Affine(np.concatenate(parts, axis=1), bias, num_held)


def read_weights(encoder: Encoder, network: CohortNetwork, members: Sequence[int]) -> Weights:
    """Of these members of a cohort."""
    chosen = list(members)
    parameters = {name: one.detach()[chosen].double().cpu().numpy() for name, one in network.named_parameters()}
    return Weights(encoder, network, parameters)


def _stack(maps: Sequence[Affine]) -> Affine:
    weight, bias = np.concatenate([one.weight for one in maps]), np.concatenate([one.bias for one in maps])
    return Affine(weight, bias, maps[0].num_held)
