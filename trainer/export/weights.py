"""The weights of a network in the form that its graph multiplies by, computed once at export.

`trainer.export.input_graph` lays out the columns that all members share. Here the weights on a member's own inputs
become weights on these columns: a bias becomes the weight of the constant 1, linear entries of Time2Vec become weights
of the lead, and the sines of other members get weight 0. Legend and parameter names as in `trainer.network.network`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data.encoder import Encoder
from trainer.data.numbers import num_added
from trainer.export.input_graph import Waves, join_waves
from trainer.network.layers import TReLU
from trainer.network.network import CohortNetwork

Array = NDArray[np.float64]

_LARGE = 20.0  # tanh of it is 1 in 32 bits


@dataclass(frozen=True)
class Affine:
    """`x·W + b` of each member: `weight (E, in, out)`, `bias (E, 1, out)` or None. The first inputs are held."""

    weight: Array
    bias: Array | None
    num_held: int = 0


@dataclass(frozen=True)
class Weights:
    """Parameters of chosen members by name, `(E, …)`, in double, with the encoder whose columns the network reads."""

    encoder: Encoder
    network: CohortNetwork
    parameters: dict[str, Array]

    @property
    def num_members(self) -> int:
        return len(self.parameters["head.bias"])

    def waves(self) -> Waves | None:
        """The calendar's waves and each member's sines in turn; None if the network sees no time."""
        if self.network.time is None:
            return None
        frequency, phase = self._time(slice(self.network.time.num_linear, None))
        return join_waves(self.encoder, frequency.ravel(), phase.ravel())

    def first(self) -> Affine:
        """The first layer as a map of the columns."""
        shape, (weight, bias) = self.network.architecture, self._layer("hidden.0")
        return self._on_columns(weight[:, : shape.num_numbers], weight[:, shape.num_inputs - shape.time_width :], bias)

    def of_embeddings(self) -> Array:
        """The first layer's weights on embeddings, `(E, q·a, H)`."""
        shape = self.network.architecture
        start = shape.num_numbers
        return self.parameters["hidden.0.weight"][:, start : start + shape.num_categories * shape.embedding]

    def of_pieces(self) -> Array:
        """The first layer's weights on the pieces of numbers, `(E, p·P, H)`."""
        return self.parameters["hidden.0.weight"][:, : self._num_amounts()]

    def rest(self) -> list[Affine]:
        """The layers after the first, the head last.

        The TReLU of x + b is b plus the TReLU of x with a threshold lower by b: a bias before a TReLU moves behind it.
        """
        layers = [self._layer(name)[0] for name in self._names[1:]]
        gated = [*map(is_gated, self.network.activations[1:]), False]
        rows = zip(layers, self._biases()[1:], gated, strict=True)
        return [Affine(weight, None if has_moved else bias) for weight, bias, has_moved in rows]

    def gates(self) -> tuple[Affine, Affine]:
        """The maps before and after tanh of all gates, as one cohort of 2L·E members, without biases.

        The cohort holds, for each of L TReLUs, all members' slope minus 1 and then their threshold. The last output of
        tanh is 1 and carries the bias.
        """
        shape, biases = self.network.architecture, self._biases()
        dense = np.zeros((self.num_members, shape.num_numbers, shape.trelu_width + 1))
        inner, outer = [], []
        for i in [i for i, activation in enumerate(self.network.activations) if is_gated(activation)]:
            halves = (np.split(array, 2, axis=2) for array in self._layer(f"activations.{i}.hidden"))
            shifts = {"slope": 1.0, "threshold": biases[i] if i > 0 else 0.0}
            for (gate, shift), weight, bias in zip(shifts.items(), *halves, strict=True):
                inner.append(self._on_columns(dense, _append(weight, 0), _append(bias, _LARGE)))
                weight_after, bias_after = self._layer(f"activations.{i}.{gate}")
                outer.append(np.concatenate([weight_after, bias_after - shift], axis=1))
        before = np.concatenate([one.weight for one in inner])
        return Affine(before, None, inner[0].num_held), Affine(np.concatenate(outer), None)

    @property
    def _names(self) -> list[str]:
        return [*(f"hidden.{i}" for i in range(len(self.network.activations))), "head"]

    def _layer(self, name: str) -> tuple[Array, Array]:
        """A layer's own weight, and its bias `(E, 1, out)`."""
        return self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"][:, None]

    def _time(self, part: slice) -> tuple[Array, Array]:
        """Frequency and phase of these entries of Time2Vec."""
        return self.parameters["time.frequency"][:, part], self.parameters["time.phase"][:, part]

    def _num_amounts(self) -> int:
        """Columns of the first layer that numbers become."""
        return len(self.encoder.amounts) + num_added(self.encoder.num_positions)

    def _biases(self) -> list[Array]:
        """Each layer's bias, plus the bias that moves into it from the layer before."""
        found, moved = [], None
        for name, activation in zip(self._names, [*self.network.activations, None], strict=True):
            weight, bias = self._layer(name)
            found.append(bias if moved is None else bias + moved @ weight)
            moved = found[-1] if is_gated(activation) and len(found) > 1 else None
        return found

    def _on_columns(self, dense: Array, tau: Array, bias: Array) -> Affine:
        """A map with weights on dense `(E, d, out)` and on τ `(E, m, out)`, rewritten as a map of the columns."""
        num_members, _, num_outputs = bias.shape
        optional = np.flatnonzero([number.is_optional for number in self.encoder.numbers])
        missing = np.zeros((num_members, len(self.encoder.numbers) if len(optional) else 0, num_outputs))
        begin = self._num_amounts()
        end = begin + len(optional)
        missing[:, optional] = dense[:, begin:end]
        amounts = dense[:, : 0 if self.encoder.has_pieces else begin]
        features = np.concatenate([amounts, missing], axis=1)
        if self.network.time is None:
            return Affine(features, bias)
        num_linear = self.network.time.num_linear
        frequency, phase = (values[:, None] for values in self._time(slice(num_linear)))
        linear, periodic = tau[:, :num_linear], tau[:, num_linear:]
        own = np.arange(num_members)
        sines = np.zeros((num_members, *periodic.shape))
        sines[own, own] = periodic
        waves = [bias + phase @ linear, dense[:, end:], sines.reshape(num_members, -1, num_outputs)]
        lead = frequency @ linear / self.encoder.clock.span
        return Affine(np.concatenate([features, *waves, lead], axis=1), None, num_held=features.shape[1])


def read_weights(encoder: Encoder, network: CohortNetwork, members: Sequence[int]) -> Weights:
    """The weights of these members of a cohort."""
    chosen = list(members)
    parameters = {name: one.detach()[chosen].double().cpu().numpy() for name, one in network.named_parameters()}
    for place, member in enumerate(chosen):
        parameters["hidden.0.weight"][place, network.architecture.unread_inputs(member)] = 0
    return Weights(encoder, network, parameters)


def is_gated(activation: object) -> bool:
    """Whether slope and threshold of an activation depend on time."""
    return isinstance(activation, TReLU)


def _append(columns: Array, value: float) -> Array:
    """The columns with a constant column appended, `(E, in, out + 1)`."""
    return np.pad(columns, ((0, 0), (0, 0), (0, 1)), constant_values=value)
