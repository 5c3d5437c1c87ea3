"""What every benchmark can write: its own JSON (`--json FILE`), and a run in a file of results (`--results NAME`)."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.hardware import hardware
from benchmarks.result_files import Figure, add_run, find_checkout, measured


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """The options `--json` and `--results`."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of this run here")
    parser.add_argument(
        "--results",
        metavar="NAME",
        help="add this run to benchmarks/results/NAME.json, which the docs print",
    )


def record_run(
    name: str,
    title: str,
    arguments: Sequence[str],
    figures: Sequence[Figure],
    *,
    seeds: int | None = None,
    ran_on: str | None = None,
    module: str = "benchmarks",
) -> None:
    """Add the run of `python -m` a module with these arguments to a file of results, today."""
    add_run(
        name,
        title,
        measured(
            " ".join(["python -m", module, *without_outputs(arguments)]),
            [_short(figure) for figure in figures],
            checkout=find_checkout(),
            today=datetime.now(UTC).date(),
            hardware=ran_on or hardware(),
            seeds=seeds,
        ),
    )


def _short(figure: Figure) -> Figure:
    """A figure with six significant digits: more only make a change of the file hard to read."""
    numbers = {name: getattr(figure, name) for name in ("value", "std", "high", "yardstick", "yardstick_std")}
    floats = {name: float(f"{number:.6g}") for name, number in numbers.items() if isinstance(number, float)}
    return msgspec.structs.replace(figure, **floats)


def without_outputs(arguments: Sequence[str]) -> list[str]:
    """The arguments but for those that only say where to write."""
    kept: list[str] = []
    is_value = False
    for argument in arguments:
        if not is_value and argument.split("=")[0] not in ("--json", "--results"):
            kept.append(argument)
        is_value = not is_value and argument in ("--json", "--results")
    return kept
