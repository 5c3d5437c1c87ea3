"""The schedule of a phase: which rows a member draws from, how many steps it takes, and what each step is for it.

Members of a cohort differ in their numbers of rows, and therefore of steps; a phase lasts until its longest member is
done.

Legend: E members   S steps of a phase, those of its longest member
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contracts.task import Training
from trainer.data.encoder import FitRows
from trainer.methods.plans import Oldest, Phase, Rows


@dataclass(frozen=True)
class Schedule:
    """What each step of a phase is for each member; tables are `(S, E)`.

    epoch      the member's own epoch from 0, or the number of epochs if it is past its end
    is_active  1 up to the member's last step, then 0
    newest     weight of the newest parameters in the averages
    is_ending  whether the step ends one of the member's own epochs; on the host
    ends       the steps after which the longest member has ended each epoch
    """

    epoch: Tensor
    is_active: Tensor
    newest: Tensor
    is_ending: NDArray[np.bool_]
    ends: tuple[int, ...]


def plan_steps(own_steps: Sequence[int], num_epochs: int, averaged: float, like: Tensor) -> Schedule:
    """A schedule in which parameters are averaged over the last `averaged` share of a member's steps, at least one."""
    own, longest = np.array(own_steps), max(own_steps)
    step = np.arange(longest)[:, None]
    is_active = step < own
    epoch = np.where(is_active, step * num_epochs // np.maximum(own, 1), num_epochs)
    num_averaged = np.maximum(step + 1 - np.floor(own * (1 - averaged)), 1)
    return Schedule(
        epoch=torch.from_numpy(epoch).to(like.device),
        is_active=torch.from_numpy(is_active).to(like),
        newest=torch.from_numpy(is_active / num_averaged).to(like),
        is_ending=np.diff(epoch, axis=0, append=num_epochs) > 0,
        ends=tuple(math.ceil(longest * (number + 1) / num_epochs) for number in range(num_epochs)),
    )


def num_steps(rows: FitRows, phase: Phase, training: Training) -> int:
    """Steps of one member in a phase, at least one per epoch; 0 if it lacks the window of the phase's budget."""
    first, end = row_range(rows, phase.budget)
    visits = min(end - first, training.rows_per_epoch) * phase.epochs
    return max(phase.epochs, math.ceil(visits / training.rows_per_minibatch(len(rows)))) if visits else 0


def row_range(rows: FitRows, which: Rows) -> tuple[int, int]:
    """Half-open range of the row numbers that a phase names; empty if there is no such window."""
    assert which != "later", "such a phase is run window by window"
    if which == "all":
        return 0, len(rows)
    starts = window_starts(rows)
    position = which.number - 1 if isinstance(which, Oldest) else len(starts) - which
    if not 0 <= position < len(starts):
        return 0, 0
    start = starts[position]
    windows = rows.windows
    return int(np.searchsorted(windows, start, "left")), int(np.searchsorted(windows, start, "right"))


def window_starts(rows: FitRows) -> NDArray[np.int64]:
    """The windows that have rows, oldest first; rows are ordered already, so nothing is sorted."""
    windows = rows.windows
    is_first = np.ones(len(windows), np.bool_)
    np.not_equal(windows[1:], windows[:-1], out=is_first[1:])
    return windows[is_first]


def following_range(rows: FitRows, which: Rows) -> tuple[int, int]:
    """Half-open range of the window that follows the one that a phase names; empty if none follows."""
    if isinstance(which, Oldest):
        return row_range(rows, Oldest(which.number + 1))
    return row_range(rows, which - 1) if isinstance(which, int) and which > 1 else (0, 0)
