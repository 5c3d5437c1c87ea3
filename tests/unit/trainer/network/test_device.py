"""A process is prepared before it fits: its device, threads and memory."""

import os
import platform
import subprocess
import sys

import pytest

# Eight tensors of 12 MiB are allocated and freed, as in a step of a large cohort: how many bytes the process keeps.
_STEP = """
import sys, psutil, torch
from trainer.network.device import choose_device
from trainer.settings import TrainerSettings

if sys.argv[1] == "ready":
    choose_device(TrainerSettings(device="cpu", threads=1))
before = psutil.Process().memory_info().rss
tensors = [torch.ones(3 * 2**20) for _ in range(8)]
del tensors
print(psutil.Process().memory_info().rss - before)
"""


def count_kept_bytes(state: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", _STEP, state]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's has no such options")
def test_memory_of_one_step_is_kept_for_the_next() -> None:
    assert count_kept_bytes("as it is") < 32 * 2**20
    assert count_kept_bytes("ready") > 64 * 2**20
