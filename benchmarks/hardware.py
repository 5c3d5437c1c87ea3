"""What a benchmark ran on."""

import platform
from pathlib import Path

import torch

from trainer.network.device import device_name

CPU = torch.device("cpu")


def hardware(device: torch.device = CPU) -> str:
    """Processor, threads and torch's version, such as `AMD EPYC 7763, 1 threads, torch 2.13.0`."""
    name = _processor() if device.type == "cpu" else device_name(device)
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _processor() -> str:
    """The processor's name if the system gives it, else its architecture."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
