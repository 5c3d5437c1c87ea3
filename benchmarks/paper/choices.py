"""The settings that were chosen inside the training range, by set and method, and what chose them.

`chosen.toml` holds what the paper leaves open, chosen by comparing a few values (`benchmarks.paper.choose`), and
`released.toml` what the service would train, found by a search (`benchmarks.paper.choose_released`). The commands write
the files, and no test domain takes part in a choice.
"""

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

CHOSEN, RELEASED = (Path(__file__).parent / name for name in ("chosen.toml", "released.toml"))

Changes = Mapping[str, Any]

_HEADER = """# Settings by set and method, and what chose them. Written by `python -m benchmarks paper --choose`.
"""


class Tried(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One candidate of a comparison: its mean error, and its log-loss, which decides between equal errors."""

    changes: dict[str, Any]
    error: float
    loss: float


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings that won, and how: `models` and `tried` of a comparison, the other members of a search.

    `domains` were scored, each by fits on the domains before it. `error` is the mean log-loss in nats, or the mean
    absolute error, of the winner there, and `default_error` that of a task's default recipe. `started_from` says what
    the search knew beforehand.
    """

    changes: dict[str, Any]
    domains: tuple[int, ...]
    models: int | None = None
    tried: tuple[Tried, ...] = ()
    error: float | None = None
    default_error: float | None = None
    trials: int | None = None
    seconds: int | None = None
    seed: int | None = None
    started_from: str = ""

    @property
    def chosen_by(self) -> str:
        """What chose the settings, in a sentence."""
        domains = ", ".join(map(str, self.domains))
        if self.trials is None:
            tried = ", ".join(f"{words(one.changes)} → {one.error:.3g} and {one.loss:.3g}" for one in self.tried)
            return f"error, then loss, on domain {domains} over {self.models} models ({tried})"
        start = f" from {self.started_from}" if self.started_from else ""
        error, default = ("none" if each is None else f"{each:.4f}" for each in (self.error, self.default_error))
        spent = f"{self.trials} trials in {self.seconds} s{start}, seed {self.seed}"
        return f"trainer.tune, {spent}: {error} on domains {domains}, a task's default {default}"


def words(changes: Changes) -> str:
    """Settings and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in changes.items())


@cache
def read_choices(file: Path) -> dict[str, dict[str, Choice]]:
    """Set → method → what was chosen for it; empty if there is no file yet. Read once."""
    found = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    return msgspec.convert(found, type=dict[str, dict[str, Choice]])


def write_choices(file: Path, found: Mapping[str, Mapping[str, Choice]]) -> None:
    """Add choices to the file; those of the same set and method are replaced."""
    kept = read_choices(file)
    merged = {name: {**kept.get(name, {}), **found.get(name, {})} for name in {**kept, **found}}
    parts = [
        _as_toml(f"{name}.{method}", choice) for name, methods in merged.items() for method, choice in methods.items()
    ]
    file.write_text("\n".join([_HEADER, *parts]), "utf-8")
    read_choices.cache_clear()


def _as_toml(heading: str, choice: Choice) -> str:
    """A table of TOML, whose numbers and strings are written as in JSON."""
    members: dict[str, Any] = msgspec.to_builtins(choice)
    return "".join([f"[{heading}]\n", *(f"{name} = {_inline(value)}\n" for name, value in members.items())])


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_inline(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        return "".join(["[\n", *(f"    {_inline(each)},\n" for each in value), "]"])
    return json.dumps(value, ensure_ascii=False)
