"""The recipe of every set in both configurations, and what chose each of its settings.

`paper` is the appendix after our errata: Adam without weight decay or averaging, early stopping where it is named, one
network per seed. Its Δ is a length in the authors' own unit of time, which differs from set to set; here it is in
windows. An ascent step is as long as a gradient of one would make it there: the published rate as a share of Δ, at most
all of it. `OPEN` lists what the text leaves open; `benchmarks.paper.choose` chooses it inside the training range. The
same holds for λ, which the paper tuned but does not give. The choices are in `chosen.toml`.

`released` is what the service trains: the recipe that `benchmarks.paper.choose_released` found inside the training
range. `released.toml` keeps it with its budget, as it differs from `FORMER`, a task's default when the choices were
made. A set without a choice has that default. LightGBM has a choice of its own; the other networks have our recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.paper.choices import CHOSEN, RELEASED, Changes, read_choices, words
from contracts.task import Training, read_training

Config = Literal["paper", "released", "rule"]

# δ is searched for on the whole minibatch.
_PAPER: Changes = {
    "calendar": (), "finetune_windows": 2, "weight_decay": 0.0, "averaged": 0.0, "delta_mode": "warm",
    "delta_rows": 1024, "number_form": "plain", "regression_loss": "gaussian", "experts": ("gi",),
}  # fmt: skip
FORMER = read_training({})
_SMALL_TIME: Changes = {"time_width": 8, "time_linear": 2}
_LARGE_TIME: Changes = {"time_width": 16, "time_linear": 4}


def _published(
    *, delta: float, unit: float, ascent: float, steps: int, epochs: tuple[int, int], rates: tuple[float, float],
    **others: Any,
) -> Training:  # fmt: skip
    """A recipe of the appendix: its Δ and ascent rate in a unit of time that holds this many windows."""
    return Training(
        **_PAPER,
        **others,
        delta_max=round(delta * unit, 6),
        delta_rate=round(min(1.0, ascent / delta), 6),
        delta_steps=steps,
        pretrain_epochs=epochs[0],
        finetune_epochs=epochs[1],
        pretrain_rate=rates[0],
        finetune_rate=rates[1],
    )


_MOONS = _published(
    **_SMALL_TIME, width=50, num_layers=2, batch_size=64, early_stopping=True,
    epochs=(30, 25), rates=(5e-3, 5e-4), delta=0.5, unit=11, ascent=0.05, steps=5,
)  # fmt: skip
_MNIST = _published(
    **_LARGE_TIME, width=256, num_layers=5, batch_size=250, early_stopping=True,
    epochs=(60, 20), rates=(1e-3, 5e-4), delta=0.15, unit=6, ascent=0.1, steps=15,
)  # fmt: skip
_SHUTTLE = _published(
    **_LARGE_TIME, width=128, num_layers=2, batch_size=256,
    epochs=(25, 15), rates=(5e-3, 5e-4), delta=0.2, unit=5, ascent=0.005, steps=10,
)  # fmt: skip
_ELEC2 = _published(
    **_LARGE_TIME, width=128, num_layers=2, batch_size=1024,
    epochs=(30, 20), rates=(5e-3, 5e-4), delta=0.2, unit=40, ascent=0.005, steps=10,
)  # fmt: skip
_HOUSE = _published(
    **_LARGE_TIME, width=400, num_layers=3, batch_size=256, early_stopping=True,
    epochs=(40, 20), rates=(1e-3, 5e-4), delta=0.2, unit=12, ascent=0.3, steps=5,
)  # fmt: skip

# Units: elevenths of the sequence (Moons), sixths (Rot-MNIST), fortieths (Elec2), the years 2007 to 2019 (House), as in
# the authors' code. Shuttle, Reuters and ONP are not in it or count otherwise: there it is the number of domains. M5's
# code counts windows. Appliance is not in the paper: its recipe is that of Elec2, with the number of domains as unit.
PAPER: dict[str, Training] = {
    "moons": _MOONS,
    "moons_fresh": _MOONS,
    "mnist": _MNIST,
    "mnist_normed": _MNIST,
    "shuttle": _SHUTTLE,
    "shuttle_raw": _SHUTTLE,
    "reuters": _published(
        **_SMALL_TIME, width=128, num_layers=2, batch_size=64, embedding=64,
        epochs=(50, 20), rates=(5e-3, 2.5e-3), delta=0.2, unit=4, ascent=0.1, steps=5,
    ),
    "elec2": _ELEC2,
    "elec2_40": _ELEC2,
    "house": _HOUSE,
    "house_2018": _HOUSE,
    "appliance": _ELEC2.model_copy(update={"delta_max": 1.8}),
    "onp": _published(
        **_SMALL_TIME, width=200, num_layers=2, batch_size=64, early_stopping=True,
        epochs=(50, 30), rates=(1e-3, 5e-5), delta=0.1, unit=6, ascent=0.5, steps=10,
    ),
    "m5_hobbies": _published(
        **_SMALL_TIME, width=50, num_layers=3, batch_size=256, early_stopping=True,
        epochs=(25, 15), rates=(1e-2, 5e-4), delta=0.5, unit=1, ascent=0.5, steps=5,
    ),
    "m5_household": _published(
        **_SMALL_TIME, width=50, num_layers=3, batch_size=256, early_stopping=True,
        epochs=(35, 20), rates=(1e-2, 5e-4), delta=0.5, unit=1, ascent=0.5, steps=5,
    ),
}  # fmt: skip

# Methods whose objective has a λ, and the values that the paper picked from.
WEIGHTED = ("gi", "grad_reg", "time_perturb")
WEIGHTS: Sequence[Changes] = tuple({"gi_weight": weight} for weight in (0.01, 0.1, 0.5, 1.0))

# What else the text leaves open and moves errors, chosen once per set by the plain loss and then used by every
# method: Moons' batch, and the learning rates of Reuters, whose published 2.0 and 1.0 no Adam survives.
OPEN_METHOD = "base_time"
OPEN: dict[str, Sequence[Changes]] = {
    "moons": tuple({"batch_size": size} for size in (64, 200)),
    "moons_fresh": tuple({"batch_size": size} for size in (64, 200)),
    "reuters": tuple({"pretrain_rate": rate, "finetune_rate": rate / 2} for rate in (1e-3, 5e-3, 1e-2)),
}


@dataclass(frozen=True)
class Recipe:
    """The settings of one cell, and what chose them, in words."""

    training: Training
    chosen_by: str


def find_recipe(set_name: str, method: str, config: Config, changes: Changes | None = None) -> Recipe:
    """The recipe of a set and a method in a configuration, with the changes that a table asks for."""
    if config == "rule":
        return Recipe(FORMER, "nothing to choose")
    recipe = _released(set_name, method) if config == "released" else _paper(set_name, method)
    if not changes:
        return recipe
    training = Training.model_validate(recipe.training.model_dump() | dict(changes))
    return Recipe(training, f"{recipe.chosen_by}; {words(changes)}: the table's")


def _paper(set_name: str, method: str) -> Recipe:
    training, reasons = PAPER[set_name], ["the paper's appendix"]
    choices = read_choices(CHOSEN).get(set_name, {})
    for key in (OPEN_METHOD, method) if method in WEIGHTED else (OPEN_METHOD,):
        if choice := choices.get(key):
            training = training.model_copy(update=choice.changes)
            reasons.append(f"{words(choice.changes)}: {choice.chosen_by}")
        elif key in WEIGHTED:
            reasons.append(f"gi_weight {training.gi_weight}: a task's default, not chosen yet")
        elif set_name in OPEN:
            reasons.append(f"{words(_values(training, OPEN[set_name][0]))}: not chosen yet")
    return Recipe(training, "; ".join(reasons))


def _released(set_name: str, method: str) -> Recipe:
    if method == "extrapolated_linear":
        return Recipe(FORMER, "degree and reach on its own earlier domains")
    choice = read_choices(RELEASED).get(set_name, {}).get("gbdt" if method == "gbdt" else "gi")
    if choice is None:
        return Recipe(FORMER, "a task's default, not chosen yet")
    return Recipe(read_training(choice.changes), choice.chosen_by)


def _values(training: Training, names: Changes) -> Changes:
    return {name: getattr(training, name) for name in names}
