"""Which rows a cohort reads, step by step, and which seeds its several networks are drawn from."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from trainer.network.minibatches import row_numbers


def seeds_for(seeds: Sequence[int], purpose: int) -> list[int]:
    """A seed of its own for each member and purpose, so that no use disturbs another."""
    return [int(np.random.SeedSequence((seed, purpose)).generate_state(1)[0]) for seed in seeds]


def minibatches(num_rows: int, num_steps: int, batch_size: int, seeds: Sequence[int]) -> Iterator[Tensor]:
    """For each step the row numbers `(E, B)` of reshuffled passes over the rows; a member's are its own seed's."""
    streams = [row_numbers(0, num_rows, batch_size, torch.Generator().manual_seed(seed)) for seed in seeds]
    for _ in range(num_steps):
        yield torch.stack([next(stream) for stream in streams])


def steps_of(num_rows: int, epochs: int, batch_size: int) -> int:
    """Steps of this many epochs, at least one an epoch."""
    return max(epochs, math.ceil(num_rows * epochs / batch_size))
