"""The reason of a cycle that failed, from what was really raised."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from trainer.failures import NO_DEVICE_MEMORY, NO_MEMORY, name_failure

TOO_MANY = 2**55


@pytest.mark.parametrize("ask", [torch.empty, bytearray, np.empty], ids=["torch", "bytearray", "numpy"])
def test_want_of_memory_is_said_whoever_asked_for_it(ask: Callable[[int], object]) -> None:
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        ask(TOO_MANY)
    assert name_failure(caught.value) == NO_MEMORY


def test_want_of_the_devices_memory_is_told_from_that() -> None:
    assert name_failure(torch.OutOfMemoryError("CUDA out of memory.")) == NO_DEVICE_MEMORY


def test_of_what_nobody_has_foreseen_only_the_type_is_said() -> None:
    assert name_failure(RuntimeError("row 7: secret")) == "An unforeseen RuntimeError; see the trainer's log."
