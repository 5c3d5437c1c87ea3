"""AdaGraph's norms are those of two domains computed by hand, for units and for channels, and settle on known rows."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.datasets import default_folder
from benchmarks.paper.methods.adagraph import DomainNorm, GraphNetwork, adagraph_method, shares
from benchmarks.paper.methods.house import network_method
from benchmarks.paper.networks import BagNetwork, ConvNetwork
from benchmarks.paper.recipes import find_recipe
from benchmarks.paper.runs import missing_file
from benchmarks.paper.sets import SETS
from benchmarks.paper.splits import Split, errors, withheld_targets
from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.network.layers import Dual
from trainer.network.network import Build, CohortNetwork, Network
from trainer.network.training_loop import draw_network, outputs

SEEDS = range(3)
RECIPE = Training(width=8, num_layers=2, calendar=(), batch_size=16, pretrain_epochs=2, finetune_epochs=1)
BUILDS: dict[str, tuple[Build[Network], tuple[int, ...]]] = {
    "rows": (CohortNetwork, (5, 5)),
    "texts": (BagNetwork, (5,)),
    "images": (ConvNetwork, ()),
}
# Two known domains and the future, one window apart.
TIMES = torch.tensor([0.0, 1.0, 2.0])


def norm(num_units: int = 1) -> DomainNorm:
    layer = DomainNorm(1, num_units, shares(TIMES, bandwidth=1.0))
    with torch.no_grad():
        layer.scale[0, 0], layer.scale[0, 1] = 2.0, 3.0
        layer.shift[0, 0], layer.shift[0, 1] = 5.0, 7.0
    return layer


def place(*domains: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor([domains]), 3).float()


def split(kind: str) -> Split:
    """Two known domains of 20 rows, and the next: rows with categories, texts of two words, or images of 4 × 4."""
    generator, windows = np.random.default_rng(0), np.repeat([0, 10, 20], 20)
    rows = Encoded(
        dense=generator.normal(size=(60, 0 if kind == "texts" else 16)).astype(np.float32),
        codes=generator.integers(0, 5, (60, 0 if kind == "images" else 2)),
        u=((windows - 20) / 30).astype(np.float32),
        targets=generator.integers(0, 2, 60),
        windows=windows,
    )
    known, unseen = (rows.take(part) for part in (np.s_[:40], np.s_[40:]))
    build, vocabulary_sizes = BUILDS[kind]
    return Split(
        origin=2,
        clock=Clock(window=10, offset=0, span=30),
        known=known,
        unseen=withheld_targets(unseen),
        answers=unseen.targets.astype(np.float64),
        vocabulary_sizes=vocabulary_sizes,
        num_outputs=2,
        metric="error_percent",
        build=build,
    )


def moons(origin: int) -> Split:
    if missing_file(default_folder(), "moons"):
        pytest.skip("the file of 2-Moons is not there")
    return SETS["moons"](default_folder()).split(origin)


def test_the_kernel_says_what_each_domain_has_of_the_others() -> None:
    near, next_to = 1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(-1.5))
    expected = [[near, 1 - near], [1 - near, near], [1 - next_to, next_to]]
    np.testing.assert_allclose(shares(TIMES, 1.0), expected, rtol=1e-6)


def test_two_domains_are_normed_as_by_hand() -> None:
    """Rows 1, 3 of domain 0 and 10, 14, 18 of domain 1; w is the first row of the kernel, then its last."""
    layer = norm()
    layer.place = place(0, 0, 1, 1, 1)
    totals = layer.totals(torch.tensor([[[1.0], [3.0], [10.0], [14.0], [18.0]]]))
    for domain, first in ((0, 1 / (1 + np.exp(-0.5))), (2, 1 - 1 / (1 + np.exp(-1.5)))):
        last = 1 - first
        count = 2 * first + 3 * last
        mean = (4 * first + 42 * last) / count
        variance = (10 * first + 620 * last) / count - mean**2
        factor = (2 * first + 3 * last) / np.sqrt(variance + 1e-5)
        offset = 5 * first + 7 * last - mean * factor
        found = [column[0, domain, 0].item() for column in layer.line(totals)]
        np.testing.assert_allclose(found, [factor, offset], rtol=1e-5)
        layer.settled, layer.place = totals, place(domain)
        answer = layer(Dual(torch.tensor([[[20.0]]]), None), None).value
        assert answer.item() == pytest.approx(max(0.0, 20 * factor + offset), rel=1e-5)


def test_the_pixels_of_a_channel_are_normed_as_rows_of_a_unit() -> None:
    layer, images = norm(num_units=4), torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    layer.place = place(0, 1)
    found = layer(Dual(images, None), None).value
    layer.place = place(*[0] * 9, *[1] * 9)
    flat = images.flatten(2).transpose(1, 2).reshape(1, 18, 4)
    expected = layer(Dual(flat, None), None).value
    torch.testing.assert_close(found.flatten(2).transpose(1, 2).reshape(1, 18, 4), expected)


def test_norms_settle_on_the_known_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kernel that sees one domain only, what a ReLU reads has mean 0 and deviation 1 in each domain."""
    monkeypatch.setattr("benchmarks.paper.methods.adagraph._BANDWIDTH", 0.05)
    given = split("rows")
    begins = torch.tensor([-2 / 3, -1 / 3, 0])
    build = partial(GraphNetwork, build=CohortNetwork, begins=begins, times=TIMES)
    network = draw_network(given.members(SEEDS), RECIPE, False, torch.float32, build)
    network.settle(given.known)
    seen: list[Tensor] = []
    for layer in network.norms:
        layer.relu.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0].value))
    second = given.known.take(np.s_[20:])
    outputs(network, second)
    assert len(seen) == 2
    for values in seen:
        torch.testing.assert_close(values.mean(1), torch.zeros(3, 8), rtol=0, atol=1e-4)
        torch.testing.assert_close(values.std(1, correction=0), torch.ones(3, 8), rtol=0, atol=1e-2)


@pytest.mark.parametrize("kind", BUILDS)
def test_every_network_of_the_paper_is_normed(kind: str) -> None:
    """Members answer as they would alone, and a row as it would among others."""
    given = split(kind)
    found = adagraph_method(given, RECIPE, SEEDS)
    np.testing.assert_allclose(adagraph_method(given, RECIPE, [1])[0], found[1], rtol=0, atol=1e-4)
    few = given.unseen.take(np.s_[:7])
    answers = adagraph_method(replace(given, unseen=few), RECIPE, SEEDS)
    np.testing.assert_allclose(answers, found[:, :7], rtol=0, atol=1e-5)


def test_a_part_of_a_cohort_answers_as_before() -> None:
    given = split("rows")
    build = partial(GraphNetwork, build=CohortNetwork, begins=torch.tensor([-2 / 3, -1 / 3, 0]), times=TIMES)
    network = draw_network(given.members(SEEDS), RECIPE, False, torch.float32, build)
    network.settle(given.known)
    expected = outputs(network, given.unseen)[[2, 0]]
    np.testing.assert_allclose(outputs(network, given.unseen, [2, 0]), expected, rtol=0, atol=1e-6)


def test_it_beats_the_time_oblivious_network_on_a_slice_of_moons() -> None:
    """Every seed of it, by more than 5 % of the rows."""
    split, training = moons(5), find_recipe("moons", "adagraph", "paper").training
    ours = errors(split, adagraph_method(split, training, SEEDS))
    assert ours.max() < errors(split, network_method("baseline")(split, training, SEEDS)).min() - 5
