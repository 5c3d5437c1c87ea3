"""CIDA's game: its loss by hand, the encoder pulled against the discriminator, and features that hide the time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.datasets import default_folder
from benchmarks.paper.methods.cida import Game, cida_method, draw_game, play
from benchmarks.paper.methods.house import network_method
from benchmarks.paper.recipes import find_recipe
from benchmarks.paper.runs import missing_file
from benchmarks.paper.sets import SETS
from benchmarks.paper.splits import Split, errors, withheld_targets
from contracts.clock import Clock
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.network.losses import Batch
from trainer.network.minibatches import DeviceRows
from trainer.network.network import CohortNetwork

SEEDS = range(3)
RECIPE = Training(width=8, calendar=(), batch_size=50, pretrain_epochs=2, finetune_epochs=1, pretrain_rate=1e-2)


def split(is_classified: bool = True) -> Split:
    """Four known domains of 100 rows, and the next. The first number gives the class, the second the domain."""
    generator, windows = np.random.default_rng(0), np.repeat(np.arange(5) * 10, 100)
    classes = generator.integers(0, 2, 500)
    dense = np.stack([2.0 * classes - 1, (windows - 15) / 11], axis=1) + 0.3 * generator.normal(size=(500, 2))
    rows = Encoded(
        dense=dense.astype(np.float32),
        codes=np.zeros((500, 0), np.int64),
        u=((windows - 40) / 50).astype(np.float32),
        targets=classes if is_classified else (2 * classes - 1).astype(np.float32),
        windows=windows,
    )
    known, unseen = (rows.take(part) for part in (np.s_[:400], np.s_[400:]))
    return Split(
        origin=4,
        clock=Clock(window=10, offset=0, span=50),
        known=known,
        unseen=withheld_targets(unseen),
        answers=unseen.targets.astype(np.float64),
        vocabulary_sizes=(),
        num_outputs=2,
        metric="error_percent" if is_classified else "mae",
    )


def constant(game: Game, told: float) -> Game:
    """The same with a discriminator that always answers this."""
    with torch.no_grad():
        for parameter in game.discriminator.parameters():
            parameter.zero_()
        assert isinstance(game.discriminator, CohortNetwork)
        game.discriminator.head.bias.fill_(told)
    return game


def batch_of(given: Split, num_rows: int = 400) -> Batch:
    stock = DeviceRows.load([given.known] * len(SEEDS), torch.device("cpu"), torch.float32)
    return stock.batch(torch.arange(num_rows).expand(len(SEEDS), -1))


def test_the_discriminators_loss_is_that_by_hand() -> None:
    """u is −.8, −.6, −.4, −.2 in equal parts: s is ±1.342, ±.447; answering ½ misses by 1 + ¼ in the square."""
    given = split()
    game, batch = constant(draw_game(given, RECIPE, SEEDS), 0.5), batch_of(given)
    torch.testing.assert_close(game.discriminator_loss(game.features(batch), batch.u), torch.full((3,), 1.25))
    alone = batch.first(1)
    s = -3 / np.sqrt(5)
    expected = torch.full((3,), (0.5 - s) ** 2, dtype=torch.float32)
    torch.testing.assert_close(game.discriminator_loss(game.features(alone), alone.u), expected)


def test_the_encoder_is_pulled_against_the_discriminator() -> None:
    """By λ times the discriminator's own gradient, reversed, added to that of the predictor."""
    given = split()
    game, batch = draw_game(given, RECIPE, SEEDS), batch_of(given, 7)
    z = game.features(batch).detach().requires_grad_()

    def gradient(losses: Tensor) -> Tensor:
        return torch.autograd.grad(losses.sum(), z)[0]

    predicted = gradient(game.encoder_loss(z, batch) + 0.5 * game.discriminator_loss(z, batch.u))
    told = gradient(game.discriminator_loss(z, batch.u))
    assert told.abs().max() > 1e-4
    torch.testing.assert_close(gradient(game.encoder_loss(z, batch)), predicted - 0.5 * told)


def test_features_lose_the_time_and_keep_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A discriminator without information misses by 1 in the square; one that the encoder helps misses by little."""
    given = split()
    misses: dict[float, Tensor] = {}
    for erasure in (-0.5, 0.5):
        monkeypatch.setattr("benchmarks.paper.methods.cida._ERASURE", erasure)
        game, batch = draw_game(given, RECIPE, SEEDS), batch_of(given)
        play(game, (batch for _step in range(200)), 1e-2, 0.0)
        misses[erasure] = game.discriminator_loss(game.features(batch), batch.u)
    assert misses[-0.5].max() < 0.2
    assert misses[0.5].min() > 0.8
    recipe = RECIPE.model_copy(update={"pretrain_epochs": 10})
    assert (errors(given, cida_method(given, recipe, SEEDS)) < 10).all()


def test_it_predicts_numbers_too() -> None:
    given = split(is_classified=False)
    found = cida_method(given, RECIPE.model_copy(update={"pretrain_epochs": 20}), SEEDS)
    assert (errors(given, found) < 0.5).all()


def test_members_play_as_they_would_alone() -> None:
    given = split()
    found = cida_method(given, RECIPE, SEEDS)
    np.testing.assert_allclose(cida_method(given, RECIPE, [1])[0], found[1], rtol=0, atol=1e-3)
    np.testing.assert_array_equal(cida_method(given, RECIPE, SEEDS), found)


def test_a_game_that_diverges_is_told() -> None:
    given = split()
    absurd = replace(given.known, dense=np.full_like(given.known.dense, np.inf))
    with pytest.raises(CycleError, match="did not converge"):
        cida_method(replace(given, known=absurd), RECIPE, SEEDS)


def test_it_beats_the_time_oblivious_network_on_a_slice_of_moons() -> None:
    """Every seed of it does, and on average by more than 3 % of the rows.

    Which seed does best depends on the processor: two players against each other amplify what it rounds differently.
    """
    if missing_file(default_folder(), "moons"):
        pytest.skip("the file of 2-Moons is not there")
    given, training = SETS["moons"](default_folder()).split(5), find_recipe("moons", "cida", "paper").training
    ours = errors(given, cida_method(given, training, SEEDS))
    theirs = errors(given, network_method("baseline")(given, training, SEEDS))
    assert ours.max() < theirs.min()
    assert ours.mean() < theirs.mean() - 3
