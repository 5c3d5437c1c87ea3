"""Ratios of speed, memory and error: ours compared with a yardstick, and with the levels that we set ourselves."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

import torch

from benchmarks.hardware import CPU, hardware
from benchmarks.result_files import Figure, Label


class Ratio(TypedDict):
    """One measured ratio, of which a larger one is better: `commit` is the least that we accept, `goal` what we aim at.

    `better` says which way `ours` improves: lower for times and errors, higher for rates. `of` labels the ratio in a
    file of results.
    """

    name: str
    ours: float
    yardstick: float
    ratio: float
    commit: float
    goal: float
    met: bool
    unit: str
    hardware: str
    better: Literal["lower", "higher"]
    of: Mapping[str, Label]


def smaller_is_better(
    name: str,
    ours: float,
    yardstick: float,
    *,
    commit: float,
    goal: float,
    unit: str,
    device: torch.device = CPU,
    of: Mapping[str, Label] | None = None,
) -> Ratio:
    """A ratio of errors or times: `commit` and `goal` are given in their unit."""
    found = larger_is_better(
        name,
        ours,
        yardstick,
        ratio=yardstick / max(ours, 1e-9),
        commit=yardstick / commit,
        goal=yardstick / goal,
        unit=unit,
        device=device,
        of=of,
    )
    found["better"] = "lower"
    return found


def larger_is_better(
    name: str,
    ours: float,
    yardstick: float,
    *,
    ratio: float,
    commit: float,
    goal: float,
    unit: str,
    device: torch.device = CPU,
    of: Mapping[str, Label] | None = None,
) -> Ratio:
    """A ratio that is given, such as the median of those of each round; `commit` and `goal` are ratios."""
    return Ratio(
        name=name,
        ours=ours,
        yardstick=yardstick,
        ratio=ratio,
        commit=commit,
        goal=goal,
        met=ratio >= commit,
        unit=unit,
        hardware=hardware(device),
        better="higher",
        of=of or {"what": name, "by": unit},
    )


def write_ratios(file: Path, ratios: Sequence[Ratio]) -> None:
    """Write the list as JSON."""
    file.write_text(json.dumps(ratios, indent=2) + "\n")


def ratio_figures(ratios: Sequence[Ratio]) -> list[Figure]:
    """For each ratio, the ratio as people state it (ours / yardstick where lower is better), and both its sides."""
    figures = []
    for one in ratios:
        stated = 1 / one["ratio"] if one["better"] == "lower" else one["ratio"]
        figures += [
            Figure(of=dict(one["of"]), measure="ratio", unit="×", value=stated),
            Figure(
                of=dict(one["of"]), measure="sides", unit=one["unit"], value=one["ours"], yardstick=one["yardstick"]
            ),
        ]
    return figures
