"""The transformer's and the discriminator's losses are the paper's, and their images teach the future."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.paper.methods.generative import (
    Critics,
    discriminator_loss,
    generative_method,
    pair,
    transform,
    transformer_loss,
    transported,
)
from benchmarks.paper.methods.house import network_method
from benchmarks.paper.recipes import find_recipe
from benchmarks.paper.splits import errors
from contracts.errors import CycleError
from contracts.task import Training
from tests.unit.benchmarks.paper.turning_rows import CLOCK, moons, turning_split
from trainer.network.losses import Batch, cross_entropy
from trainer.network.network import CohortNetwork, architecture

RECIPE = Training(
    width=24, num_layers=2, calendar=(), batch_size=40, pretrain_epochs=60, pretrain_rate=5e-3, finetune_epochs=20,
    weight_decay=0.0, averaged=0.0,
)  # fmt: skip


def positive_part(num_outputs: int, num_inputs: int = 1) -> CohortNetwork:
    """F(x) = (max(x₁, 0), 0, …), time-oblivious, for one member."""
    shape = architecture(Training(width=1, num_layers=1, calendar=()), num_inputs, 0, num_outputs, is_timed=False)
    network = CohortNetwork(shape, [()], [0])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.get_parameter("hidden.0.weight")[0, 0, 0] = 1.0
        network.head.weight[0, 0, 0] = 1.0
    return network


def batch(*values: float, classes: tuple[int, ...] = (0, 1)) -> Batch:
    """Rows of one number at model time −0.1."""
    count = len(values)
    codes = torch.zeros(1, count, 0, dtype=torch.long)
    return Batch(torch.tensor(values).view(1, count, 1), codes, torch.full((1, count), -0.1), torch.tensor([classes]))


def log_sigmoid(x: float) -> float:
    return float(-np.log1p(np.exp(-x)))


def test_transport_by_hand() -> None:
    """Rows at 0 and 1, places 0, 1, 2 of a third each: each row's half is an end and a sixth of the middle."""
    before, after = np.array([[1.0], [0.0]], np.float32), np.array([[0.0], [2.0], [1.0]], np.float32)
    np.testing.assert_allclose(transported(before, after), [[5 / 3], [1 / 3]], rtol=1e-6)


def test_each_domain_is_paired_with_the_next() -> None:
    """A turn by 30° is small compared with the distance of two points, so most rows are carried to their own images."""
    split = turning_split(3, num_points=2)
    pairs = pair(split.known, 2, CLOCK)
    assert pairs.step == pytest.approx(0.1)
    np.testing.assert_array_equal(pairs.before.windows, [0, 0, 10, 10])
    np.testing.assert_array_equal(pairs.after.windows, [10, 10, 20, 20])
    np.testing.assert_allclose(pairs.images, pairs.after.dense, rtol=1e-6)


def test_the_discriminators_loss_by_hand() -> None:
    """Logits 1 and 2 of real rows, 0.5 and 3 of images."""
    found = discriminator_loss(positive_part(1), batch(1.0, 2.0), batch(0.5, 3.0))
    expected = -(log_sigmoid(1) + log_sigmoid(2)) / 2 - (log_sigmoid(-0.5) + log_sigmoid(-3)) / 2
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_the_transformers_loss_by_hand() -> None:
    """Images 0.5 and 3 with transport to 0 and 1: squares 0.25 and 4; class logits (x, 0)."""
    critics = Critics(positive_part(1), positive_part(2), cross_entropy)
    found = transformer_loss(critics, batch(0.5, 3.0), torch.tensor([[[0.0], [1.0]]]))
    convinced = -(log_sigmoid(0.5) + log_sigmoid(3)) / 2
    classified = -(log_sigmoid(0.5) + log_sigmoid(-3)) / 2
    torch.testing.assert_close(found, torch.tensor([convinced + 4.25 / 2 + classified]))


def test_the_discriminator_teaches_the_transformer_nothing() -> None:
    image = replace(batch(0.5, 3.0), dense=torch.tensor([[[0.5], [3.0]]], requires_grad=True))
    torch.autograd.backward(discriminator_loss(positive_part(1), batch(1.0, 2.0), image).sum())
    assert image.dense.grad is None


def test_an_image_is_a_row_one_window_later_with_its_numbers_moved() -> None:
    """x + max(x₁, 0) in the first column; the second stands for the calendar and stays."""
    rows = replace(batch(2.0, -1.0), dense=torch.tensor([[[2.0, 7.0], [-1.0, 8.0]]]))
    image = transform(positive_part(1, num_inputs=3), rows, num_numbers=1, step=0.1)
    torch.testing.assert_close(image.dense, torch.tensor([[[4.0, 7.0], [-1.0, 8.0]]]))
    torch.testing.assert_close(image.u, torch.zeros(1, 2))
    assert image.targets is rows.targets


def test_the_future_is_answered_better_than_without_time() -> None:
    split = turning_split(5)
    ours = errors(split, generative_method(split, RECIPE, (3, 4)))
    assert ours.max() < errors(split, network_method("baseline")(split, RECIPE, (3, 4))).min() - 5


def test_it_beats_the_time_oblivious_network_on_a_slice_of_moons() -> None:
    """Every seed of it, by more than 5 % of the rows, in a third of the published epochs."""
    split, training = moons(5), find_recipe("moons", "generative", "paper").training
    training = training.model_copy(update={"pretrain_epochs": 10, "finetune_epochs": 8})
    ours = errors(split, generative_method(split, training, range(3)))
    assert ours.max() < errors(split, network_method("baseline")(split, training, range(3))).min() - 5


def test_a_member_answers_as_it_would_alone() -> None:
    split, short = turning_split(3), RECIPE.model_copy(update={"pretrain_epochs": 3, "finetune_epochs": 2})
    both = generative_method(split, short, (3, 4))
    np.testing.assert_allclose(both[1], generative_method(split, short, (4,))[0], rtol=0, atol=1e-4)


def test_rows_without_numbers_or_without_a_second_domain_are_refused() -> None:
    with pytest.raises(CycleError, match="two domains"):
        generative_method(turning_split(1), RECIPE, (3,))
    split = turning_split(2)
    texts = replace(split.known, dense=split.known.dense[:, :0])
    with pytest.raises(CycleError, match="numbers"):
        generative_method(replace(split, known=texts), RECIPE, (3,))
