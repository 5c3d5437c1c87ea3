"""The reason of a cycle that failed, from what was really raised."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from contracts.failure import DEVICE_OUT_OF_MEMORY, OUT_OF_MEMORY
from trainer.retraining.failures import name_failure

TOO_MANY = 2**55


@pytest.mark.parametrize("ask", [torch.empty, bytearray, np.empty], ids=["torch", "bytearray", "numpy"])
def test_want_of_memory_is_said_whoever_asked_for_it(ask: Callable[[int], object]) -> None:
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        ask(TOO_MANY)
    assert name_failure(caught.value) == OUT_OF_MEMORY


def test_want_of_the_devices_memory_is_told_from_that() -> None:
    assert name_failure(torch.OutOfMemoryError("CUDA out of memory.")) == DEVICE_OUT_OF_MEMORY


def test_of_a_file_only_what_the_system_says_is_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"")
    with pytest.raises(OSError, match="secret") as caught:
        (tmp_path / "secret" / "file").write_bytes(b"")
    assert name_failure(caught.value).reason == "A file of the trainer cannot be read or written: Not a directory."
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert name_failure(full).reason == "A file of the trainer cannot be read or written: No space left on device."


def test_a_connection_is_taken_for_no_file() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    assert name_failure(refused).reason == "An unforeseen ConnectionRefusedError; see the trainer's log."


def test_of_what_nobody_has_foreseen_only_the_type_is_said() -> None:
    assert name_failure(RuntimeError("row 7: secret")).reason == "An unforeseen RuntimeError; see the trainer's log."
