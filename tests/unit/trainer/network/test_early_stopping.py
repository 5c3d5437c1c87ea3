"""A fine-tuned member keeps its best epoch on the window that follows, and nothing of later epochs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import Phase, Plan, Rows
from trainer.network.losses import cross_entropy, erm
from trainer.network.minibatches import DeviceRows
from trainer.network.network import CohortNetwork
from trainer.network.training_loop import Member, draw_network, train

WEEK = Clock(window=7, offset=0, span=28)
NUM_EPOCHS = 6
RECIPE = Training(
    width=6, num_layers=1, time_width=4, trelu_width=3, calendar=(), batch_size=8, averaged=0, finetune_rate=0.05
)


def rows(seed: int) -> Encoded:
    """Twenty rows in each of three windows; in the newest, labels depend on the feature with the opposite sign."""
    generator = np.random.default_rng(seed)
    windows = np.repeat([-21, -14, -7], 20)
    dense = generator.normal(size=(60, 2)).astype(np.float32)
    is_above = dense[:, 0] + 0.5 * dense[:, 1] > 0
    targets = (is_above ^ ((windows == -7) & (dense[:, 1] > -0.5))).astype(np.int64)
    return Encoded(dense, np.zeros((60, 0), np.int64), WEEK.model_time(windows, 0), targets, windows)


def members(seeds: Sequence[int] = (0,)) -> list[Member]:
    return [Member(rows(seed), (), 2, seed) for seed in seeds]


def tuned(
    num_epochs: int, *, watches_next: bool, averaged: float = 0, of: Rows = 2, seeds: Sequence[int] = (0,)
) -> CohortNetwork:
    """A network fine-tuned on one window from its random start."""
    training = RECIPE.model_copy(update={"averaged": averaged})
    network = draw_network(members(seeds), training, True, torch.float64, CohortNetwork)
    phase = Phase("finetune_2", of, of, num_epochs, training.finetune_rate, "erm", watches_next)
    for _ in train(network, members(seeds), Plan(True, (phase,)), training, WEEK):
        pass
    return network


def weights(network: CohortNetwork, member: int = 0) -> Tensor:
    return torch.cat([parameter[member].detach().flatten() for parameter in network.parameters()])


def next_loss(network: CohortNetwork, seed: int = 0) -> float:
    """The plain loss on the newest window."""
    stock = DeviceRows.load([rows(seed)], torch.device("cpu"), torch.float64)
    with torch.no_grad():
        return float(erm(network, cross_entropy, stock.batch(torch.arange(40, 60)[None])))


def best_epoch(seed: int) -> int:
    losses = [next_loss(tuned(epochs, watches_next=False, seeds=(seed,)), seed) for epochs in range(1, NUM_EPOCHS + 1)]
    return 1 + int(np.argmin(losses))


def test_the_epoch_with_the_lowest_loss_on_the_next_window_is_restored() -> None:
    best = best_epoch(0)
    assert best < NUM_EPOCHS
    stopped = tuned(NUM_EPOCHS, watches_next=True)
    assert torch.equal(weights(stopped), weights(tuned(best, watches_next=False)))
    assert next_loss(stopped) < next_loss(tuned(NUM_EPOCHS, watches_next=False))


def test_each_member_keeps_its_own_best_epoch() -> None:
    seeds = (0, 1, 2, 3)
    best = [best_epoch(seed) for seed in seeds]
    assert len(set(best)) > 1
    together = tuned(NUM_EPOCHS, watches_next=True, seeds=seeds)
    for number, (seed, epochs) in enumerate(zip(seeds, best, strict=True)):
        alone = tuned(epochs, watches_next=False, seeds=(seed,))
        torch.testing.assert_close(weights(together, number), weights(alone), rtol=0, atol=1e-9)


def test_an_average_is_judged_as_it_would_be_kept() -> None:
    """Averaging begins in the second half; before that, an epoch's own parameters are compared."""
    best = best_epoch(0)
    assert best <= NUM_EPOCHS // 2
    stopped = tuned(NUM_EPOCHS, watches_next=True, averaged=0.5)
    averaged = tuned(NUM_EPOCHS, watches_next=False, averaged=0.5)
    early = tuned(best, watches_next=False)
    expected = early if next_loss(early) < next_loss(averaged) else averaged
    assert torch.equal(weights(stopped), weights(expected))


@pytest.mark.parametrize("of", [1, "all"])
def test_where_no_window_follows_the_phase_is_as_without(of: Rows) -> None:
    plain, watching = (tuned(NUM_EPOCHS, watches_next=watches, averaged=0.5, of=of) for watches in (False, True))
    assert torch.equal(weights(plain), weights(watching))


def test_losses_that_are_not_finite_leave_the_start() -> None:
    bad = members()
    rows = bad[0].rows
    assert isinstance(rows, Encoded)
    dense = rows.dense.copy()
    dense[40:] = np.nan
    bad[0] = replace(bad[0], rows=replace(rows, dense=dense))
    network = draw_network(bad, RECIPE, True, torch.float64, CohortNetwork)
    start = weights(network).clone()
    phase = Phase("finetune_2", 2, 2, NUM_EPOCHS, 0.05, "erm", watches_next=True)
    for _ in train(network, bad, Plan(True, (phase,)), RECIPE, WEEK):
        pass
    assert torch.equal(weights(network), start)
