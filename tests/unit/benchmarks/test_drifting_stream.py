"""On a stream whose boundary turns steadily, GI predicts the next window better than networks without time."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Literal

import numpy as np
import pytest
import torch

from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.network.training_loop import Member, finish, fit, outputs

NUM_WINDOWS = 10
ROWS_PER_WINDOW = 200
# The true boundary, a line through the origin, turns by this much from one window to the next.
TURN = math.radians(15)
CLOCK = Clock(window=1000, offset=0, span=NUM_WINDOWS * 1000)
SEEDS = range(5)
RECIPE = Training(
    width=24,
    calendar=(),
    batch_size=100,
    pretrain_epochs=20,
    pretrain_rate=5e-3,
    finetune_windows=2,
    finetune_epochs=10,
    delta_max=2.0,
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stream(first: int, end: int) -> Encoded:
    """Rows of the windows `[first, end)`, counted from the cutoff, with labels of the boundary at their time."""
    generator = np.random.default_rng(100 + first)
    at = np.sort(generator.integers(first * CLOCK.window, end * CLOCK.window, (end - first) * ROWS_PER_WINDOW))
    x = generator.normal(size=(len(at), 2))
    angle = TURN * at / CLOCK.window
    labels = (x[:, 0] * np.cos(angle) + x[:, 1] * np.sin(angle) > 0).astype(np.int64)
    return Encoded(
        x.astype(np.float32),
        np.zeros((len(at), 0), np.int64),
        CLOCK.model_time(at, 0),
        labels,
        at - at % CLOCK.window,
    )


@cache
def log_losses(method: Literal["gi", "baseline", "last_window"]) -> list[float]:
    """Mean log-loss on the window after the cutoff, one a seed."""
    past, future = stream(-NUM_WINDOWS, 0), stream(0, 1)
    members = [Member(past, (), 2, seed) for seed in SEEDS]
    network = finish(fit(members, RECIPE.model_copy(update={"method": method}), CLOCK, torch.device("cpu")))
    logits = torch.from_numpy(outputs(network, future))
    chances = logits.log_softmax(-1)[:, torch.arange(len(future.targets)), torch.from_numpy(future.targets)]
    return [-float(chance) for chance in chances.mean(1)]


@pytest.mark.parametrize("rival", ["baseline", "last_window"])
def test_gi_is_below_networks_without_time_on_the_next_window(rival: Literal["baseline", "last_window"]) -> None:
    """Each seed of ours is below each seed of theirs."""
    assert max(log_losses("gi")) < min(log_losses(rival))
