"""The training loop: a cohort of networks trained side by side, reported epoch by epoch.

All members take their steps together, but each draws rows, δ and parameters from its own seed, visits its own number
of rows and averages its own weights. So a member's result depends only on its own rows, seed and recipe. Nothing inside
an epoch waits for the device; one transfer at its end fetches the losses.

Legend: E members   S steps of a phase, those of its longest member   n, d, q, K as in `trainer.network.network`
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from statistics import fmean
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contracts.clock import Clock
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded, FitRows
from trainer.methods.plans import PLANS, Phase, Plan
from trainer.network.adamw import AdamW
from trainer.network.early_stopping import EarlyStopping, load
from trainer.network.losses import REGRESSION_LOSSES, RowLoss, cross_entropy
from trainer.network.minibatches import FEWEST_ROWS, DeviceRows, row_numbers, steps, watched_rows
from trainer.network.network import Build, CohortNetwork, Network, architecture
from trainer.network.phase_schedule import following_range, num_steps, plan_steps, row_range, window_starts
from trainer.network.step import objective

# The uses of a seed. Each use has its own generator, so none affects another.
_PARAMETERS, _ROWS, _DELTAS = range(3)
_ROWS_PER_BLOCK = 8192
# The numbers of rounds count backwards from here.
_MOST_PHASES = 1 << 32
# The share of its loss on held-out rows that a round of pre-training must gain for another to follow.
LEAST_GAIN = 0.05

N = TypeVar("N", bound=Network)


@dataclass(frozen=True)
class Member:
    """One fit in a cohort. Seeds of one origin should share the same `rows` object and be neighbours.

    `vocabulary_sizes` counts the codes of each category feature, the unseen bucket included; `num_outputs` is the
    number of classes, or 2 for (mean, log-scale). `unread` are the columns of dense that it does not read. `unseen` are
    rows whose loss is told after each epoch of pre-training; no step and no choice reads them.
    """

    rows: FitRows
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int
    seed: int
    unread: tuple[int, ...] = ()
    unseen: Encoded | None = None


@dataclass(frozen=True)
class EpochReport:
    """One epoch of a phase, counted from 1, and the seconds that it took.

    `losses` holds each member's mean objective over its own steps of the epoch. It is NaN if the member skips the phase
    because its rows have too few windows. `deltas` holds the mean size of δ likewise, in windows; 0 in a phase without
    δ. `unseen_loss` is the mean loss of all members on `unseen` rows after an epoch of pre-training, if there are any.
    """

    phase: str
    epoch: int
    num_epochs: int
    losses: tuple[float, ...]
    deltas: tuple[float, ...]
    seconds: float
    unseen_loss: float | None = None

    @property
    def mean_loss(self) -> float:
        """The mean over the members that take part; in a phase that has steps, at least one does."""
        return fmean(loss for loss in self.losses if math.isfinite(loss))

    @property
    def mean_delta(self) -> float:
        """The same mean of δ, in windows."""
        return fmean(delta for delta in self.deltas if math.isfinite(delta))

    def of(self, members: Sequence[int]) -> "EpochReport | None":
        """The same epoch for some members; None if all of them skip it."""
        losses = tuple(self.losses[member] for member in members)
        deltas = tuple(self.deltas[member] for member in members)
        return replace(self, losses=losses, deltas=deltas) if any(map(math.isfinite, losses)) else None


def fit(
    members: Sequence[Member],
    training: Training,
    clock: Clock,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Generator[EpochReport, None, CohortNetwork]:
    """Train a cohort by the plan of the recipe's method; yields a report per epoch and returns the network.

    All members share the columns of their rows, `num_outputs` and the size of a minibatch; numbers of rows and
    vocabularies may differ. Integer targets are classes, others are standardised labels. Raises CycleError if a member
    has no rows or a loss that is not finite.
    """
    plan = PLANS[training.method](training)
    network = draw_network(members, training, plan.is_timed, dtype, CohortNetwork).to(device)
    yield from train(network, members, plan, training, clock)
    return network


def draw_network(
    members: Sequence[Member],
    training: Training,
    is_timed: bool,
    dtype: torch.dtype,
    build: Build[N],
) -> N:
    """An untrained network for these members, on the CPU; each member's parameters come from its own seed."""
    first = members[0].rows
    shape = architecture(
        training,
        first.num_dense,
        first.num_codes,
        members[0].num_outputs,
        is_timed,
        num_positions=first.num_positions,
        unread=tuple(member.unread for member in members),
    )
    seeds = [_seed(member.seed, _PARAMETERS) for member in members]
    return build(shape, [member.vocabulary_sizes for member in members], seeds, dtype)


def train(
    network: Network, members: Sequence[Member], plan: Plan, training: Training, clock: Clock
) -> Iterator[EpochReport]:
    """Run a plan on a network, on its device; yields a report per epoch. Raises as `fit` does."""
    for number, member in enumerate(members):
        if len(member.rows) == 0:
            raise CycleError(f"member {number} of the cohort has no rows to fit")
    sizes = {training.rows_per_minibatch(len(member.rows)) for member in members}
    assert len(sizes) == 1, "members of a cohort share one size of minibatches"
    like = next(iter(network.parameters()))
    loss = cross_entropy if members[0].rows.has_classes else REGRESSION_LOSSES[training.regression_loss]
    device_rows = DeviceRows.load([member.rows for member in members], like.device, like.dtype)
    num_windows = max(len(window_starts(member.rows)) for member in members)
    cohort = _Cohort(network, members, device_rows, loss, training, clock)
    for number, phase in enumerate(plan.phases_of(num_windows)):
        if number == 0 and phase.rows == "all" and training.pretrain_steps is not None:
            yield from _run_rounds(cohort, phase, training.pretrain_steps)
        else:
            yield from _run_phase(cohort, phase, number, [num_steps(one.rows, phase, training) for one in members])


def finish(
    fitting: Generator[EpochReport, None, CohortNetwork],
    on_epoch: Callable[[EpochReport], object] = lambda _report: None,
) -> CohortNetwork:
    """Run a fit to its end and pass its reports on; returns the network."""
    while True:
        try:
            on_epoch(next(fitting))
        except StopIteration as end:
            network: CohortNetwork = end.value
            return network


def outputs(network: Network, rows: Encoded, members: Sequence[int] | None = None) -> NDArray[np.float32]:
    """Raw outputs `(len(members), n, K)` of these members (all if None) on the same encoded rows, block by block."""
    chosen = network if members is None else network.select(members)
    like, num_members = next(iter(chosen.parameters())), chosen.num_members
    blocks: list[NDArray[np.float32]] = []
    with torch.inference_mode():
        for start in range(0, max(len(rows.u), 1), _ROWS_PER_BLOCK):  # without rows, one empty block
            block = slice(start, start + _ROWS_PER_BLOCK)
            dense = torch.from_numpy(rows.dense[block]).to(like).expand(num_members, -1, -1)
            codes = torch.from_numpy(rows.codes[block]).to(like.device).expand(num_members, -1, -1)
            u = torch.from_numpy(rows.u[block]).to(like).expand(num_members, -1)
            blocks.append(chosen(dense, codes, u).cpu().numpy())
    return np.concatenate(blocks, axis=1)


@dataclass(frozen=True)
class _Cohort:
    """What is trained, and on what: the same in every phase."""

    network: Network
    members: Sequence[Member]
    rows: DeviceRows
    loss: RowLoss
    training: Training
    clock: Clock


def _run_rounds(cohort: _Cohort, phase: Phase, most_steps: int) -> Iterator[EpochReport]:
    """Pre-training by rounds: the phase again for each member whose loss on held-out rows has just fallen.

    A member stops after a round that has gained less than `LEAST_GAIN`, or if another would exceed its budget of steps.
    It goes on to fine-tuning with its best parameters. Members of fits with few rows hold out none: they run one round.
    """
    members, parameters = cohort.members, list(cohort.network.parameters())
    own_steps = [num_steps(one.rows, phase, cohort.training) for one in members]
    watched = [watched_rows(len(one.rows)) for one in members]
    yield from _run_phase(cohort, phase, 0, own_steps, holds_out=True)
    stopping = EarlyStopping(cohort.network, cohort.loss, cohort.rows, watched, parameters, least_gain=LEAST_GAIN)
    goes_on = torch.tensor([len(rows) > 0 for rows in watched], device=parameters[0].device)
    stopping.compare(parameters, goes_on)
    for number in count(2):
        can_afford = torch.tensor([number * steps_of <= most_steps for steps_of in own_steps])
        goes_on &= can_afford.to(goes_on.device)
        if not goes_on.any():
            break
        again = replace(phase, name=f"{phase.name}_{number}")
        own = [steps_of if is_going else 0 for steps_of, is_going in zip(own_steps, goes_on.tolist(), strict=True)]
        yield from _run_phase(cohort, again, -number, own, holds_out=True)
        goes_on &= stopping.compare(parameters, goes_on)
    load(parameters, stopping.chosen(parameters))


def _run_phase(
    cohort: _Cohort, phase: Phase, number: int, own_steps: Sequence[int], *, holds_out: bool = False
) -> Iterator[EpochReport]:
    """One phase: train until its longest member is done, then load each member's averaged or best parameters.

    `number` tells the draws of phases apart. A member of no steps stays as it is.
    """
    network, members, training, clock = cohort.network, cohort.members, cohort.training, cohort.clock
    parameters = list(network.parameters())
    like = parameters[0]
    schedule = plan_steps(own_steps, phase.epochs, training.averaged, like)
    losses_of = objective(network, cohort.loss, phase, training, clock)
    optimiser = AdamW(parameters, rate=phase.rate, weight_decay=training.weight_decay)
    averages = [parameter.detach().clone() for parameter in parameters]
    ranges = [following_range(member.rows, phase.rows) if phase.watches_next else (0, 0) for member in members]
    watched = [np.arange(*one) for one in ranges]
    stopping = EarlyStopping(network, cohort.loss, cohort.rows, watched, averages) if any(map(len, watched)) else None
    sums = like.new_zeros(2, phase.epochs + 1, len(members))  # of losses and of sizes of δ
    epoch, began = 0, time.perf_counter()
    batch_size = training.rows_per_minibatch(len(members[0].rows))
    draws = _draws(members, phase, number, length=max(own_steps), batch_size=batch_size, like=like, holds_out=holds_out)
    for step, (rows, draw) in enumerate(draws):
        losses, delta = losses_of(cohort.rows.batch(rows), draw)
        # A member past its end learns nothing more, so it cannot diverge on rows beyond its budget.
        optimiser.descend((losses * schedule.is_active[step]).sum())
        _update(averages, parameters, schedule.newest[step])
        if stopping is not None and schedule.is_ending[step].any():
            stopping.compare(averages, torch.from_numpy(schedule.is_ending[step]).to(like.device))
        found = torch.stack([losses.detach(), delta.detach().abs()])[:, None]
        sums.scatter_add_(1, schedule.epoch[step].expand(2, 1, -1), found)
        if step + 1 == schedule.ends[epoch]:
            means, sizes = (sums[:, epoch] / (schedule.epoch == epoch).sum(0)).tolist()
            epoch += 1
            _check(means, own_steps, members, f"epoch {epoch} of {phase.name}")
            deltas = tuple(size * clock.span / clock.window for size in sizes)
            unseen = _unseen_loss(cohort) if phase.rows == "all" else None
            seconds = time.perf_counter() - began
            yield EpochReport(phase.name, epoch, phase.epochs, tuple(means), deltas, seconds, unseen)
            began = time.perf_counter()
    load(parameters, averages if stopping is None else stopping.chosen(averages))


@torch.no_grad()
def _unseen_loss(cohort: _Cohort) -> float | None:
    """The mean loss of the members on the unseen rows of the first, if it has some: those of a candidate share them."""
    unseen = cohort.members[0].unseen
    if unseen is None:
        return None
    rows = DeviceRows.load([unseen] * len(cohort.members), cohort.rows.like.device, cohort.rows.like.dtype)
    batch = rows.batch(torch.arange(len(unseen), dtype=torch.int32).expand(len(cohort.members), -1).contiguous())
    found = cohort.loss(cohort.network(batch.dense, batch.codes, batch.u), batch.targets).mean().item()
    return found if math.isfinite(found) else None


def _draws(
    members: Sequence[Member],
    phase: Phase,
    number: int,
    *,
    length: int,
    batch_size: int,
    like: Tensor,
    holds_out: bool,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Row numbers and δ draws of each step; every member and phase has its own generators."""

    def generator(member: Member, purpose: int) -> torch.Generator:
        return torch.Generator().manual_seed(_seed(member.seed, purpose, number % _MOST_PHASES))

    streams = [
        row_numbers(
            *row_range(member.rows, phase.rows),
            batch_size,
            generator(member, _ROWS),
            length,
            holds_out=holds_out and len(member.rows) >= FEWEST_ROWS,
        )
        for member in members
    ]
    return steps(streams, [generator(member, _DELTAS) for member in members], length, like.device, like.dtype)


def _seed(seed: int, *purpose: int) -> int:
    low, high = np.random.SeedSequence((seed, *purpose)).generate_state(2)
    return int(high) << 32 | int(low)


def _update(averages: Sequence[Tensor], parameters: Sequence[Tensor], newest: Tensor) -> None:
    """Move the averages towards the newest parameters by a weight per member `(E,)`; 0 leaves them unchanged."""
    with torch.no_grad():
        for value, parameter in zip(averages, parameters, strict=True):
            value.lerp_(parameter, newest.view(-1, *[1] * (parameter.dim() - 1)))


def _check(losses: Sequence[float], own_steps: Sequence[int], members: Sequence[Member], when: str) -> None:
    for number, (loss, steps_of, member) in enumerate(zip(losses, own_steps, members, strict=True)):
        if steps_of and not math.isfinite(loss):
            raise CycleError(f"the loss of member {number} (seed {member.seed}) is {loss} in {when}")
