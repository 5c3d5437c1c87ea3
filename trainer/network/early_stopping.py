"""Early stopping: of a phase, each member keeps the epoch with the lowest plain loss on the window that follows.

All members train to their ends, side by side; what is kept is a copy, so that a later epoch cannot change it. A member
judges its epochs where it ends them itself, whoever trains beside it.

Legend: E members   ℓ loss of a row   n rows of the longest watched window
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.network.losses import RowLoss
from trainer.network.minibatches import DeviceRows
from trainer.network.network import Network

_ROWS_PER_BLOCK = 8192


class EarlyStopping:
    """The best epoch of each member so far.

    `ranges` holds each member's half-open range of watched rows; where it is empty, the member keeps what it would
    without early stopping. `kept` are the parameters at the start, which a member keeps whose loss is never finite.
    """

    def __init__(
        self,
        network: Network,
        loss: RowLoss,
        stock: DeviceRows,
        ranges: Sequence[tuple[int, int]],
        kept: Sequence[Tensor],
    ) -> None:
        self.network, self.loss, self.stock = network, loss, stock
        self.parameters = list(network.parameters())
        self.best = [value.clone() for value in kept]
        self.numbers, self.weights = _padded(ranges, kept[0])
        self.lowest = torch.full_like(self.weights[:, 0], torch.inf)

    def offer(self, kept: Sequence[Tensor], is_offered: Tensor) -> None:
        """Compare what is kept after an epoch with the best so far, for those members `(E,)` that have ended one."""
        losses = self._losses(kept)
        is_better = is_offered & (losses < self.lowest)
        self.lowest = torch.where(is_better, losses, self.lowest)
        self.best = _where(is_better, kept, self.best)

    def chosen(self, kept: Sequence[Tensor]) -> list[Tensor]:
        """The best parameters of each member that watches a window, and of the others what is kept."""
        return _where(self.weights.sum(1) > 0, self.best, kept)

    @torch.no_grad()
    def _losses(self, values: Sequence[Tensor]) -> Tensor:
        """Mean ℓ `(E,)` of the watched rows with these parameters; the network has its own again afterwards."""
        own = [parameter.clone() for parameter in self.parameters]
        _load(self.parameters, values)
        losses = torch.zeros_like(self.lowest)
        for start in range(0, self.numbers.shape[1], _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            batch = self.stock.batch(self.numbers[:, block].contiguous())
            outputs = self.network(batch.dense, batch.codes, batch.u)
            losses += (self.loss(outputs, batch.targets) * self.weights[:, block]).sum(1)
        _load(self.parameters, own)
        return losses


def _padded(ranges: Sequence[tuple[int, int]], like: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers and weights `(E, n)`; a shorter range is filled up with its first row, at no weight."""
    longest = max(1, *(end - first for first, end in ranges))
    place = torch.arange(longest)
    first, count = (torch.tensor(column)[:, None] for column in zip(*((a, b - a) for a, b in ranges), strict=True))
    is_own = place < count
    numbers = torch.where(is_own, first + place, first).to(torch.int32)
    return numbers.to(like.device), (is_own / count.clamp(min=1)).to(like)


def _where(is_first: Tensor, first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
    """Parameters of the first list for the members named by `(E,)`, and of the second for the others."""
    return [torch.where(is_first.view(-1, *[1] * (a.dim() - 1)), a, b) for a, b in zip(first, second, strict=True)]


def _load(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
