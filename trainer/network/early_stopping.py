"""Early stopping: each member keeps the epoch of a phase with the lowest plain loss on the window that follows.

All members train to the end, side by side; the best parameters are copies, so later epochs cannot change them. A member
compares its epochs at the steps where its own epochs end, regardless of the other members.

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

    `ranges` holds each member's half-open range of watched rows; a member with an empty range is not stopped early.
    `averages` are the parameters at the start, which a member keeps if its loss is never finite.
    """

    def __init__(
        self,
        network: Network,
        loss: RowLoss,
        rows: DeviceRows,
        ranges: Sequence[tuple[int, int]],
        averages: Sequence[Tensor],
    ) -> None:
        self.network, self.loss, self.rows = network, loss, rows
        self.parameters = list(network.parameters())
        self.best = [value.clone() for value in averages]
        self.numbers, self.weights = _padded(ranges, averages[0])
        self.lowest = torch.full_like(self.weights[:, 0], torch.inf)

    def compare(self, averages: Sequence[Tensor], has_ended: Tensor) -> None:
        """Compare the averages after an epoch with the best so far, for the members `(E,)` that have ended an epoch."""
        losses = self._losses(averages)
        is_better = has_ended & (losses < self.lowest)
        self.lowest = torch.where(is_better, losses, self.lowest)
        self.best = _where(is_better, averages, self.best)

    def chosen(self, averages: Sequence[Tensor]) -> list[Tensor]:
        """The best parameters of each member that watches a window, and the averages of the others."""
        return _where(self.weights.sum(1) > 0, self.best, averages)

    @torch.no_grad()
    def _losses(self, values: Sequence[Tensor]) -> Tensor:
        """Mean ℓ `(E,)` of the watched rows with these parameters; the network's own are restored afterwards."""
        own = [parameter.clone() for parameter in self.parameters]
        _load(self.parameters, values)
        losses = torch.zeros_like(self.lowest)
        for start in range(0, self.numbers.shape[1], _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            batch = self.rows.batch(self.numbers[:, block].contiguous())
            outputs = self.network(batch.dense, batch.codes, batch.u)
            losses += (self.loss(outputs, batch.targets) * self.weights[:, block]).sum(1)
        _load(self.parameters, own)
        return losses


def _padded(ranges: Sequence[tuple[int, int]], like: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers and weights `(E, n)`; a shorter range is padded with its first row at weight 0."""
    longest = max(1, *(end - first for first, end in ranges))
    position = torch.arange(longest)
    first, count = (torch.tensor(column)[:, None] for column in zip(*((a, b - a) for a, b in ranges), strict=True))
    is_own = position < count
    numbers = torch.where(is_own, first + position, first).to(torch.int32)
    return numbers.to(like.device), (is_own / count.clamp(min=1)).to(like)


def _where(is_first: Tensor, first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
    """Parameters of the first list where `is_first` `(E,)` is true for the member, else of the second."""
    return [torch.where(is_first.view(-1, *[1] * (a.dim() - 1)), a, b) for a, b in zip(first, second, strict=True)]


def _load(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
