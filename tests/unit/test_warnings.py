"""What the status warns of, as far as a spec and counts decide it."""

import pytest

from contracts.task import Training
from service.status import warn_of_fit


@pytest.mark.parametrize(
    ("training", "num_rows", "num_steps"),
    [
        (Training(), 2_100, 21),
        (Training(), 10_000, 98),
        (Training(batch_size=64, pretrain_epochs=3), 2_100, 99),
        (Training(rows_per_epoch=8_192), 10_000_000, 80),
        (Training(method="baseline", pretrain_epochs=40), 300, 40),
    ],
)
def test_a_fit_of_few_steps_is_warned_of(training: Training, num_rows: int, num_steps: int) -> None:
    (warning,) = warn_of_fit(training, num_rows)
    assert warning.startswith(f"the fit took {num_steps} steps only: {num_rows:,} rows")


@pytest.mark.parametrize(
    ("training", "num_rows"),
    [
        (Training(), 10_200),
        (Training(batch_size=64), 2_100),
        (Training(pretrain_epochs=100), 100),
        (Training(method="last_window"), 100),
    ],
)
def test_a_fit_of_many_steps_and_one_without_a_pretraining_are_not(training: Training, num_rows: int) -> None:
    assert warn_of_fit(training, num_rows) == []
