"""Measured results as data: the files of `benchmarks/results/`, from which `python -m handbook` prints every table.

A file holds the runs that measured its figures. A run says by which command, at which commit, when, on what and with
how many seeds it was made. `python -m benchmarks NAME --results FILE` adds a run: figures that it measured again
replace those of older runs. Commit the file, and the pages that `python -m handbook` then changes.
"""

import datetime
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

FOLDER = Path(__file__).parent / "results"

Label = str | int | float | bool
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One number. `of` says what was measured (set, method, …), `measure` which of its sides (error, seconds, …).

    `value` is the mean over the run's seeds, and `std` their standard deviation. `yardstick` is what it is compared
    with, in the same unit: a published figure, or the time of another program. Of several runs, `value` is the lowest
    figure and `high` the highest. `note` says why there is no value.
    """

    of: dict[str, Label]
    measure: Text
    unit: str
    value: int | float | None
    std: float | None = None
    high: int | float | None = None
    yardstick: int | float | None = None
    yardstick_std: float | None = None
    note: str = ""

    @property
    def identity(self) -> tuple[Any, ...]:
        """What no two figures of a file share."""
        return (self.measure, *sorted(self.of.items()))


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures that one command measured. `seeds` counts independent models, None if no seed matters.

    `provenance` says how the figures came into the file: measured by the command itself, or read back from a page.
    """

    command: Text
    commit: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{7,40}$")]
    date: datetime.date
    hardware: Text
    seeds: int | None
    provenance: Text
    figures: tuple[Figure, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file: what it holds in a sentence, and its runs, oldest first."""

    title: Text
    runs: tuple[Run, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of all runs."""
        return tuple(figure for run in self.runs for figure in run.figures)

    def with_run(self, run: Run) -> "Result":
        """This result with one more run; what it measured again leaves the older runs."""
        again = {figure.identity for figure in run.figures}
        older = [
            msgspec.structs.replace(each, figures=tuple(one for one in each.figures if one.identity not in again))
            for each in self.runs
        ]
        return msgspec.structs.replace(self, runs=(*(each for each in older if each.figures), run))


def file_of(name: str) -> Path:
    """Where the result of a name is kept."""
    return FOLDER / f"{name}.json"


def names() -> list[str]:
    """Every committed result."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def load(name: str) -> Result:
    """A committed result. Raises FileNotFoundError, msgspec.ValidationError."""
    return decode(file_of(name).read_bytes())


def decode(content: bytes) -> Result:
    """A result from JSON. Raises msgspec.ValidationError where it is not as the schema says."""
    return msgspec.json.decode(content, type=Result)


def encode(result: Result) -> str:
    """A result as JSON with a line for each figure, so that a change shows the figures that it changes."""
    document = msgspec.to_builtins(result)
    lines = ["{", f'  "title": {_text(document["title"])},', '  "runs": [']
    for number, run in enumerate(document["runs"]):
        figures = run.pop("figures")
        lines += ["    {", *(f'      "{name}": {_text(value)},' for name, value in run.items()), '      "figures": [']
        lines += [f"        {_text(figure)}{',' * (figure is not figures[-1])}" for figure in figures]
        lines += ["      ]", "    }" + "," * (number < len(document["runs"]) - 1)]
    return "\n".join([*lines, "  ]", "}", ""])


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def save(name: str, result: Result) -> None:
    """Write a result, whole or not at all."""
    file = file_of(name)
    partial = file.with_suffix(".partial")
    partial.write_text(encode(result), "utf-8")
    partial.replace(file)


@dataclass(frozen=True)
class Checkout:
    """The code that measures: its commit, and whether files differ from it."""

    commit: str
    is_changed: bool

    @property
    def provenance(self) -> str:
        return "measured with uncommitted changes" if self.is_changed else "measured"


def find_checkout() -> Checkout:
    """The checkout of this file. Raises CalledProcessError outside a repository."""
    return Checkout(_git("rev-parse", "--short", "HEAD"), bool(_git("status", "--porcelain", "--untracked-files=no")))


def _git(*words: str) -> str:
    ended = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def add_run(name: str, title: str, run: Run) -> None:
    """Add a run to the file of a name, which is created if missing."""
    found = load(name) if file_of(name).exists() else Result(title=title, runs=())
    save(name, found.with_run(run))


def measured(
    command: str,
    figures: Sequence[Figure],
    *,
    checkout: Checkout,
    today: datetime.date,
    hardware: str,
    seeds: int | None,
) -> Run:
    """The run of a command on the code of a checkout."""
    return Run(
        command=command,
        commit=checkout.commit,
        date=today,
        hardware=hardware,
        seeds=seeds,
        provenance=checkout.provenance,
        figures=tuple(figures),
    )
