"""The paper's tables as lists of what to run: a set, a method, a configuration, and what a table changes of a recipe.

A row that differs from the recipe says so in its name: `gi[finetune_windows=1]`. If the change is what the recipe has
already, the row is the same fit as the plain one and is trained once (`Entry.work`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.paper.published import PUBLISHED, PUBLISHED_AS, Published
from benchmarks.paper.recipes import Config, Recipe, find_recipe

# An error on the first unseen domain, the mean of those on it and every later domain, or what a model takes to train.
Measure = Literal["error", "later_error", "seconds"]

# The sets of each published table, then those without a published figure.
CLASSIFICATION = ("moons", "mnist", "onp", "shuttle", "reuters", "elec2")
MAIN = (*CLASSIFICATION, "house", "m5_hobbies", "m5_household")
BESIDE = ("moons_fresh", "shuttle_raw", "elec2_40", "appliance")
# The same sets as the service reads them: Elec2 both by its dated rows and by the published arrays.
SERVED = (
    "moons", "moons_fresh", "onp", "shuttle", "shuttle_raw", "elec2", "elec2_40", "elec2_rows", "elec2_rows_40",
    "house", "appliance",
)  # fmt: skip
# Images and texts, which the service has no rows for: only its networks read them. Of the two sets of images this is
# the one with fewer errors on a known domain.
UNSERVED = ("mnist_normed", "reuters")
# The small ones, for a first look.
QUICK = ("moons", "moons_fresh", "shuttle")

RULES = ("naive", "constant")
TIME_OBLIVIOUS = ("baseline", "last_window", "inc_finetune")
RIVALS = ("cdot", "cida", "adagraph")
ABLATIONS = ("base_time", "inc_finetune_time", "grad_reg", "time_perturb")
# What users would pick, on the rows that our model reads.
RELEASED = ("gi", "baseline", "base_time", "gbdt", "extrapolated_linear")
# Hidden layers of the paper's networks.
NUM_LAYERS = {"moons": 2, "house": 3, "mnist": 5}
MOST_SNAPSHOTS = 4


@dataclass(frozen=True)
class Entry:
    """One cell: `label` is its method's name in JSON and print, `published_as` the method's in `PUBLISHED`.

    `changes` are pairs of a setting and its value.
    """

    table: str
    set: str
    method: str
    config: Config
    changes: tuple[tuple[str, Any], ...] = ()
    published_as: str | None = None
    measure: Measure = "error"

    @property
    def label(self) -> str:
        changes = ",".join(f"{name}={value}" for name, value in self.changes)
        return f"{self.method}[{changes}]" if changes else self.method

    @property
    def recipe(self) -> Recipe:
        return find_recipe(self.set, self.method, self.config, dict(self.changes))

    @property
    def work(self) -> tuple[str, str, Config, str, bool]:
        """What two entries share if they are the same fits: set, method, configuration, recipe and origins."""
        recipe = self.recipe.training.model_dump_json()
        return self.set, self.method, self.config, recipe, self.measure == "later_error"

    @property
    def published(self) -> Published | None:
        """The figure of the paper's own table, else of its main one or of a later paper; None if there is none."""
        name = PUBLISHED_AS.get(self.set, self.set)
        own = PUBLISHED.get((self.table, name, self.published_as or self.method))
        if own is not None or self.changes or self.measure != "error":
            return own
        found = (PUBLISHED.get((table, name, self.method)) for table in ("main", "successors"))
        return next((cell for cell in found if cell is not None), None)


@dataclass(frozen=True)
class Table:
    """A title for people, and the cells in the order of print."""

    title: str
    entries: tuple[Entry, ...]


def _grid(table: str, sets: Sequence[str], methods: Sequence[str], config: Config = "paper") -> tuple[Entry, ...]:
    return tuple(Entry(table, name, method, config) for name in sets for method in methods)


def _printed(table: str, sets: Sequence[str], methods: Sequence[str]) -> tuple[Entry, ...]:
    """The cells that the paper prints: some methods do not apply to some sets, and it leaves them out."""
    return tuple(entry for entry in _grid(table, sets, methods) if (table, entry.set, entry.method) in PUBLISHED)


def _varied(table: str, sets: Sequence[str], setting: str, values: Sequence[Any]) -> tuple[Entry, ...]:
    """`gi` with each value of a setting; the paper calls its rows by them."""
    return tuple(
        Entry(table, name, "gi", "paper", ((setting, value),), published_as=str(value))
        for name in sets
        for value in values
    )


def _main() -> tuple[Entry, ...]:
    methods = (*TIME_OBLIVIOUS, *RIVALS, "gi")
    return (
        *_printed("main", MAIN, methods),
        *_grid("main", ("moons_fresh", "shuttle_raw", "elec2_40"), methods),
        *_grid("main", ("mnist_normed", "house_2018"), (*TIME_OBLIVIOUS, "gi")),
        *_grid("main", ("appliance",), (*TIME_OBLIVIOUS, "cida", "adagraph", "gi")),
        *_grid("main", (*MAIN, *BESIDE), RULES, "rule"),
        *_grid("main", ("elec2", "elec2_40", "appliance"), ("previous_label",), "rule"),
    )


def _ablation() -> tuple[Entry, ...]:
    methods = (*ABLATIONS, "gi")
    return (
        *_printed("ablation", MAIN, methods),
        *_grid("ablation", ("reuters", "house", *BESIDE), methods),
        *_grid("ablation", ("mnist_normed", "house_2018"), ("base_time", "inc_finetune_time", "gi")),
    )


def _trelu() -> tuple[Entry, ...]:
    return tuple(
        Entry("trelu", name, "base_time", "paper", (("num_trelu", number),))
        for name, num_layers in NUM_LAYERS.items()
        for number in range(num_layers + 1)
    )


def _snapshots() -> tuple[Entry, ...]:
    return tuple(
        Entry("snapshots", "mnist", method, "paper", (("history", number),))
        for method in ("gi", "cida", "adagraph")
        for number in range(1, MOST_SNAPSHOTS + 1)
    )


def _later() -> tuple[Entry, ...]:
    cells: tuple[tuple[str, Config], ...] = (
        *((method, "released") for method in ("gi", "baseline", "gbdt", "extrapolated_linear")),
        *((rule, "rule") for rule in ("naive", "previous_label")),
    )
    return (
        *(
            Entry("later", name, method, config, measure="later_error")
            for name in ("elec2_rows", "elec2")
            for method, config in cells
        ),
        Entry("later", "elec2", "gi", "paper", measure="later_error"),
    )


def _seconds() -> tuple[Entry, ...]:
    sets, methods = ("moons", "mnist", "house", "m5_hobbies"), ("baseline", "cida", "gi")
    return tuple(Entry("seconds", name, method, "paper", measure="seconds") for name in sets for method in methods)


TABLES: dict[str, Table] = {
    "main": Table("Comparison of methods, and what rules without a fit score", _main()),
    "released": Table(
        "What the service releases, and what users would pick",
        (
            *_grid("released", SERVED, RELEASED, "released"),
            *_grid("released", UNSERVED, RELEASED[:3], "released"),
            *(Entry("released", name, "gi", "released", (("num_seeds", 1),)) for name in (*SERVED, *UNSERVED)),
        ),
    ),
    "later": Table(
        "The same recipes on the test's and every later domain, each fitted on all that came before", _later()
    ),
    "ablation": Table("What the network and the loss each bring", _ablation()),
    "delta": Table(
        "How δ is selected",
        _varied("delta", ("moons", "mnist", "m5_hobbies"), "delta_mode", ("random", "adversarial", "warm", "grid")),
    ),
    "finetune": Table(
        "Number k of windows that are fine-tuned on",
        _varied("finetune", ("mnist", "house", "elec2"), "finetune_windows", (1, 2, 3, 4)),
    ),
    "trelu": Table("Number of TReLU layers, counted from the last, with the plain loss", _trelu()),
    "snapshots": Table("Number of training snapshots on Rot-MNIST", _snapshots()),
    "online": Table("Online learning", _grid("online", ("mnist", "elec2", "shuttle", "house"), ("ftpl", "ftrl", "gi"))),
    "other": Table(
        "Other methods",
        _printed("other", ("moons", "mnist", "m5_hobbies"), ("gi", "ordinal", "generative", "deep_ode")),
    ),
    "seconds": Table("Seconds that one model takes to train", _seconds()),
}


def select(tables: Sequence[str], sets: Sequence[str], methods: Sequence[str]) -> list[Entry]:
    """The entries of these tables on these sets with these methods; an empty list selects all."""
    return [
        entry
        for name in tables or TABLES
        for entry in TABLES[name].entries
        if (not sets or entry.set in sets) and (not methods or entry.method in methods)
    ]
