"""The minibatches of a cohort: which rows each step reads, and those rows on the device.

A member's rows come from reshuffled passes of its own generator, so its stream does not depend on the other members.
Every minibatch is full: if a pass ends within one, the next pass continues it.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.data.encoder import Encoded, EncodedOnDemand, FitRows
from trainer.network.losses import Batch

# Steps whose row numbers are sent to the device at once: few transfers, little memory.
_STEPS_PER_TRANSFER = 64
# Every 16th of these blocks of consecutive rows is held out, but not the newest: blocks that are apart from their
# neighbours in time say more than single rows do.
_NUM_BLOCKS, _EVERY, _FIRST = 128, 16, 7
# Rows that are watched at most, and the fewest rows of a fit that holds some out.
_MOST_WATCHED, FEWEST_ROWS = 4096, 1000


@dataclass(frozen=True)
class Columns:
    """The rows of one fit on the device: dense `(n, d)`, codes `(n, q)`, u and targets `(n,)`."""

    dense: Tensor
    codes: Tensor
    u: Tensor
    targets: Tensor


@dataclass(frozen=True)
class DeviceRows:
    """All members' rows, each distinct set once: runs of members, and the rows of each run.

    Encoded rows are on the device. Others are encoded and sent minibatch by minibatch.
    """

    runs: tuple[slice, ...]
    rows: tuple[Columns | EncodedOnDemand, ...]
    like: Tensor

    @staticmethod
    def load(rows: Sequence[FitRows], device: torch.device, dtype: torch.dtype) -> "DeviceRows":
        """Load the rows of each member; neighbours that share one object share a run. On the CPU nothing is copied."""
        loaded: dict[int, Columns | EncodedOnDemand] = {}
        runs: list[slice] = []
        of_runs: list[Columns | EncodedOnDemand] = []
        start = 0
        for key, run in itertools.groupby(rows, key=id):
            same = list(run)
            if key not in loaded:
                first = same[0]
                loaded[key] = _on_device(first, device, dtype) if isinstance(first, Encoded) else first
            runs.append(slice(start, start + len(same)))
            of_runs.append(loaded[key])
            start += len(same)
        return DeviceRows(tuple(runs), tuple(of_runs), torch.empty(0, device=device, dtype=dtype))

    def batch(self, numbers: Tensor) -> Batch:
        """The rows with these numbers `(E, B)`: a minibatch `(E, B, …)` per member."""
        parts = [self._taken(rows, numbers[run]) for run, rows in zip(self.runs, self.rows, strict=True)]
        first = parts[0]
        if len(parts) == 1:
            return first
        return Batch(
            dense=torch.cat([part.dense for part in parts]),
            codes=torch.cat([part.codes for part in parts]),
            u=torch.cat([part.u for part in parts]),
            targets=torch.cat([part.targets for part in parts]),
        )

    def _taken(self, rows: Columns | EncodedOnDemand, numbers: Tensor) -> Batch:
        flat = numbers.flatten()
        if isinstance(rows, EncodedOnDemand):
            taken = _on_device(rows.take(flat.cpu().numpy()), self.like.device, self.like.dtype)
        else:
            columns = rows.dense, rows.codes, rows.u, rows.targets
            taken = Columns(*(column.index_select(0, flat) for column in columns))
        columns = taken.dense, taken.codes, taken.u, taken.targets
        return Batch(*(column.view(*numbers.shape, *column.shape[1:]) for column in columns))


def _on_device(rows: Encoded, device: torch.device, dtype: torch.dtype) -> Columns:
    targets = torch.from_numpy(rows.targets).to(device)
    return Columns(
        dense=torch.from_numpy(rows.dense).to(device, dtype),
        codes=torch.from_numpy(rows.codes).to(device),
        u=torch.from_numpy(rows.u).to(device, dtype),
        targets=targets.to(dtype) if targets.is_floating_point() else targets,
    )


def held_out(numbers: Tensor, num_rows: int) -> Tensor:
    """Which rows of a fit with these numbers pre-training does not draw, if it is stopped by rows that it holds out."""
    return numbers.long() * _NUM_BLOCKS // num_rows % _EVERY == _FIRST


def watched_rows(num_rows: int) -> NDArray[np.int64]:
    """The numbers of held-out rows of a fit, evenly thinned if they are many; none if the fit has too few rows."""
    if num_rows < FEWEST_ROWS:
        return np.zeros(0, np.int64)
    numbers = torch.arange(num_rows)
    held: NDArray[np.int64] = numbers[held_out(numbers, num_rows)].numpy()
    return held[:: -(-len(held) // _MOST_WATCHED)]


def row_numbers(
    first: int,
    end: int,
    batch_size: int,
    generator: torch.Generator,
    num_steps: int | None = None,
    *,
    holds_out: bool = False,
) -> Iterator[Tensor]:
    """Endless minibatches `(B,)` of reshuffled passes over `[first, end)`; only row 0 if that range is empty.

    With `num_steps`, at least that many minibatches; a pass is then kept only as far as they need it. If it
    `holds_out` rows, the range is that of all rows of a fit, and those of `held_out` are left out.
    """
    count = end - first
    if count == 0:
        yield from itertools.repeat(torch.zeros(batch_size, dtype=torch.int32))
    waiting = torch.empty(0, dtype=torch.int32)
    needed = None if num_steps is None else num_steps * batch_size
    while True:
        drawn = torch.randperm(count, generator=generator, dtype=torch.int32).add_(first)
        if holds_out:
            drawn = drawn[~held_out(drawn, count)]
        if needed is not None and needed < len(drawn):
            drawn = drawn[: max(needed, batch_size)].clone()
        needed = None if needed is None else needed - len(drawn)
        lacking = batch_size - len(waiting)
        waiting = torch.cat([waiting, drawn[:lacking]])
        if len(waiting) < batch_size:
            continue
        yield waiting
        num_full = (len(drawn) - lacking) // batch_size
        yield from drawn[lacking : lacking + num_full * batch_size].view(num_full, batch_size)
        waiting = drawn[lacking + num_full * batch_size :].clone()
        del drawn  # large, so free it before the next pass is drawn


def steps(
    streams: Sequence[Iterator[Tensor]],
    deltas: Sequence[torch.Generator],
    num_steps: int,
    device: torch.device,
    dtype: torch.dtype,
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step, every member's row numbers `(E, B)` and its uniform draw in [−1, 1) for δ, `(E,)`."""
    for start in range(0, num_steps, _STEPS_PER_TRANSFER):
        length = min(_STEPS_PER_TRANSFER, num_steps - start)
        numbers = torch.stack([torch.stack(list(itertools.islice(stream, length))) for stream in streams], dim=1)
        draws = torch.stack([torch.rand(length, generator=generator, dtype=dtype) for generator in deltas], dim=1)
        yield from zip(_sent(numbers, device), _sent(2 * draws - 1, device), strict=True)


def _sent(rows: Tensor, device: torch.device) -> Tensor:
    """The rows on the device; to CUDA from pinned memory, so nothing waits for the transfer."""
    return rows.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else rows.to(device)
