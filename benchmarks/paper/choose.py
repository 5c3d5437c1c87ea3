"""What chooses the settings that the paper tuned without telling: the last origin before the test's.

The paper takes its last training domain for this, and so do we: fit on the domains before it, score on it. Equal
errors, as on the 26 rows of Shuttle's, are told apart by log-loss. The test
domain is in no split that is fitted or scored. `chosen.toml` keeps each choice with the errors that made it, and
`released.toml` those of `benchmarks.paper.choose_released`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.paper.recipes import OPEN, OPEN_METHOD, PAPER, WEIGHTED, WEIGHTS, Changes, read_choices, words
from benchmarks.paper.runs import score_at
from benchmarks.paper.sets import PaperSet
from benchmarks.paper.tables import Entry
from contracts.task import Training

_HEADER = """# Settings by set and method, and what chose them. Written by `python -m benchmarks paper --choose`.
"""


@dataclass(frozen=True)
class Choice:
    """The changes that won, and in words against what."""

    changes: Changes
    chosen_by: str


def choose(
    paper_set: PaperSet, methods: Sequence[str], num_models: int, report: Callable[[str], object]
) -> dict[str, Choice]:
    """Choose for one set: what the text leaves open first, then λ for each of these methods that has one."""
    training, choices = PAPER[paper_set.name], {}
    searches: list[tuple[str, Sequence[Changes]]] = [(method, WEIGHTS) for method in WEIGHTED if method in methods]
    if paper_set.name in OPEN:
        searches.insert(0, (OPEN_METHOD, OPEN[paper_set.name]))
    for method, candidates in searches:
        choice = _best(paper_set, method, training, candidates, num_models)
        report(f"{paper_set.name}, {method}: {words(choice.changes)}; {choice.chosen_by}")
        choices[method] = choice
        if method == OPEN_METHOD:
            training = training.model_copy(update=dict(choice.changes))
    return choices


def _best(
    paper_set: PaperSet, method: str, training: Training, candidates: Sequence[Changes], num_models: int
) -> Choice:
    origin = paper_set.test_origin - 1
    entry = Entry("choice", paper_set.name, method, "paper")
    scores = [
        score_at(paper_set, origin, entry, training.model_copy(update=dict(changes)), num_models)
        for changes in candidates
    ]
    found = [(fmean(score.errors), fmean(score.losses)) for score in scores]
    best = min(range(len(candidates)), key=found.__getitem__)
    tried = ", ".join(
        f"{words(changes)} → {error:.3g} and {loss:.3g}"
        for changes, (error, loss) in zip(candidates, found, strict=True)
    )
    return Choice(candidates[best], f"error, then loss, on domain {origin} over {num_models} models ({tried})")


def write_choices(file: Path, found: Mapping[str, Mapping[str, Choice]]) -> None:
    """Add choices to the file; those of the same set and method are replaced."""
    kept = {
        name: {method: Choice(each["changes"], each["chosen_by"]) for method, each in methods.items()}
        for name, methods in read_choices(file).items()
    }
    merged = {name: {**kept.get(name, {}), **found.get(name, {})} for name in {**kept, **found}}
    parts = [
        _as_toml(f"{name}.{method}", choice) for name, methods in merged.items() for method, choice in methods.items()
    ]
    file.write_text("\n".join([_HEADER, *parts]), "utf-8")
    read_choices.cache_clear()


def _as_toml(heading: str, choice: Choice) -> str:
    """A table of TOML, whose numbers and strings are written as in JSON."""
    reason = json.dumps(choice.chosen_by, ensure_ascii=False)
    return f"[{heading}]\nchanges = {_inline(choice.changes)}\nchosen_by = {reason}\n"


def _inline(value: Any) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(value)
    return "{ " + ", ".join(f"{name} = {_inline(each)}" for name, each in value.items()) + " }"
