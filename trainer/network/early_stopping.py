"""Early stopping: each member keeps the parameters with the lowest plain loss on rows that it watches.

Fine-tuning watches the window that follows, and compares epochs. Pre-training watches blocks of rows that it does not
draw, and compares its rounds: one phase after the other, until the loss no longer falls.

All members train to the end, side by side; the best parameters are copies, so later steps cannot change them. A member
compares at the steps where its own epochs end, regardless of the other members.

Legend: E members   ℓ loss of a row   n rows of the longest watched range
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.network.losses import RowLoss
from trainer.network.minibatches import DeviceRows
from trainer.network.network import Network

_ROWS_PER_BLOCK = 8192


class EarlyStopping:
    """The best parameters of each member so far.

    `watched` holds the numbers of each member's watched rows; a member without any is not stopped early. `averages` are
    the parameters at the start, which a member keeps if its loss is never finite. Parameters count as better if their
    loss is lower by the share `least_gain`.
    """

    def __init__(
        self,
        network: Network,
        loss: RowLoss,
        rows: DeviceRows,
        watched: Sequence[NDArray[np.int64]],
        averages: Sequence[Tensor],
        *,
        least_gain: float = 0.0,
    ) -> None:
        self.network, self.loss, self.rows = network, loss, rows
        self.parameters = list(network.parameters())
        self.best = [value.clone() for value in averages]
        self.numbers, self.weights = _padded(watched, averages[0])
        self.least_gain = least_gain
        self.lowest = torch.full_like(self.weights[:, 0], torch.inf)

    def compare(self, averages: Sequence[Tensor], has_ended: Tensor) -> Tensor:
        """Compare the averages after an epoch with the best so far, for the members `(E,)` that have ended an epoch.

        Returns which members `(E,)` are better.
        """
        losses = self._losses(averages)
        is_better = has_ended & (losses < self.lowest - self.least_gain * self.lowest.abs().nan_to_num(posinf=0.0))
        self.lowest = torch.where(is_better, losses, self.lowest)
        self.best = _where(is_better, averages, self.best)
        return is_better

    def chosen(self, averages: Sequence[Tensor]) -> list[Tensor]:
        """The best parameters of each member that watches a window, and the averages of the others."""
        return _where(self.weights.sum(1) > 0, self.best, averages)

    @torch.no_grad()
    def _losses(self, values: Sequence[Tensor]) -> Tensor:
        """Mean ℓ `(E,)` of the watched rows with these parameters; the network's own are restored afterwards."""
        own = [parameter.clone() for parameter in self.parameters]
        load(self.parameters, values)
        losses = torch.zeros_like(self.lowest)
        for start in range(0, self.numbers.shape[1], _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            batch = self.rows.batch(self.numbers[:, block].contiguous())
            outputs = self.network(batch.dense, batch.codes, batch.u)
            losses += (self.loss(outputs, batch.targets) * self.weights[:, block]).sum(1)
        load(self.parameters, own)
        return losses


def _padded(watched: Sequence[NDArray[np.int64]], like: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers and weights `(E, n)`; fewer rows are padded with the first one, or with row 0, at weight 0."""
    longest = max(1, *map(len, watched))
    count = torch.tensor([[len(rows)] for rows in watched])
    is_own = torch.arange(longest) < count
    numbers = np.stack(
        [np.pad(rows, (0, longest - len(rows)), constant_values=rows[0] if len(rows) else 0) for rows in watched]
    )
    return torch.from_numpy(numbers).to(like.device, torch.int32), (is_own / count.clamp(min=1)).to(like)


def _where(is_first: Tensor, first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
    """Parameters of the first list where `is_first` `(E,)` is true for the member, else of the second."""
    return [torch.where(is_first.view(-1, *[1] * (a.dim() - 1)), a, b) for a, b in zip(first, second, strict=True)]


@torch.no_grad()
def load(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy the values into the parameters."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
