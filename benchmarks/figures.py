"""The one form in which every benchmark hands on its figures: ours beside a yardstick, a larger ratio is better."""

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch


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


def smaller_is_better(name: str, ours: float, yardstick: float, *, commit: float, goal: float, unit: str) -> Figure:
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
        hardware=f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    )


def write_figures(file: Path, figures: Sequence[Figure]) -> None:
    """Write the list as JSON."""
    file.write_text(json.dumps(figures, indent=2) + "\n")
