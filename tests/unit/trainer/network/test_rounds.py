"""Pre-training by rounds: it goes on while the loss on rows that it holds out falls, within its budget of steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.network.minibatches import FEWEST_ROWS, held_out, row_numbers, watched_rows
from trainer.network.training_loop import EpochReport, Member, fit

CLOCK = Clock(window=7, offset=0, span=28)
RECIPE = Training(
    num_seeds=1,
    width=16,
    num_layers=1,
    time_width=2,
    trelu_width=2,
    calendar=(),
    batch_size=128,
    pretrain_epochs=2,
    pretrain_rate=1e-2,
    finetune_windows=1,
    finetune_epochs=1,
)
STEPS_OF_A_ROUND = 32


def hours(num_rows: int = 2048, *, is_noise: bool = False) -> Encoded:
    """Rows of two classes that alternate with the hour, a number; or no label can be learned."""
    random = np.random.default_rng(0)
    at = np.arange(num_rows) * 28 // num_rows - 28
    hour = random.uniform(-1, 1, num_rows).astype(np.float32)
    targets = (random.uniform(size=num_rows) < 0.5 if is_noise else np.abs(hour) > 0.5).astype(np.int64)
    return Encoded(
        hour[:, None], np.zeros((num_rows, 0), np.int64), CLOCK.model_time(at, 0), targets, CLOCK.window_starts(at)
    )


def phases(training: Training, *known: Encoded) -> tuple[list[EpochReport], list[torch.Tensor]]:
    """The reports of a fit of these members, and their parameters."""
    members = [Member(rows, (), 2, seed) for seed, rows in enumerate(known)]
    fitting, reports = fit(members, training, CLOCK, torch.device("cpu")), []
    while True:
        try:
            reports.append(next(fitting))
        except StopIteration as end:
            return reports, [parameter.detach() for parameter in end.value.parameters()]


def rounds_of(reports: list[EpochReport], member: int = 0) -> int:
    """The rounds of pre-training in which a member took part."""
    names = {report.phase for report in reports if np.isfinite(report.losses[member])}
    return sum(name.startswith("pretrain") for name in names)


def test_a_number_that_bends_gets_as_many_rounds_as_its_budget_has() -> None:
    for num_rounds in (1, 2, 3):
        training = RECIPE.model_copy(update={"pretrain_steps": num_rounds * STEPS_OF_A_ROUND + 5})
        reports, _ = phases(training, hours())
        assert rounds_of(reports) == num_rounds


def test_noise_gets_no_further_round_than_the_one_that_shows_that_nothing_is_gained() -> None:
    reports, _ = phases(RECIPE.model_copy(update={"pretrain_steps": 10_000}), hours(is_noise=True))
    assert rounds_of(reports) == 2


def test_a_larger_budget_gives_a_better_fit_where_ten_epochs_starve() -> None:
    losses = []
    for steps in (None, 1000):
        reports, _ = phases(RECIPE.model_copy(update={"pretrain_steps": steps}), hours())
        losses.append([report.mean_loss for report in reports if report.phase.startswith("pretrain")][-1])
    assert losses[1] < 0.7 * losses[0]


def test_without_a_budget_of_steps_nothing_is_held_out_and_few_rows_hold_none_out() -> None:
    reports, _ = phases(RECIPE, hours())
    assert rounds_of(reports) == 1
    few = hours(FEWEST_ROWS - 1)
    unset, budgeted = (phases(RECIPE.model_copy(update={"pretrain_steps": steps}), few)[1] for steps in (None, 10_000))
    assert all(torch.equal(a, b) for a, b in zip(unset, budgeted, strict=True))


def test_a_members_rounds_do_not_depend_on_the_other_members() -> None:
    training = RECIPE.model_copy(update={"pretrain_steps": 200})
    together, _ = phases(training, hours(), hours(is_noise=True))
    assert (rounds_of(together, 0), rounds_of(together, 1)) == (rounds_of(phases(training, hours())[0]), 2)


def test_held_out_rows_are_blocks_inside_the_range_that_pretraining_never_draws() -> None:
    numbers = torch.arange(2048)
    is_held = held_out(numbers, 2048)
    assert is_held.sum() == 2048 // 16
    assert not is_held[-16:].any()
    assert (is_held[1:] != is_held[:-1]).sum() == 16
    stream = row_numbers(0, 2048, 128, torch.Generator().manual_seed(0), 40, holds_out=True)
    drawn = torch.cat([next(stream) for _ in range(40)])
    assert not is_held[drawn.long()].any()
    assert set(drawn.tolist()) == set(numbers[~is_held].tolist())


@pytest.mark.parametrize("num_rows", [0, 16, FEWEST_ROWS, 5000, 1_000_000])
def test_watched_rows_are_held_out_and_bounded(num_rows: int) -> None:
    watched = watched_rows(num_rows)
    assert len(watched) <= 4096
    assert (len(watched) > 0) == (num_rows >= FEWEST_ROWS)
    assert held_out(torch.from_numpy(watched), max(1, num_rows)).all()


def test_unseen_rows_are_told_after_each_epoch_of_pretraining_and_change_nothing() -> None:
    rows = hours()
    plain, parameters = phases(RECIPE, rows)
    members = [Member(rows, (), 2, 0, unseen=hours(300))]
    fitting, reports = fit(members, RECIPE, CLOCK, torch.device("cpu")), []
    while True:
        try:
            reports.append(next(fitting))
        except StopIteration as end:
            found = [parameter.detach() for parameter in end.value.parameters()]
            break
    assert [report.unseen_loss is None for report in reports] == [not r.phase.startswith("pretrain") for r in plain]
    assert [replace(report, unseen_loss=None, seconds=0) for report in reports] == [
        replace(r, seconds=0) for r in plain
    ]
    assert all(torch.equal(a, b) for a, b in zip(parameters, found, strict=True))
