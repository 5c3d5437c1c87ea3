"""A plan says what the paper's algorithm does, and a rival gets the same budget."""

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.task import Training
from trainer.dataset import Encoded
from trainer.methods import METHODS, naive

RECIPE = Training(finetune_windows=3, pretrain_epochs=4, finetune_epochs=2, pretrain_rate=0.01, finetune_rate=0.001)


def test_gi_pretrains_on_everything_and_fine_tunes_on_the_newest_windows_in_order() -> None:
    plan = METHODS["gi"](RECIPE)
    assert plan.is_timed
    assert [(phase.rows, phase.epochs, phase.rate, phase.objective) for phase in plan.phases] == [
        ("all", 4, 0.01, "erm"), (3, 2, 0.001, "gi"), (2, 2, 0.001, "gi"), (1, 2, 0.001, "gi"),
    ]  # fmt: skip


def test_gi_may_shape_the_pretraining_too() -> None:
    plan = METHODS["gi"](RECIPE.model_copy(update={"gi_pretrain": True}))
    assert {phase.objective for phase in plan.phases} == {"gi"}


@pytest.mark.parametrize(("field", "names"), [("pretrain_epochs", ["finetune_1"]), ("finetune_epochs", ["pretrain"])])
def test_a_phase_without_epochs_is_left_out(field: str, names: list[str]) -> None:
    training = RECIPE.model_copy(update={field: 0, "finetune_windows": 1})
    for method in METHODS.values():
        assert [phase.name for phase in method(training).phases] == names


@pytest.mark.parametrize(("rival", "rows"), [("baseline", "all"), ("last_window", 1)])
def test_rivals_see_no_time_and_spend_the_same_budget_on_other_rows(rival: str, rows: str | int) -> None:
    ours, plan = METHODS["gi"](RECIPE), METHODS[rival](RECIPE)
    assert not plan.is_timed
    assert [(phase.budget, phase.epochs) for phase in plan.phases] == [
        (phase.budget, phase.epochs) for phase in ours.phases
    ]
    assert {phase.rows for phase in plan.phases} == {rows}
    assert {phase.objective for phase in plan.phases} == {"erm"}


def encoded(targets: NDArray[np.int64] | NDArray[np.float32]) -> Encoded:
    """Rows of two windows, the last four of them in the newest."""
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
