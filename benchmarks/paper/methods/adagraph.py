"""AdaGraph: batch norm whose statistics, scales and shifts belong to a domain and are smoothed over time by a kernel.

The paper's definition (appendix A.2): the domain of a row decides which batch-norm parameters it meets, and an RBF
kernel says how alike two domains are. A domain without rows, such as the future one, has what the kernel makes of the
others: its extrapolation is close to the newest domains' own.

Every layer with an activation gets such a norm before it, per unit, or per channel of an image; the rest is the set's
own time-oblivious network, trained by the plan of `baseline`. With D known domains, a row of domain q has

    w_d = exp(−(t_q − t_d)² / 2b²) / Σ     scale = Σ_d w_d·scale_d     shift = Σ_d w_d·shift_d
    mean = Σ_d w_d·(sum of x in d) / Σ_d w_d·(rows in d)                variance likewise, from the sums of x²

While the network is trained these sums are those of the minibatch; afterwards they are those of all known rows with the
trained weights, layer after layer, so that an answer depends on no other unseen row.

Legend: E members   n rows   C units or channels   D known domains   t in windows   b _BANDWIDTH
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.paper.networks import ConvNetwork
from benchmarks.paper.splits import Split
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import PLANS
from trainer.network.layers import Dual, ReLU
from trainer.network.network import Architecture, Build, CohortNetwork, Network
from trainer.network.training_loop import draw_network, outputs, train

# In windows.
_BANDWIDTH = 1.0
_EPSILON = 1e-5
_ROWS_PER_BLOCK = 1024


class Totals(NamedTuple):
    """By domain: how many values `(E, D, 1)`, and per unit their sum and the sum of their squares `(E, D, C)`."""

    counts: Tensor
    sums: Tensor
    squares: Tensor


def adagraph_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Train the split's network with a norm of each domain, settle the norms on the known rows, and answer."""
    plan, members = PLANS["baseline"](training), split.members(seeds)
    starts, first = np.unique(split.known.windows, return_index=True)
    # u gives the domain of a row: the last domain that has begun. The future's begins at the cutoff.
    begins = torch.from_numpy(np.append(split.known.u[first], np.float32(0)))
    times = torch.from_numpy(np.append(starts / split.clock.window, split.origin).astype(np.float32))
    build = functools.partial(GraphNetwork, build=split.build, begins=begins, times=times)
    network = draw_network(members, training, plan.is_timed, torch.float32, build)
    for _epoch in train(network, members, plan, training, split.clock):
        pass
    network.settle(split.known)
    return outputs(network, split.unseen)


def shares(times: Tensor, bandwidth: float) -> Tensor:
    """The kernel's w `(D + 1, D)` for times `(D + 1,)`: row q is what domain q has of each known one; the last is none.

    Rows sum to 1.
    """
    return torch.softmax(-((times[:, None] - times[:-1]) ** 2) / (2 * bandwidth**2), dim=1)


class DomainNorm(nn.Module):
    """The norm of each row's domain and then the ReLU, of `(E, n, C)` or, for images, `(n, E·C, r, r)`.

    `place` `(E, n, D + 1)` is 1 at each row's domain, and is set before rows are read. The totals are the minibatch's
    until `settled` are given.
    """

    kernel: Tensor
    place: Tensor

    def __init__(self, num_members: int, num_units: int, kernel: Tensor) -> None:
        super().__init__()
        num_domains = kernel.shape[1]
        self.scale = nn.Parameter(torch.ones(num_members, num_domains, num_units))
        self.shift = nn.Parameter(torch.zeros(num_members, num_domains, num_units))
        self.register_buffer("kernel", kernel, persistent=False)
        self.relu = ReLU()
        self.settled: Totals | None = None

    def forward(self, x: Dual, tau: Dual | None) -> Dual:
        factor, offset = self.line(self.settled or self.totals(x.value))
        factor, offset = (self._of_rows(line, x.value) for line in (factor, offset))
        normed: Dual = self.relu(Dual(torch.addcmul(offset, x.value, factor), None), tau)
        return normed

    def totals(self, x: Tensor) -> Totals:
        """The totals of these rows alone."""
        num_members, num_rows, _ = self.place.shape
        by_domain = self.place[..., :-1].transpose(1, 2)
        num_values = x[0, 0].numel() if x.dim() == 4 else 1
        if x.dim() == 4:
            rows, squares = (
                values.sum((2, 3)).view(num_rows, num_members, -1).transpose(0, 1) for values in (x, x.square())
            )
        else:
            rows, squares = x, x.square()
        return Totals(num_values * by_domain.sum(2, keepdim=True), by_domain @ rows, by_domain @ squares)

    def line(self, totals: Totals) -> tuple[Tensor, Tensor]:
        """The norm of each domain, the future's last, as `factor·x + offset`; `(E, D + 1, C)` both."""
        counts = (self.kernel @ totals.counts).clamp(min=torch.finfo(self.kernel.dtype).tiny)
        mean = self.kernel @ totals.sums / counts
        variance = (self.kernel @ totals.squares / counts - mean.square()).clamp(min=0)
        factor = self.kernel @ self.scale * torch.rsqrt(variance + _EPSILON)
        return factor, self.kernel @ self.shift - mean * factor

    def _of_rows(self, line: Tensor, x: Tensor) -> Tensor:
        rows = self.place @ line
        return rows.transpose(0, 1).reshape(*x.shape[:2], 1, 1) if x.dim() == 4 else rows


class GraphNetwork(nn.Module):
    """A set's time-oblivious network with a `DomainNorm` in place of each activation.

    `begins` `(D + 1,)` are the model times from which a row belongs to each domain, `times` their places in windows;
    the last of both is the future's.
    """

    begins: Tensor

    def __init__(
        self,
        architecture: Architecture,
        vocabulary_sizes: Sequence[tuple[int, ...]],
        seeds: Sequence[int],
        dtype: torch.dtype,
        *,
        build: Build[Network],
        begins: Tensor,
        times: Tensor,
    ) -> None:
        super().__init__()
        inner = build(architecture, vocabulary_sizes, seeds, dtype)
        assert isinstance(inner, CohortNetwork | ConvNetwork)
        assert not architecture.is_timed, "only domains tell this network the time"
        kernel = shares(times.to(dtype), _BANDWIDTH)
        inner.activations = nn.ModuleList(
            DomainNorm(len(seeds), num_units, kernel).to(dtype) for num_units in _num_units(inner)
        )
        self.inner = inner
        self.register_buffer("begins", begins.to(dtype), persistent=False)

    @property
    def num_members(self) -> int:
        return self.inner.num_members

    @property
    def norms(self) -> list[DomainNorm]:
        """From the first layer to the last."""
        return [layer for layer in self.inner.activations if isinstance(layer, DomainNorm)]

    def forward(self, dense: Tensor, codes: Tensor, u: Tensor) -> Tensor:
        """F of rows by their domains: `(E, n, K)`."""
        numbers = torch.bucketize(u.contiguous(), self.begins, right=True) - 1
        place = nn.functional.one_hot(numbers.clamp(min=0), len(self.begins)).to(u.dtype)
        for norm in self.norms:
            norm.place = place
        answers: Tensor = self.inner(dense, codes, u)
        return answers

    def dual(self, dense: Tensor, codes: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """F and its rate, which is 0: a domain's norm stands still until the next begins."""
        value = self(dense, codes, u)
        return value, torch.zeros_like(value)

    @torch.no_grad()
    def settle(self, known: Encoded) -> None:
        """Give every norm the totals of these rows, layer after layer."""
        for norm in self.norms:
            found: list[Totals] = []
            hook = norm.register_forward_pre_hook(functools.partial(_note_totals, found))
            for dense, codes, u in self._blocks(known):
                self(dense, codes, u)
            hook.remove()
            norm.settled = Totals(*(torch.stack(column).sum(0) for column in zip(*found, strict=True)))

    def select(self, members: Sequence[int]) -> "GraphNetwork":
        """A copy with these members only, in this order."""
        chosen = GraphNetwork.__new__(GraphNetwork)
        nn.Module.__init__(chosen)
        chosen.inner = self.inner.select(members)
        chosen.register_buffer("begins", self.begins, persistent=False)
        for norm in chosen.norms:
            if norm.settled is not None:
                norm.settled = Totals(*(column[list(members)] for column in norm.settled))
        return chosen

    def _blocks(self, rows: Encoded) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for start in range(0, len(rows.u), _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            columns = (torch.from_numpy(column[block]) for column in (rows.dense, rows.codes, rows.u))
            dense, codes, u = (column.expand(self.num_members, *column.shape) for column in columns)
            yield dense.to(self.begins), codes.to(self.begins.device), u.to(self.begins)


def _note_totals(found: list[Totals], norm: nn.Module, inputs: tuple[Dual, ...]) -> None:
    assert isinstance(norm, DomainNorm)
    found.append(norm.totals(inputs[0].value))


def _num_units(network: CohortNetwork | ConvNetwork) -> Iterator[int]:
    """Units or channels that each activation reads."""
    layers = (
        network.hidden
        if isinstance(network, CohortNetwork)
        else itertools.chain(network.convolutions, [network.hidden])
    )
    for layer in layers:
        assert isinstance(layer.bias, Tensor)
        yield layer.bias.shape[1]
