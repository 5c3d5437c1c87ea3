"""The leaders of online learning minimise exactly the sums that they name."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.paper.methods.ftpl import ftpl_method, perturbed, played
from benchmarks.paper.methods.ftrl import ftrl_method, leader_loss, regulariser
from benchmarks.paper.splits import Method, errors
from contracts.errors import CycleError
from contracts.task import Training
from tests.unit.benchmarks.paper.turning_rows import turning_split
from trainer.network.losses import Batch, cross_entropy
from trainer.network.network import CohortNetwork, architecture

RECIPE = Training(
    width=8, num_layers=1, calendar=(), batch_size=40, pretrain_epochs=40, pretrain_rate=0.01, finetune_epochs=10,
    weight_decay=0.0, averaged=0.0,
)  # fmt: skip


def network_of_ones() -> CohortNetwork:
    """Two members, x → relu(x + b) → (x + c, x + c): all weights are 1 in the first and 2 in the second."""
    shape = architecture(Training(width=1, num_layers=1, calendar=()), 1, 0, 2, is_timed=False)
    network = CohortNetwork(shape, [(), ()], [0, 1])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter[0], parameter[1] = 1.0, 2.0
    return network


def test_the_perturbed_leader_fits_known_rows_the_newest_again_and_the_newest_perturbed() -> None:
    known = turning_split(3).known
    rows = played(known, 2, seed=5)
    newest_rows = known.take(np.s_[80:])
    np.testing.assert_array_equal(rows.dense[:160], np.concatenate([known.dense, newest_rows.dense]))
    deviation = np.sqrt(known.dense.var(axis=0).mean())
    np.testing.assert_allclose(rows.dense[160:], perturbed(newest_rows, 2, deviation, 5).dense, atol=1e-5)
    np.testing.assert_array_equal(rows.targets[120:], np.tile(known.targets[80:], 2))
    np.testing.assert_array_equal(rows.windows[120:], 20)


def test_noise_has_its_deviation_is_each_seeds_own_and_spares_the_calendar() -> None:
    known = turning_split(2, num_points=2000).known
    ours, again, others = (perturbed(known, 1, 0.1, seed).dense - known.dense for seed in (5, 5, 6))
    assert ours[:, 0].std() == pytest.approx(0.1, rel=0.05)
    assert ours[:, 0].mean() == pytest.approx(0, abs=0.01)
    assert (ours[:, 1] == 0).all()
    np.testing.assert_array_equal(ours, again)
    assert np.abs(np.corrcoef(ours[:, 0], others[:, 0])[0, 1]) < 0.1


def test_the_regulariser_is_half_the_squared_weights_over_its_reach() -> None:
    """A hidden weight and bias, two head weights and two head biases: six ones, or six twos, and η is 100."""
    np.testing.assert_allclose(regulariser(network_of_ones()).detach(), [0.03, 0.12])


def test_the_regularised_leaders_loss_by_hand() -> None:
    """Both logits of a row are equal, so each loss is log 2 whatever the row; R counts by its share."""
    rows = Batch(
        torch.ones(2, 2, 1), torch.zeros(2, 2, 0, dtype=torch.long), torch.zeros(2, 2), torch.tensor([[0, 1]] * 2)
    )
    losses = leader_loss(network_of_ones(), cross_entropy, rows, share=0.5)
    np.testing.assert_allclose(losses.detach(), np.log(2) + np.array([0.015, 0.06]), rtol=1e-6)


@pytest.mark.parametrize("method", [ftpl_method, ftrl_method])
def test_a_leader_learns_what_does_not_turn_too_far(method: Method) -> None:
    split = turning_split(2)
    found = method(split, RECIPE, (3, 4))
    assert found.shape == (2, 40, 2)
    assert (errors(split, found) < 15).all()


@pytest.mark.parametrize("method", [ftpl_method, ftrl_method])
def test_a_member_answers_as_it_would_alone(method: Method) -> None:
    split = turning_split(2)
    both = method(split, RECIPE, (3, 4))
    np.testing.assert_allclose(both[1], method(split, RECIPE, (4,))[0], rtol=0, atol=1e-4)
    assert np.abs(both[0] - both[1]).max() > 0.01


def test_a_short_reach_keeps_the_weights_near_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    split = turning_split(2)
    free = np.abs(ftrl_method(split, RECIPE, (3,))).max()
    monkeypatch.setattr("benchmarks.paper.methods.ftrl._REACH", 0.01)
    assert np.abs(ftrl_method(split, RECIPE, (3,))).max() < 0.05 * free


def test_words_take_no_noise() -> None:
    split = turning_split(2)
    texts = replace(split.known, dense=split.known.dense[:, :0])
    with pytest.raises(CycleError, match="noise"):
        ftpl_method(replace(split, known=texts), RECIPE, (3,))
