"""The one form in which every benchmark hands on its figures: ours beside a yardstick, a larger ratio is better."""

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch

from trainer.network.device import device_name


class Figure(TypedDict):
    """One measured figure; `commit` and `goal` are ratios, and `met` says whether the ratio reaches `commit`."""

    name: str
    ours: float
    yardstick: float
    ratio: float
    commit: float
    goal: float
    met: bool
    unit: str
    hardware: str


_CPU = torch.device("cpu")


def smaller_is_better(
    name: str,
    ours: float,
    yardstick: float,
    *,
    commit: float,
    goal: float,
    unit: str,
    device: torch.device = _CPU,
) -> Figure:
    """A figure of errors or times: `commit` and `goal` are given in its unit."""
    ratio = yardstick / max(ours, 1e-9)
    return Figure(
        name=name,
        ours=ours,
        yardstick=yardstick,
        ratio=ratio,
        commit=yardstick / commit,
        goal=yardstick / goal,
        met=ratio >= yardstick / commit,
        unit=unit,
        hardware=hardware(device),
    )


def larger_is_better(
    name: str, ours: float, yardstick: float, *, ratio: float, commit: float, goal: float, unit: str
) -> Figure:
    """A figure of rates: `ratio` was taken round by round, and `commit` and `goal` are ratios."""
    return Figure(
        name=name,
        ours=ours,
        yardstick=yardstick,
        ratio=ratio,
        commit=commit,
        goal=goal,
        met=ratio >= commit,
        unit=unit,
        hardware=hardware(),
    )


def hardware(device: torch.device = _CPU) -> str:
    """What the figures were measured on, such as `AMD EPYC 7763, 1 threads, torch 2.13.0`."""
    name = _processor() if device.type == "cpu" else device_name(device)
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _processor() -> str:
    """The processor's name where the system tells it, else its architecture."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write_figures(file: Path, figures: Sequence[Figure]) -> None:
    """Write the list as JSON."""
    file.write_text(json.dumps(figures, indent=2) + "\n")
