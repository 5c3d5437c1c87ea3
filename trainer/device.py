"""Where a fit runs: CUDA when there is one, else the CPU, with as many threads as the container has cores."""

import resource
import sys

import torch

from contracts.errors import CycleError
from trainer.settings import TrainerSettings, count_threads


def choose_device(settings: TrainerSettings) -> torch.device:
    """The device to fit on; sets torch's threads. Raises CycleError where `cuda` is asked for and there is none."""
    torch.set_num_threads(count_threads(settings))
    has_cuda = torch.cuda.is_available()
    if settings.device == "cuda" and not has_cuda:
        raise CycleError("The device cuda is asked for, but this trainer sees none.")
    return torch.device("cuda" if has_cuda and settings.device != "cpu" else "cpu")


def device_name(device: torch.device) -> str:
    """What runs and manifests say, such as `cpu` or `cuda: NVIDIA H100`."""
    return f"cuda: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else "cpu"


def machine_figures() -> dict[str, float]:
    """What this process has used up to now, under names that MLflow shows among a run's system metrics."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    per_megabyte = 1024**2 if sys.platform == "darwin" else 1024  # in units of ru_maxrss
    figures = {
        "system/cpu_seconds": usage.ru_utime + usage.ru_stime,
        "system/peak_memory_megabytes": usage.ru_maxrss / per_megabyte,
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        figures["system/gpu_peak_memory_megabytes"] = torch.cuda.max_memory_allocated() / 1024**2
    return figures
