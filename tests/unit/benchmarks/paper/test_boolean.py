"""The Boolean set is the paper's, its scores are exact, and what docs/boolean.md says of it holds."""

import functools

import numpy as np
import pytest
import torch

from benchmarks.paper.boolean import (
    KNOWN,
    TARGET,
    Result,
    accuracy,
    at,
    best_polynomial,
    chances,
    chosen,
    draw,
    joint,
    learn,
    learned,
    log_loss,
    naive_bayes,
    score,
    scores,
    settings,
    split,
)
from benchmarks.paper.splits import errors
from benchmarks.paper.weights import Activation, WeightsNetwork
from contracts.task import Training
from trainer.network.network import Network, architecture

# torch.func.jvp itself calls what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def network(activation: Activation, seeds: tuple[int, ...] = (1, 2), is_timed: bool = True) -> WeightsNetwork:
    shape = architecture(Training(calendar=()), 5, 0, 2, is_timed)
    return WeightsNetwork(shape, [()] * len(seeds), seeds, torch.float64, activation)


def test_chances_are_the_papers() -> None:
    table = [chances(t).round(2).tolist() for t in (*KNOWN, TARGET)]
    assert table == [
        [0.6, 0.6, 0.99, 0.5, 0.5],
        [0.7, 0.6, 0.5, 0.99, 0.5],
        [0.8, 0.6, 0.5, 0.5, 0.99],
        [0.9, 0.6, 0.5, 0.5, 0.5],
    ]


def test_drawn_rows_follow_the_chances() -> None:
    rows = draw(seed=0, num_rows=20_000)
    for t in KNOWN:
        at_t = rows.windows == rows.windows.min() + t * 86_400_000_000
        equal = rows.dense[at_t] == rows.targets[at_t, None]
        np.testing.assert_allclose(equal.mean(0), chances(t), atol=0.015)
        np.testing.assert_allclose(rows.u[at_t], t)


@pytest.mark.parametrize("t", [*KNOWN, TARGET])
def test_scores_are_those_of_many_drawn_rows(t: int) -> None:
    weights = np.array([1.0, -0.5, 2.0, 0.3, 0.7, -1.13])
    rows = draw(seed=1, times=[t], num_rows=200_000)
    f = rows.dense @ weights[:-1] + weights[-1]
    assert accuracy(weights, t) == pytest.approx(100 * np.mean((f > 0) == rows.targets), abs=0.5)
    losses = np.logaddexp(0, np.where(rows.targets == 1, -f, f))
    assert log_loss(weights, t) == pytest.approx(losses.mean(), abs=0.01)


def test_a_split_is_a_draw_whose_last_snapshot_is_withheld() -> None:
    made = split(seed=3)
    assert set(made.unseen.targets.tolist()) == {-1}
    assert made.unseen.u.tolist() == [3.0] * 1000
    np.testing.assert_array_equal(made.known.targets, draw(seed=3).targets)
    f = scores(naive_bayes(chances(TARGET)))[(made.unseen.dense @ [16, 8, 4, 2, 1]).astype(int)]
    outputs = np.stack([np.zeros_like(f), f], axis=-1)[None].astype(np.float32)
    assert errors(made, outputs)[0] == pytest.approx(10, abs=4)


def test_no_rule_beats_the_one_that_knows_the_chances() -> None:
    for t in (*KNOWN, TARGET):
        best = 100 * joint(t).max(1).sum()
        assert accuracy(naive_bayes(chances(t)), t) == pytest.approx(best)
    assert 100 * joint(TARGET).max(1).sum() == pytest.approx(90)


def test_constant_weights_are_far_better_than_a_coin_at_the_target() -> None:
    assert accuracy(at(best_polynomial(0), TARGET), TARGET) == pytest.approx(68.75)
    assert accuracy(at(best_polynomial(0, times=(2,)), TARGET), TARGET) == pytest.approx(50, abs=0.01)


def test_weights_linear_in_time_are_worse_than_constant_ones_at_the_target() -> None:
    assert accuracy(at(best_polynomial(1), TARGET), TARGET) == pytest.approx(60)


def test_a_feature_that_is_known_to_drift_is_worth_much() -> None:
    pooled = np.mean([chances(t) for t in KNOWN], axis=0)
    assert accuracy(naive_bayes(pooled), TARGET) == pytest.approx(68.75)
    assert accuracy(naive_bayes(np.append(0.9, pooled[1:])), TARGET) == pytest.approx(86.25)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_dual_pass_gives_value_and_rate_of_forward_mode(activation: Activation) -> None:
    made = network(activation)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randint(0, 2, (2, 7, 5), generator=generator).double()
    u = 4 * torch.rand(2, 7, generator=generator, dtype=torch.float64)
    codes = torch.zeros(2, 7, 0, dtype=torch.int64)
    expected = torch.func.jvp(functools.partial(made, dense, codes), (u,), (torch.ones_like(u),))
    for got, wanted in zip(made.dual(dense, codes, u), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-9)
    alone = made.select([1]).dual(dense[1:], codes[1:], u[1:])
    for got, wanted in zip(alone, expected, strict=True):
        torch.testing.assert_close(got, wanted[1:], rtol=0, atol=1e-9)


def test_a_time_oblivious_network_has_constant_weights() -> None:
    made = network("relu", is_timed=False)
    weights = made.weights(torch.tensor([[0, 2.5], [1, 3]], dtype=torch.float64)).value
    assert torch.equal(weights[:, 0], weights[:, 1])
    assert isinstance(made, Network)


def test_erm_follows_the_flares_and_is_a_coin_at_the_target() -> None:
    recipe = Training(calendar=(), batch_size=300, pretrain_epochs=5, pretrain_rate=1e-2, gi_weight=0, averaged=0)
    recipe = recipe.model_copy(update={"finetune_windows": 0})
    weights = learned(learn(recipe, seeds=[0, 1]), (*KNOWN, TARGET))
    for t in KNOWN:
        assert accuracy(weights[:, t], t).min() > 97
    assert accuracy(weights[:, TARGET], TARGET).max() < 56


def test_the_choice_does_not_look_at_the_target() -> None:
    setting = next(settings(["relu"], [1]))
    good, bad = (np.full(2, accuracy) for accuracy in (80.0, 50.0))
    first = Result(setting, chosen_by=0.7, known=good, before=bad, target=bad, still=bad)
    second = Result(setting, chosen_by=0.8, known=good, before=bad, target=good, still=bad)
    assert chosen([second, first]) is first


def test_every_setting_trains_and_is_told_apart() -> None:
    short = list(settings(["tanh"], [1]))
    assert len({(setting.method, setting.name) for setting in short}) == len(short)
    fewest = {setting.method: setting for setting in short}
    for setting in fewest.values():
        result = score(setting, seeds=[0])
        assert 0.5 < result.chosen_by < 2
        assert result.target.shape == (1,)
