"""On a split the service's methods are what a service fits, and no answer depends on a withheld target."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.paper.methods.house import extrapolated_linear_method, gbdt_method, naive_method, network_method
from benchmarks.paper.splits import Method, Split, errors, withheld_targets
from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.data.labels import LabelUnit
from trainer.methods.plans import PLANS
from trainer.network.training_loop import finish, fit, outputs

CLOCK = Clock(window=10, offset=0, span=60)
SEEDS = (3, 4)
RECIPE = Training(
    width=6, num_layers=1, time_width=4, trelu_width=3, embedding=2, calendar=(), batch_size=64, pretrain_epochs=3,
    pretrain_rate=0.02, finetune_windows=2, finetune_epochs=2,
)  # fmt: skip
HOUSE: dict[str, Method] = {
    **{name: network_method(name) for name in PLANS},
    "naive": naive_method,
    "gbdt": gbdt_method,
    "extrapolated_linear": extrapolated_linear_method,
}


def split(is_classified: bool, seed: int = 0) -> Split:
    """Five known domains of 100 rows and the next; the target is 5 + 2 times the first feature."""
    generator = np.random.default_rng(seed)
    at = np.sort(generator.integers(0, 60, 600))
    dense = generator.normal(size=(600, 2)).astype(np.float32)
    outputs_ = dense[:, 0] + 0.2 * generator.normal(size=600)
    rows = Encoded(
        dense=dense,
        codes=generator.integers(0, 3, (600, 1)),
        u=CLOCK.model_time(at, 50),
        targets=(outputs_ > 0).astype(np.int64) if is_classified else outputs_.astype(np.float32),
        windows=CLOCK.window_starts(at),
    )
    known, unseen = (rows.take(chosen) for chosen in (at < 50, at >= 50))
    return Split(
        origin=5,
        clock=CLOCK,
        known=known,
        unseen=withheld_targets(unseen),
        answers=(unseen.targets if is_classified else 5 + 2 * unseen.targets).astype(np.float64),
        vocabulary_sizes=(3,),
        num_outputs=2,
        metric="error_percent" if is_classified else "mae",
        label_unit=LabelUnit() if is_classified else LabelUnit(5.0, 2.0),
    )


def service_outputs(given: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    network = finish(fit(given.members(seeds), training, CLOCK, torch.device("cpu")))
    return outputs(network, given.unseen)


@pytest.mark.parametrize("is_classified", [True, False])
@pytest.mark.parametrize("name", HOUSE)
def test_each_answers_every_row_once_for_each_seed(name: str, is_classified: bool) -> None:
    given = split(is_classified)
    found = HOUSE[name](given, RECIPE, SEEDS)
    assert found.shape == (2, len(given.answers), 2)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    naive = errors(given, naive_method(given, RECIPE, SEEDS))
    if name != "naive":
        assert (errors(given, found) < naive).all()


@pytest.mark.parametrize("name", PLANS)
def test_a_network_is_the_one_that_a_service_would_fit(name: str) -> None:
    given = split(is_classified=True)
    ours = service_outputs(given, RECIPE.model_copy(update={"method": name}), SEEDS)
    np.testing.assert_array_equal(HOUSE[name](given, RECIPE, SEEDS), ours)


def test_naive_is_the_newest_domains_mean() -> None:
    given = split(is_classified=False)
    newest = given.known.targets[given.known.windows == 40]
    found = naive_method(given, RECIPE, SEEDS)
    np.testing.assert_allclose(found[1, 0], [newest.mean(), np.log(newest.std())], rtol=1e-5)
    expected = np.abs(5 + 2 * newest.mean() - given.answers).mean()
    np.testing.assert_allclose(errors(given, found), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["gbdt", "extrapolated_linear"])
def test_the_scale_of_a_regression_is_that_of_its_residuals(name: str) -> None:
    given = split(is_classified=False)
    found = HOUSE[name](given, RECIPE, SEEDS)[0].astype(np.float64)
    residuals = (given.answers - 5) / 2 - found[:, 0]
    assert np.exp(found[0, 1]) == pytest.approx(residuals.std(), rel=0.3)


@pytest.mark.parametrize("name", ["gi", "gbdt", "extrapolated_linear"])
def test_the_scored_rows_of_others_change_no_answer(name: str) -> None:
    """Half of the unseen rows are answered as they are among all of them."""
    given = split(is_classified=True)
    half = given.unseen.take(np.s_[:40])
    few = HOUSE[name](replace(given, unseen=half, answers=given.answers[:40]), RECIPE, SEEDS)
    np.testing.assert_allclose(few, HOUSE[name](given, RECIPE, SEEDS)[:, :40], rtol=0, atol=1e-5)
