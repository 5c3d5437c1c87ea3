"""A member's fit depends only on its own rows, seed and recipe."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts.clock import Clock
from contracts.errors import CycleError
from contracts.task import Method, Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import PLANS
from trainer.network.minibatches import row_numbers
from trainer.network.network import CohortNetwork
from trainer.network.training_loop import EpochReport, Member, finish, fit, outputs

WEEK = Clock(window=7, offset=0, span=28)
CPU = torch.device("cpu")
RECIPE = Training(
    width=6, num_layers=2, embedding=2, time_width=4, trelu_width=3, calendar=("week",), batch_size=16,
    pretrain_epochs=2, finetune_windows=2, finetune_epochs=2,
)  # fmt: skip
SOLO_CHANGES: list[dict[str, str]] = [{"delta_mode": mode} for mode in ("random", "adversarial", "warm", "grid")]
SOLO_CHANGES += [{"method": method} for method in PLANS if method != "gi"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rows(num_rows: int = 60, seed: int = 0, vocabulary_size: int = 4, is_classified: bool = True) -> Encoded:
    """Sorted rows of four windows before the cutoff."""
    generator = np.random.default_rng(seed)
    at = np.sort(generator.integers(-28, 0, num_rows))
    dense = generator.normal(size=(num_rows, 4)).astype(np.float32)
    noisy = (dense[:, 0] + 0.3 * generator.normal(size=num_rows)).astype(np.float32)
    targets = (noisy > 0).astype(np.int64) if is_classified else noisy
    codes = generator.integers(0, vocabulary_size, (num_rows, 1))
    return Encoded(dense, codes, WEEK.model_time(at, 0), targets, at - at % 7)


def member(number: int = 0, num_rows: int = 60, vocabulary_size: int = 4) -> Member:
    return Member(rows(num_rows, number, vocabulary_size), (vocabulary_size,), 2, seed=number)


def train(
    members: list[Member], training: Training = RECIPE, dtype: torch.dtype = torch.float32, device: torch.device = CPU
) -> tuple[CohortNetwork, list[EpochReport]]:
    reports: list[EpochReport] = []
    return finish(fit(members, training, WEEK, device, dtype), reports.append), reports


def recipe(**changes: Any) -> Training:
    return Training(**{**RECIPE.model_dump(), **changes})


def weights(network: CohortNetwork, number: int = 0) -> dict[str, Tensor]:
    return {name: parameter[number].detach() for name, parameter in network.named_parameters()}


def assert_same(mine: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, weight in mine.items():
        assert torch.equal(weight, other[name]), name


def test_same_seed_gives_the_same_weights() -> None:
    first, second = (train([member(3), member(4)])[0] for _ in range(2))
    for number in (0, 1):
        assert_same(weights(first, number), weights(second, number))


def test_another_seed_gives_other_weights() -> None:
    data = rows()
    network, _ = train([Member(data, (4,), 2, seed) for seed in (0, 1)])
    assert not torch.equal(weights(network, 0)["head.weight"], weights(network, 1)["head.weight"])


def newest_windows(data: Encoded, num_windows: int) -> Encoded:
    is_newest = data.windows >= np.unique(data.windows)[-num_windows]
    return data.take(is_newest)


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("changes", SOLO_CHANGES, ids=lambda changes: "-".join(changes.values()))
def test_each_member_equals_its_solo_fit(changes: dict[str, str], early_stopping: bool) -> None:
    """Others of its cohort differ in size and vocabulary: one trains longer, one shorter, one knows fewer windows."""
    training = recipe(**changes, early_stopping=early_stopping, finetune_epochs=3)
    young = replace(member(3), rows=newest_windows(rows(60, 3), 2))
    members = [member(0), member(1, num_rows=130, vocabulary_size=9), member(2, num_rows=20), young]
    network, reports = train(members, training, torch.float64)
    for number, alone in enumerate(members):
        solo, solo_reports = train([alone], training, torch.float64)
        together = weights(network, number)
        for name, weight in weights(solo).items():
            size = weight.shape[0]
            torch.testing.assert_close(together[name][:size], weight, rtol=0, atol=1e-9, msg=f"{number} {name}")
        took_part = [report for report in reports if np.isfinite(report.losses[number])]
        for report, solo_report in zip(took_part, solo_reports, strict=True):
            assert report.losses[number] == pytest.approx(solo_report.losses[0], abs=1e-9)


def test_other_members_rows_do_not_touch_a_member() -> None:
    mine, other = member(0), member(1)
    assert isinstance(other.rows, Encoded)
    changed = replace(other, rows=replace(other.rows, dense=other.rows.dense + 1))
    networks = [train([mine, beside])[0] for beside in (other, changed)]
    assert_same(weights(networks[0], 0), weights(networks[1], 0))
    assert not torch.equal(weights(networks[0], 1)["head.weight"], weights(networks[1], 1)["head.weight"])


def test_seeds_of_shared_rows_equal_seeds_of_copies() -> None:
    data = rows()
    shared, _ = train([Member(data, (4,), 2, seed) for seed in (0, 1)])
    copies, _ = train([Member(replace(data, dense=data.dense.copy()), (4,), 2, seed) for seed in (0, 1)])
    for number in (0, 1):
        assert_same(weights(shared, number), weights(copies, number))


def test_gi_without_weight_is_erm_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    bent, _ = train([member()], recipe(gi_weight=0, gi_pretrain=True))
    plan = PLANS["gi"](RECIPE)
    plain_plan = replace(plan, phases=tuple(replace(phase, objective="erm") for phase in plan.phases))
    monkeypatch.setitem(PLANS, "gi", lambda _training: plain_plan)
    plain, _ = train([member()])
    assert_same(weights(bent), weights(plain))


def test_gi_with_weight_is_not_erm() -> None:
    bent, plain = (train([member()], recipe(gi_weight=weight))[0] for weight in (0.5, 0))
    assert not torch.equal(weights(bent)["head.weight"], weights(plain)["head.weight"])


def test_one_report_an_epoch_in_the_order_of_the_phases() -> None:
    _, reports = train([member(0), member(1, num_rows=130)])
    assert [(report.phase, report.epoch, report.num_epochs) for report in reports] == [
        (phase, epoch, 2) for phase in ("pretrain", "finetune_2", "finetune_1") for epoch in (1, 2)
    ]
    assert all(len(report.losses) == 2 and report.seconds > 0 for report in reports)


def test_a_report_tells_how_far_delta_went_in_windows_and_only_where_there_is_one() -> None:
    _, reports = train([member(0), member(1)], recipe(delta_max=1.5, delta_mode="random"))
    sizes = {report.phase: report.deltas for report in reports}
    assert sizes["pretrain"] == (0, 0)
    assert all(0 < size <= 1.5 for size in sizes["finetune_1"])
    last = reports[-1].of([1])
    assert last is not None
    assert (last.losses, last.deltas) == (reports[-1].losses[1:], reports[-1].deltas[1:])
    assert last.mean_delta == last.deltas[0]


def test_members_that_sit_an_epoch_out_have_no_report_of_it() -> None:
    short = Member(newest_windows(rows(), 1), (4,), 2, 0)
    _, reports = train([short, member(1)])
    assert [report.of([0]) is None for report in reports] == [False, False, True, True, False, False]


def test_fewer_windows_than_are_fine_tuned_on_sit_the_phase_out() -> None:
    short = Member(newest_windows(rows(), 1), (4,), 2, 0)
    _, reports = train([short, member(1)])
    is_missing = {report.phase: np.isnan(report.losses).tolist() for report in reports}
    assert is_missing == {"pretrain": [False] * 2, "finetune_2": [True, False], "finetune_1": [False] * 2}
    assert all(report.mean_loss == pytest.approx(np.nanmean(report.losses)) for report in reports)


def test_minibatches_run_through_reshuffled_passes() -> None:
    stream = row_numbers(10, 70, 8, torch.Generator().manual_seed(0))
    first, second = torch.cat(list(itertools.islice(stream, 15))).view(2, 60)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10, 70))
    assert first.tolist() != second.tolist()


def test_a_minibatch_larger_than_its_rows_holds_several_passes() -> None:
    batch = next(row_numbers(3, 6, 9, torch.Generator().manual_seed(0)))
    assert sorted(batch.tolist()) == [3, 3, 3, 4, 4, 4, 5, 5, 5]


def test_capped_epochs_go_on_where_the_last_one_ended() -> None:
    """Fifteen epochs of 8 rows and two of all 60 are the same fifteen steps in batches of 8."""
    capped, _ = train([member()], recipe(rows_per_epoch=8, batch_size=8, pretrain_epochs=15, finetune_windows=0))
    whole, _ = train([member()], recipe(batch_size=8, pretrain_epochs=2, finetune_windows=0))
    assert_same(weights(capped), weights(whole))


def test_last_weights_are_kept_where_nothing_is_averaged() -> None:
    """Averaging over one step equals no averaging; averaging over more steps does not."""
    last, one, half = (train([member()], recipe(averaged=share))[0] for share in (0.0, 0.01, 0.5))
    assert_same(weights(last), weights(one))
    assert not torch.equal(weights(last)["head.weight"], weights(half)["head.weight"])


def test_kept_weights_are_the_mean_of_the_last_steps() -> None:
    """A phase can stop after any of its steps, because its rows and draws do not depend on its length."""

    def after(num_steps: int, averaged: float) -> Tensor:
        training = recipe(
            batch_size=60, pretrain_epochs=num_steps, finetune_windows=0, averaged=averaged, delta_mode="random"
        )
        return weights(train([member()], training, torch.float64)[0])["head.weight"]

    expected = torch.stack([after(num_steps, 0) for num_steps in (3, 4)]).mean(0)
    torch.testing.assert_close(after(4, 0.5), expected, rtol=0, atol=1e-12)


def test_training_lowers_the_loss_of_both_kinds_of_target() -> None:
    for is_classified in (True, False):
        data = rows(num_rows=400, is_classified=is_classified)
        _, reports = train([Member(data, (4,), 2, 0)], recipe(pretrain_epochs=10, pretrain_rate=0.01))
        assert reports[9].losses[0] < reports[0].losses[0] - 0.1


@pytest.mark.parametrize(("loss", "expected"), [("gaussian", 2.0), ("absolute", 0.0)])
def test_a_network_answers_a_mean_or_a_median_as_its_loss_says(loss: str, expected: float) -> None:
    """Five labels: four are 0 and one is 10, whatever the features are."""
    data = rows(num_rows=400, is_classified=False)
    targets = np.where(np.arange(400) % 5 == 0, 10.0, 0.0).astype(np.float32)
    skewed = Encoded(np.zeros_like(data.dense), np.zeros_like(data.codes), data.u, targets, data.windows)
    training = recipe(
        regression_loss=loss, method="last_window", finetune_epochs=150, finetune_rate=0.02, batch_size=64
    )
    network, _ = train([Member(skewed, (4,), 2, 0)], training)
    assert float(np.median(outputs(network, skewed)[..., 0])) == pytest.approx(expected, abs=0.5)


def test_outputs_come_block_by_block_for_the_members_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    network, _ = train([member(0), member(1)])
    data = rows(50, 7)
    everyone = outputs(network, data)
    assert everyone.shape == (2, 50, 2)
    assert everyone.dtype == np.float32
    monkeypatch.setattr("trainer.network.training_loop._ROWS_PER_BLOCK", 7)
    np.testing.assert_allclose(outputs(network, data), everyone, rtol=0, atol=1e-6)
    np.testing.assert_allclose(outputs(network, data, [1]), everyone[[1]], rtol=0, atol=1e-6)
    assert outputs(network, data.take(np.s_[:0])).shape == (2, 0, 2)


def test_a_fit_that_diverges_names_member_and_epoch() -> None:
    bad = member(1)
    assert isinstance(bad.rows, Encoded)
    bad.rows.dense[0, 0] = np.inf
    with pytest.raises(CycleError, match=r"member 1 \(seed 1\) is nan in epoch 1 of pretrain"):
        train([member(0), bad])


def test_the_minibatches_of_a_recipe_that_says_nothing_are_those_that_its_rows_ask_for() -> None:
    many = Member(rows(2_100, 3), (4,), 2, 0)
    unset, said, other = (weights(train([many], recipe(batch_size=size))[0]) for size in (None, 128, 64))
    assert_same(unset, said)
    assert any(not torch.equal(unset[name], other[name]) for name in unset)


def test_a_member_without_rows_is_refused() -> None:
    empty = Member(rows().take(np.s_[:0]), (4,), 2, 0)
    with pytest.raises(CycleError, match="member 1 of the cohort has no rows"):
        train([member(), empty])


@pytest.mark.parametrize("method", PLANS)
def test_every_method_fits(method: Method) -> None:
    network, reports = train([member()], recipe(method=method))
    plan = PLANS[method](RECIPE)
    assert len(reports) == sum(phase.epochs for phase in plan.phases_of(4))
    assert (network.time is not None) == plan.is_timed


@pytest.mark.parametrize("method", ["grad_reg", "time_perturb"])
def test_ablations_without_weight_are_ours_without_weight(method: Method) -> None:
    ours, theirs = (train([member()], recipe(gi_weight=0, method=name))[0] for name in ("gi", method))
    assert_same(weights(ours), weights(theirs))


def test_a_fit_is_the_same_on_two_threads(one_thread: None) -> None:
    def fitted(threads: int) -> dict[str, Tensor]:
        torch.set_num_threads(threads)
        return weights(train([member()], recipe(batch_size=64))[0])

    assert_same(fitted(2), fitted(2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_fit_on_cuda_agrees_with_the_cpu() -> None:
    there, here = (
        train([member(0), member(1)], dtype=torch.float64, device=torch.device(d))[0] for d in ("cuda", "cpu")
    )
    for name, weight in weights(here).items():
        torch.testing.assert_close(weights(there)[name].cpu(), weight, rtol=0, atol=1e-6)
