"""A linear classifier whose weights are networks of time: the paper's picture of what its loss does (§3.2).

F(x, t) = Σ_j w_j(t)·x_j + w_0(t), with a small network of its own for each weight, for a whole cohort at once. So what
was learned can be read off as curves.
"""

import copy
import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainer.network.layers import Dual, Linear, ReLU
from trainer.network.network import Architecture

# Hidden units of each weight's network.
WIDTHS = (50, 20)

Activation = Literal["relu", "tanh"]


class Tanh(nn.Module):
    """`tanh(x)`: smooth, so that a weight's slope is one the loss can bend everywhere."""

    def forward(self, x: Dual, _tau: Dual | None) -> Dual:
        value = x.value.tanh()
        return Dual(value, None if x.rate is None else x.rate * (1 - value * value))


class WeightsNetwork(nn.Module):
    """The paper's classifier for a cohort: outputs (0, F), each weight a network of t with layers of 50 and 20.

    A time-oblivious one reads t = 0 at any time, so that its weights are constants.
    """

    def __init__(
        self,
        architecture: Architecture,
        vocabulary_sizes: Sequence[tuple[int, ...]],
        seeds: Sequence[int],
        dtype: torch.dtype = torch.float32,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        assert len(vocabulary_sizes) == len(seeds)
        self.is_timed = architecture.is_timed
        self.activation = Tanh() if activation == "tanh" else ReLU()
        sizes = list(itertools.pairwise((1, *WIDTHS, 1)))
        self.nets = nn.ModuleList(
            nn.ModuleList(Linear(len(seeds), narrow, wide) for narrow, wide in sizes)
            for _ in range(architecture.num_dense + 1)
        )
        self.to(dtype)
        with torch.no_grad():
            for member, seed in enumerate(seeds):
                generator = torch.Generator().manual_seed(seed)
                for layer in self.modules():
                    if isinstance(layer, Linear):
                        layer.draw(member, generator)

    @property
    def num_members(self) -> int:
        return len(next(self.parameters()))

    def forward(
        self,
        dense: Float[Tensor, "E n d"],
        codes: Int[Tensor, "E n q"],  # noqa: ARG002
        u: Float[Tensor, "E n"],
    ) -> Float[Tensor, "E n 2"]:
        """(0, F(x, t)), the logits of the two classes."""
        return _logits(dense, self.weights(u, with_rate=False).value)

    def dual(
        self,
        dense: Float[Tensor, "E n d"],
        codes: Int[Tensor, "E n q"],  # noqa: ARG002
        u: Float[Tensor, "E n"],
    ) -> tuple[Float[Tensor, "E n 2"], Float[Tensor, "E n 2"]]:
        """Logits and their rates."""
        weights = self.weights(u, with_rate=True)
        rate = torch.zeros_like(weights.value) if weights.rate is None else weights.rate
        return _logits(dense, weights.value), _logits(dense, rate)

    def weights(self, u: Float[Tensor, "E n"], with_rate: bool = False) -> Dual:
        """w_1(t) … w_5(t), w_0(t) and their slopes, `(E, n, 6)`."""
        moments = u[..., None] if self.is_timed else torch.zeros_like(u)[..., None]
        start = Dual(moments, torch.ones_like(moments) if with_rate and self.is_timed else None)
        each = [self._one(net, start) for net in self.nets]
        rates = [weight.rate for weight in each if weight.rate is not None]
        return Dual(torch.cat([weight.value for weight in each], -1), torch.cat(rates, -1) if rates else None)

    def _one(self, net: nn.Module, x: Dual) -> Dual:
        assert isinstance(net, nn.ModuleList)
        *hidden, last = net
        for layer in hidden:
            x = self.activation(layer(x), None)
        result: Dual = last(x)
        return result

    def select(self, members: Sequence[int]) -> "WeightsNetwork":
        """A copy with these members only, in this order."""
        chosen = copy.deepcopy(self)
        for parameter in chosen.parameters():
            parameter.data = parameter.data[list(members)]
        return chosen


def _logits(dense: Tensor, weights: Tensor) -> Tensor:
    f = (dense * weights[..., :-1]).sum(-1) + weights[..., -1]
    return torch.stack([torch.zeros_like(f), f], dim=-1)
