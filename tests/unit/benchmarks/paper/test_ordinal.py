"""The ordinal classifier orders rows in time, and pushes rows to where their class goes."""

import numpy as np
import pytest
import torch

from benchmarks.datasets import default_folder
from benchmarks.paper.methods.house import network_method
from benchmarks.paper.methods.ordinal import Rows, fit_ordinal, ordinal_method, partners, push, tell
from benchmarks.paper.recipes import find_recipe
from benchmarks.paper.runs import missing_file
from benchmarks.paper.sets import SETS
from benchmarks.paper.splits import Split, errors
from contracts.clock import Clock
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded

SEEDS = range(3)
NUM_DOMAINS, NUM_ROWS = 5, 200
RECIPE = Training(width=16, calendar=(), batch_size=100, pretrain_epochs=30, pretrain_rate=1e-2, weight_decay=0)


def shifting() -> Rows:
    """Deviation ½: in the first number class 0 moves forward by 0.4 a domain, class 1 back; the second is still."""
    generator, times = np.random.default_rng(0), np.repeat(np.arange(NUM_DOMAINS), NUM_ROWS)
    classes = generator.integers(0, 2, len(times))
    numbers = 0.5 * generator.normal(size=(len(times), 2))
    numbers[:, 0] += np.array([0.4, -0.4])[classes] * times
    return Rows(torch.from_numpy(numbers).float(), torch.from_numpy(classes), torch.from_numpy(times).float())


def part(rows: Rows, time: float) -> Rows:
    chosen = rows.times == time
    return Rows(rows.numbers[chosen], rows.classes[chosen], rows.times[chosen])


def moons(origin: int) -> Split:
    if missing_file(default_folder(), "moons"):
        pytest.skip("the file of 2-Moons is not there")
    return SETS["moons"](default_folder()).split(origin)


def test_rows_of_a_shifting_gaussian_move_the_way_their_class_goes() -> None:
    rows = shifting()
    newest = part(rows, NUM_DOMAINS - 1)
    moved = push(fit_ordinal(rows, RECIPE, SEEDS), newest) - newest.numbers
    for member in moved:
        assert member[newest.classes == 0, 0].mean() > 0.15
        assert member[newest.classes == 1, 0].mean() < -0.15
        assert member[:, 1].mean().abs() < 0.1
    assert moved.norm(dim=-1).max() <= 6 * 0.05 + 1e-5


def test_later_rows_are_told_from_earlier_ones() -> None:
    rows = shifting()
    ordinal = fit_ordinal(rows, RECIPE, SEEDS)
    first, last = (torch.tensor([[0.4 * time, 0.0]]).expand(3, 1, 2) for time in (0.0, NUM_DOMAINS - 1.0))
    own = torch.zeros(3, 1, dtype=torch.int64)
    with torch.no_grad():
        assert tell(ordinal, first, last, own).min() > 2
        assert tell(ordinal, last, first, own).max() < -2
        assert tell(ordinal, first, last, own + 1).max() < 2


def test_a_row_that_looks_late_enough_stays() -> None:
    rows = shifting()
    ordinal = fit_ordinal(rows, RECIPE.model_copy(update={"pretrain_epochs": 0}), [0])
    with torch.no_grad():
        ordinal.head.bias.fill_(1e3)
    torch.testing.assert_close(push(ordinal, rows)[0], rows.numbers, rtol=0, atol=0)
    with torch.no_grad():
        ordinal.head.bias.fill_(-1e3)
    assert (push(ordinal, rows)[0] != rows.numbers).any(-1).all()


def test_partners_are_of_the_same_class() -> None:
    rows = shifting()
    first = torch.arange(len(rows.classes)).expand(2, -1)
    second = partners(rows.classes, first, [torch.Generator().manual_seed(seed) for seed in (0, 1)])
    assert (rows.classes[second] == rows.classes[first]).all()
    assert not torch.equal(second[0], second[1])
    for member in second:
        assert len(member.unique(return_counts=True)[0]) > len(member) / 2


def test_what_has_no_numbers_or_one_domain_is_refused() -> None:
    split = moons(1)
    with pytest.raises(CycleError, match="two domains"):
        ordinal_method(split, Training(calendar=(), pretrain_epochs=1), [0])
    with pytest.raises(CycleError, match="perturbs numbers"):
        ordinal_method(split, Training(calendar=("day",), pretrain_epochs=1), [0])


def test_a_regression_is_one_class() -> None:
    rows = Encoded(
        dense=np.zeros((2, 1), np.float32),
        codes=np.zeros((2, 0), np.int64),
        u=np.array([-0.2, -0.1], np.float32),
        targets=np.array([0.5, 1.5], np.float32),
        windows=np.array([30, 40]),
    )
    found = Rows.of(rows, Clock(window=10, offset=0, span=100), 1)
    assert found.classes.tolist() == [0, 0]
    assert found.times.tolist() == [0, 1]


def test_it_beats_the_time_oblivious_network_on_a_slice_of_moons() -> None:
    """Every seed of it, by more than 5 % of the rows; the same seeds answer the same."""
    split, training = moons(5), find_recipe("moons", "ordinal", "paper").training
    found = ordinal_method(split, training, SEEDS)
    ours = errors(split, found)
    assert ours.max() < errors(split, network_method("baseline")(split, training, SEEDS)).min() - 5
    short = training.model_copy(update={"pretrain_epochs": 2, "finetune_epochs": 1})
    together = ordinal_method(split, short, SEEDS)
    np.testing.assert_array_equal(together, ordinal_method(split, short, SEEDS))
    np.testing.assert_allclose(together[1], ordinal_method(split, short, [1])[0], rtol=0, atol=1e-3)
