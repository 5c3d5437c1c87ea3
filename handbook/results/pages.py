"""The pages that hold tables of results, and the tables by name.

A page asks by a line such as `<!-- table: replay methods -->`; `python -m handbook` writes the table below it. The text
around it is written by hand. To show a new result, write a function, add it to `TABLES`, and name it on a page.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from handbook.results.blind import blind_experts, blind_methods, blind_parts
from handbook.results.boolean import boolean_rules, boolean_training
from handbook.results.cost import cohort_cost, cycle_cost, small_cycles, step_cost
from handbook.results.flights import demo, flights_methods, flights_weeks
from handbook.results.moons import moons_finalists, moons_methods
from handbook.results.paper import (
    SET_NAMES,
    choices,
    earlier_recipes,
    later_domains,
    paper_set,
    released,
    seconds,
    snapshots,
    varied,
)
from handbook.results.readme import readme
from handbook.results.replay import replay_choices, replay_methods, replay_promises
from handbook.results.speed import ingest, many_tasks, mixed, reading, serving

DOCS = Path(__file__).parents[2] / "docs"
RESULT_PAGES = (
    DOCS.parent / "README.md",
    DOCS / "results.md",
    DOCS / "paper.md",
    DOCS / "replay.md",
    DOCS / "flights.md",
    DOCS / "moons.md",
    DOCS / "boolean.md",
    DOCS / "explanation" / "cost.md",
)

# A marker, and the table that stands below it: a page's own text never begins a line with a bar there.
_MARKER = re.compile(r"^<!-- table: (?P<name>[^>]+?) -->\n(?:\n(?:\|.*\n)+)?", re.MULTILINE)

TABLES: dict[str, Callable[[], str]] = {
    "readme": readme,
    **{f"paper {name}": partial(paper_set, name) for name in SET_NAMES},
    "paper released": released,
    "paper later": later_domains,
    "paper delta": partial(
        varied,
        "delta",
        "delta_mode",
        ("random", "adversarial", "warm", "grid"),
        title="search for δ",
        sets=("moons", "mnist"),
    ),
    "paper finetune": partial(
        varied,
        "finetune",
        "finetune_windows",
        (1, 2, 3, 4),
        title="windows fine-tuned on",
        sets=("mnist", "house", "elec2"),
    ),
    "paper trelu": partial(
        varied,
        "trelu",
        "num_trelu",
        (0, 1, 2, 3, 4, 5),
        title="TReLU layers",
        sets=("moons", "house", "mnist"),
        method="base_time",
    ),
    "paper snapshots": snapshots,
    "paper seconds": seconds,
    "paper choices": choices,
    "paper earlier": earlier_recipes,
    "blind methods": blind_methods,
    "blind parts": blind_parts,
    "blind experts": blind_experts,
    "replay promises": replay_promises,
    "replay methods": replay_methods,
    "replay choices": replay_choices,
    "flights methods": flights_methods,
    "flights weeks": flights_weeks,
    "demo": demo,
    "moons methods": moons_methods,
    "moons finalists": moons_finalists,
    "boolean rules": boolean_rules,
    "boolean training": boolean_training,
    "cost step": step_cost,
    "cost cohort": cohort_cost,
    "cost cycle": cycle_cost,
    "cost small": small_cycles,
    "serving": partial(serving, "serving"),
    "serving parts": partial(serving, "serving_parts"),
    "ingest": ingest,
    "reading": reading,
    "mixed": mixed,
    "tasks": many_tasks,
}


def fill(text: str) -> str:
    """A page with every table printed again below its marker. Raises KeyError for a table that nothing prints."""
    return _MARKER.sub(lambda found: f"<!-- table: {found['name']} -->\n\n{TABLES[found['name']]()}", text)


def tables_of(text: str) -> list[str]:
    """The names of the tables that a page asks for."""
    return [found["name"] for found in _MARKER.finditer(text)]
