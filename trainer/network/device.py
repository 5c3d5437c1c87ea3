"""The device of a fit: CUDA if available, else the CPU with as many threads as the container has cores."""

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

from contracts.errors import CycleError
from trainer.settings import TrainerSettings, count_threads

# Settings of glibc's allocator: environment variable, `mallopt` number, and bytes. Blocks up to the first size are kept
# for the next step; whole columns of rows are larger and still go back to the system.
_ALLOCATOR = (("MALLOC_MMAP_THRESHOLD_", -3, 2**25), ("MALLOC_TRIM_THRESHOLD_", -1, 2**29))


def choose_device(settings: TrainerSettings) -> torch.device:
    """The device to fit on; also sets this process's threads of torch, and keeps memory from step to step.

    Raises CycleError if `cuda` is required and not available.
    """
    torch.set_num_threads(count_threads(settings))
    _keep_memory()
    has_cuda = torch.cuda.is_available()
    if settings.device == "cuda" and not has_cuda:
        raise CycleError("The settings require the device cuda, but this trainer sees none.")
    return torch.device("cuda" if has_cuda and settings.device != "cpu" else "cpu")


def _keep_memory() -> None:
    """Let glibc keep the memory of each step's tensors instead of returning it and fetching new pages."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, option, num_bytes in _ALLOCATOR:
        if set_option is not None and variable not in os.environ:
            set_option(option, num_bytes)


def device_name(device: torch.device) -> str:
    """The device's name in runs and manifests, such as `cpu` or `cuda: NVIDIA H100`."""
    return f"cuda: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else "cpu"


def begin_usage() -> float:
    """Forget earlier peaks of memory, where that can be done; the CPU seconds that this process has used so far."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch does not type it
        torch.cuda.reset_peak_memory_stats()
    return _cpu_seconds()


def machine_figures(cpu_before: float) -> dict[str, float]:
    """The resources that a job of this process has used, under names that MLflow shows among a run's system metrics.

    `cpu_before` is what `begin_usage` returned when the job began.
    """
    figures = {
        "system/cpu_seconds": _cpu_seconds() - cpu_before,
        "system/peak_memory_megabytes": _peak_megabytes(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch does not type it
        figures["system/gpu_peak_memory_megabytes"] = torch.cuda.max_memory_allocated() / 1024**2
    return figures


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _peak_megabytes() -> float:
    """The most memory since `begin_usage`, or since the start of the process where only that is known."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        per_megabyte = 1024**2 if sys.platform == "darwin" else 1024  # in units of ru_maxrss
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_megabyte
