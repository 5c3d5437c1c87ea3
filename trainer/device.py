"""Where a fit runs: CUDA when there is one, else the CPU, with as many threads as the container has cores."""

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
