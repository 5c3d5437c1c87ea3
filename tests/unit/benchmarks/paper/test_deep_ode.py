"""A differential equation that was learned from known domains carries points on, if they are the same points."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.paper.methods.deep_ode import carried, deep_ode_method, distances, learned, paths_of
from benchmarks.paper.methods.house import network_method
from benchmarks.paper.recipes import find_recipe
from benchmarks.paper.splits import Split, errors
from contracts.errors import CycleError
from contracts.task import Training
from tests.unit.benchmarks.paper.turning_rows import moons, turning_split
from trainer.data.encoder import Encoded

RECIPE = Training(
    width=24, num_layers=2, calendar=(), batch_size=40, pretrain_epochs=60, pretrain_rate=5e-3, finetune_epochs=10,
    weight_decay=0.0, averaged=0.0,
)  # fmt: skip


class Growth(nn.Module):
    """v(x) = x, whose solution after one domain is e·x."""

    def forward(self, _s: Tensor, points: Tensor) -> Tensor:
        return points


def altered(split: Split, **columns: object) -> Split:
    return replace(split, known=Encoded(**(vars(split.known) | columns)))


def test_points_are_carried_along_the_solution() -> None:
    points = torch.tensor([[[1.0, -2.0], [0.5, 0.0]]], dtype=torch.float64)
    torch.testing.assert_close(carried(Growth(), points), np.e * points, rtol=1e-4, atol=0)


def test_distances_by_hand() -> None:
    """Two rows, off by (3, 4) and by nothing: the mean of 25 and 0."""
    points = torch.tensor([[[1.0, 1.0], [2.0, 2.0]]])
    images = points + torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])
    torch.testing.assert_close(distances(images, points), torch.tensor([12.5]))


def test_a_turn_is_learned_and_carried_on_to_the_future() -> None:
    split = turning_split(5)
    paths = paths_of(split.known, 2)
    assert paths.shape == (5, 40, 2)
    field = learned(paths, RECIPE, (3, 4))
    images = carried(field, paths[-1].expand(2, -1, -1)).detach().numpy()
    moved = np.linalg.norm(split.unseen.dense - paths[-1].numpy(), axis=1)
    off = np.linalg.norm(images - split.unseen.dense, axis=2)
    assert (off.mean(1) < 0.05 * moved.mean()).all()


def test_the_future_is_answered_better_than_without_time() -> None:
    split = turning_split(5)
    ours = errors(split, deep_ode_method(split, RECIPE, (3, 4)))
    assert ours.max() < errors(split, network_method("baseline")(split, RECIPE, (3, 4))).min() - 5


def test_it_beats_the_time_oblivious_network_on_a_slice_of_moons() -> None:
    """Every seed of it, by more than 5 % of the rows, in a third of the published epochs."""
    split, training = moons(5), find_recipe("moons", "deep_ode", "paper").training
    training = training.model_copy(update={"pretrain_epochs": 10, "finetune_epochs": 8})
    ours = errors(split, deep_ode_method(split, training, range(3)))
    assert ours.max() < errors(split, network_method("baseline")(split, training, range(3))).min() - 5


def test_a_member_answers_as_it_would_alone() -> None:
    split, short = turning_split(3), RECIPE.model_copy(update={"pretrain_epochs": 3})
    both = deep_ode_method(split, short, (3, 4))
    np.testing.assert_allclose(both[1], deep_ode_method(split, short, (4,))[0], rtol=0, atol=1e-4)


def test_rows_that_are_not_the_same_points_are_refused() -> None:
    split = turning_split(3)
    swapped = split.known.targets.copy()
    swapped[:2] = swapped[1::-1]
    with pytest.raises(CycleError, match="targets"):
        deep_ode_method(altered(split, targets=swapped), RECIPE, (3,))
    with pytest.raises(CycleError, match="number"):
        deep_ode_method(replace(split, known=split.known.take(np.s_[1:])), RECIPE, (3,))
    with pytest.raises(CycleError, match="categories"):
        deep_ode_method(altered(split, codes=np.ones((120, 1), np.int64)), RECIPE, (3,))
