"""Plans follow the paper's algorithm, and rivals get the same budget."""

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.task import Guard, Method, Rival, Training
from trainer.data.encoder import Encoded
from trainer.methods.naive_answer import naive
from trainer.methods.plans import PLANS, Oldest
from trainer.network.phase_schedule import following_range, row_range

Ablation = Literal["grad_reg", "time_perturb"]
RECIPE = Training(finetune_windows=3, pretrain_epochs=4, finetune_epochs=2, pretrain_rate=0.01, finetune_rate=0.001)


def test_every_method_that_a_recipe_may_name_has_a_plan_and_may_be_a_rival() -> None:
    assert set(PLANS) == set(get_args(Method))
    assert set(PLANS) < set(Guard(rivals=get_args(Rival)).rivals)


def test_gi_pretrains_on_everything_and_fine_tunes_on_the_newest_windows_in_order() -> None:
    plan = PLANS["gi"](RECIPE)
    assert plan.is_timed
    assert [(phase.rows, phase.epochs, phase.rate, phase.objective) for phase in plan.phases] == [
        ("all", 4, 0.01, "erm"), (3, 2, 0.001, "gi"), (2, 2, 0.001, "gi"), (1, 2, 0.001, "gi"),
    ]  # fmt: skip


def test_gi_may_shape_the_pretraining_too() -> None:
    plan = PLANS["gi"](RECIPE.model_copy(update={"gi_pretrain": True}))
    assert {phase.objective for phase in plan.phases} == {"gi"}


@pytest.mark.parametrize(("field", "names"), [("pretrain_epochs", ["finetune_1"]), ("finetune_epochs", ["pretrain"])])
def test_a_phase_without_epochs_is_left_out(field: str, names: list[str]) -> None:
    training = RECIPE.model_copy(update={field: 0, "finetune_windows": 1})
    for method in PLANS.values():
        assert [phase.name for phase in method(training).phases_of(1)] == names


@pytest.mark.parametrize(
    ("rival", "rows", "is_timed"), [("baseline", "all", False), ("base_time", "all", True), ("last_window", 1, False)]
)
def test_rivals_spend_the_same_budget_on_other_rows(rival: Method, rows: str | int, is_timed: bool) -> None:
    ours, plan = PLANS["gi"](RECIPE), PLANS[rival](RECIPE)
    assert plan.is_timed == is_timed
    assert [(phase.budget, phase.epochs) for phase in plan.phases] == [
        (phase.budget, phase.epochs) for phase in ours.phases
    ]
    assert {phase.rows for phase in plan.phases} == {rows}
    assert {phase.objective for phase in plan.phases} == {"erm"}


@pytest.mark.parametrize(("rival", "is_timed"), [("inc_finetune", False), ("inc_finetune_time", True)])
def test_incremental_rivals_learn_one_window_after_the_other(rival: Method, is_timed: bool) -> None:
    plan = PLANS[rival](RECIPE)
    assert plan.is_timed == is_timed
    assert [(p.name, p.rows, p.budget, p.epochs, p.rate, p.objective) for p in plan.phases_of(3)] == [
        ("pretrain", Oldest(1), Oldest(1), 4, 0.01, "erm"),
        ("finetune_2", Oldest(2), Oldest(2), 2, 0.001, "erm"),
        ("finetune_3", Oldest(3), Oldest(3), 2, 0.001, "erm"),
    ]


@pytest.mark.parametrize("ablation", ["grad_reg", "time_perturb"])
@pytest.mark.parametrize("gi_pretrain", [False, True])
def test_ablations_are_our_plan_with_another_objective(ablation: Ablation, gi_pretrain: bool) -> None:
    training = RECIPE.model_copy(update={"gi_pretrain": gi_pretrain})
    ours, plan = PLANS["gi"](training), PLANS[ablation](training)
    assert plan == replace(
        ours, phases=tuple(replace(p, objective=ablation if p.objective == "gi" else "erm") for p in ours.phases)
    )


def test_phases_name_windows_from_either_end() -> None:
    rows = encoded(np.array([0, 1, 0, 1, 1, 1, 0]))
    assert [row_range(rows, which) for which in ("all", 1, 2, 3)] == [(0, 7), (3, 7), (0, 3), (0, 0)]
    assert [row_range(rows, Oldest(number)) for number in (1, 2, 3)] == [(0, 3), (3, 7), (0, 0)]


def test_the_next_window_is_that_of_the_following_snapshot() -> None:
    rows = encoded(np.array([0, 1, 0, 1, 1, 1, 0]))
    assert [following_range(rows, which) for which in ("all", 1, 2, 3)] == [(0, 0), (0, 0), (3, 7), (0, 3)]
    assert [following_range(rows, Oldest(number)) for number in (1, 2)] == [(3, 7), (0, 0)]


def encoded(targets: NDArray[np.int64] | NDArray[np.float32]) -> Encoded:
    """Rows of two windows; the last four are in the newest."""
    n = len(targets)
    windows = np.array([0] * (n - 4) + [7] * 4)
    return Encoded(np.zeros((n, 1), np.float32), np.zeros((n, 0), np.int64), np.zeros(n, np.float32), targets, windows)


def test_naive_says_the_newest_windows_class_shares() -> None:
    logits = naive(encoded(np.array([0, 0, 0, 1, 1, 1, 0])), num_outputs=3, is_classification=True)
    np.testing.assert_allclose(np.exp(logits), [1.5 / 5.5, 3.5 / 5.5, 0.5 / 5.5], rtol=1e-6)


def test_naive_says_the_newest_windows_mean_and_scale() -> None:
    found = naive(encoded(np.array([9, 9, 1, 3, 1, 3], np.float32)), num_outputs=2, is_classification=False)
    assert found[0] == pytest.approx(2.0)
    assert found[1] == pytest.approx(1.0)
