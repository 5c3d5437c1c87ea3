"""What the status warns of, as far as a spec and counts decide it."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.clock import parse_moment
from contracts.manifest import AgeError
from contracts.quality.skill import ComparedError, compare_errors, score
from contracts.shown import say_count
from contracts.task import Training
from service.advice.task_warnings import (
    FEW_STEPS,
    PRETRAINED,
    warn_of_bands,
    warn_of_early_end,
    warn_of_fit,
    warn_of_promise,
    warn_of_unseen_end,
)
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import RealisedError, TaskState
from trainer.data.encoder import Encoded
from trainer.methods.plans import PLANS
from trainer.network.phase_schedule import num_steps


@pytest.mark.parametrize(
    ("training", "num_rows", "num_steps"),
    [
        (Training(), 300, 94),
        (Training(batch_size=1024), 2_100, 21),
        (Training(batch_size=1024), 10_000, 98),
        (Training(batch_size=64, pretrain_epochs=3), 2_100, 99),
        (Training(rows_per_epoch=8_192, batch_size=1024), 10_000_000, 80),
        (Training(method="baseline", pretrain_epochs=40, batch_size=1024), 300, 40),
    ],
)
def test_a_fit_of_few_steps_is_warned_of(training: Training, num_rows: int, num_steps: int) -> None:
    (warning,) = warn_of_fit(training, num_rows, training.rows_per_minibatch(num_rows))
    assert warning.startswith(f"the fit took only {num_steps} steps: {num_rows:,} rows")


@pytest.mark.parametrize(
    ("training", "num_rows"),
    [
        (Training(), 330),
        (Training(), 10_000_000),
        (Training(batch_size=1024), 10_200),
        (Training(batch_size=64), 2_100),
        (Training(pretrain_epochs=100), 100),
        (Training(method="last_window"), 100),
    ],
)
def test_a_fit_of_many_steps_and_one_without_a_pretraining_are_not(training: Training, num_rows: int) -> None:
    assert warn_of_fit(training, num_rows, training.rows_per_minibatch(num_rows)) == []


@given(
    st.integers(1, 3_000),
    st.builds(
        lambda rows, batch, epochs: Training(rows_per_epoch=rows, batch_size=batch, pretrain_epochs=epochs),
        st.integers(1, 3_000),
        st.none() | st.integers(1, 3_000),
        st.integers(1, FEW_STEPS - 1),
    ),
)
def test_the_steps_told_are_those_that_a_fit_takes(num_rows: int, training: Training) -> None:
    values, whole = np.zeros(num_rows, np.float32), np.zeros(num_rows, np.int64)
    rows = Encoded(dense=values[:, None], codes=whole[:, None], u=values, targets=values, windows=whole)
    taken = num_steps(rows, PLANS[training.method](training).phases[0], training)
    told = [f"the fit took only {say_count(taken, 'step')}"] if taken < FEW_STEPS else []
    warnings = warn_of_fit(training, num_rows, training.rows_per_minibatch(num_rows))
    assert [warning.partition(":")[0] for warning in warnings] == told


@pytest.mark.parametrize(
    ("training", "gain", "said"),
    [
        (
            Training(),
            0.13,
            "its budget of 320 steps while its loss on withheld rows still fell, by 13 % in the last third",
        ),
        (Training(pretrain_steps=1000), 0.06, "its budget of 1,000 steps"),
        (Training(), 0.04, None),
        (Training(), -0.2, None),
        (Training(), None, None),
        (Training(method="last_window"), 0.5, None),
    ],
)
def test_a_fit_that_stopped_while_it_still_improved_is_told_a_larger_budget(
    training: Training, gain: float | None, said: str | None
) -> None:
    warnings = warn_of_early_end(training, 2_048, training.rows_per_minibatch(2_048) // 2, gain)
    assert len(warnings) == (said is not None)
    if said is not None:
        assert said in warnings[0]
        assert warnings[0].endswith(f"set training.pretrain_steps = {4 * (training.pretrain_steps or 320)}")


def test_the_methods_that_are_warned_of_are_those_that_begin_with_all_rows() -> None:
    assert {name for name, plan in PLANS.items() if plan(Training()).phases[0].rows == "all"} == PRETRAINED


@pytest.mark.parametrize(
    ("error", "realised", "said"),
    [
        (0.6, (), None),
        (0.6343, (), "0.6343 on all 26 scored windows"),
        (0.6, (0.6352,) * 3, "0.6352 on the 3 windows since the release"),
        (0.6, (0.6352,) * 2, None),
        (0.5, (0.5,) * 4, None),
    ],
)
def test_an_expected_error_that_other_windows_contradict_is_warned_of(
    error: float, realised: tuple[float, ...], said: str | None
) -> None:
    ages = [AgeError(age, 4, 0.589, 0.5, 0.7, 0.8) for age in range(4)]
    naive = ComparedError(method="naive", num_windows=26, error=0.8, ours=error, skill=score(error, 0.8))
    since = [RealisedError(age, age, one, 50, is_complete=True) for age, one in enumerate(realised)]
    warnings = warn_of_promise("repairs", "1", ages, compare_errors("log_loss", naive, ()), since)
    assert len(warnings) == (said is not None)
    for warning in warnings:
        assert warning.startswith("the expected error of version 1 is too low: it is 0.5890 by 4 windows")
        assert said is not None
        assert said in warning
        assert warning.endswith("morrow cycle repairs --again")


def test_windows_that_a_release_set_aside_are_named_as_why_its_expected_error_differs() -> None:
    """Another release would set them aside too, so none is advised."""
    ages = [AgeError(age, 33, 36.43, 30.0, 50.0, 60.0) for age in range(4)]
    naive = ComparedError(method="naive", num_windows=38, error=90.0, ours=52.51, skill=score(52.51, 90.0))
    aside = [datetime(2026, 9, day, tzinfo=UTC) for day in (3, 10, 17)]
    (said,) = warn_of_promise("load", "2", ages, compare_errors("mae", naive, ()), (), aside=aside)
    assert said.startswith(
        "version 2 expects an error of 36.43 by 33 windows, and the error is 52.51 on all 38 scored windows: 3 windows "
        "from 2026-09-03T00:00:00Z to 2026-09-17T00:00:00Z were set aside"
    )
    assert "morrow events history load" in said
    assert "--again" not in said


@pytest.mark.parametrize(("days_before", "is_warned"), [(4, True), (2, False)])
def test_moments_between_the_newest_row_and_the_cutoff_are_said_to_have_no_expected_error(
    *, days_before: int, is_warned: bool
) -> None:
    day = 86_400_000_000
    cutoff = parse_moment("2026-09-24T00:00:00Z")
    manifest = SimpleNamespace(cutoff=cutoff, window=7 * day, newest=None)  # as an older Morrow wrote it
    served = cast("Forecaster", SimpleNamespace(version="1", manifest=manifest))
    state = replace(TaskState.unknown(None, datetime(2026, 9, 25, tzinfo=UTC)), newest=cutoff - days_before * day)
    warned = warn_of_unseen_end(served, state)
    assert bool(warned) is is_warned
    if is_warned:
        assert warned[0].startswith(
            "the newest row is of 2026-09-20T00:00:00Z, so moments until 2026-09-24T00:00:00Z have no expected error"
        )


def test_a_band_that_does_not_hold_its_own_expected_error_is_explained() -> None:
    ages = [AgeError(age, 38, 28.1, 95.97, 286.4, 204.9) for age in range(4)]
    (warned,) = warn_of_bands("2", ages)
    assert warned.startswith("at 4 ages, the 90 % band of version 2 lies above the expected error")
    assert "the mean of all 38 windows" in warned
    assert warn_of_bands("1", [AgeError(0, 38, 1.054, 0.5, 1.2, 1.231)]) == []
