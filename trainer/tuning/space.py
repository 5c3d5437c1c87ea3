"""The search spaces: the values that each setting of a recipe may take, in order.

`NETWORK` is the space of our methods. `BOOSTING` is that of the rival LightGBM, whose settings form a part of the
recipe, such as `boosting.num_leaves`. A setting that a space does not name stays as the task has it: the method, the
number of seeds, the search for δ. Values are in order of size, so that the sampler knows near from far; `UNORDERED`
settings have no order. None comes last if it means all. For `batch_size` it means a size by the number of rows and
comes first, since small data sets gain most from a search. λ = 0 is not in the space: it would be another method.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from contracts.task import Calendar, LabelForm, NumberForm, RegressionLoss, Task, Training

Space = Mapping[str, Sequence[Any]]

UNORDERED = frozenset({"calendar"})
# Forms in which rows are read. The best form depends on the rows more than on the rest of a recipe.
FORMS = ("number_form", "label_form")
_CALENDARS: tuple[Calendar, ...] = ("day", "week", "year")
_LOSSES: tuple[RegressionLoss, ...] = ("gaussian", "absolute")
_LABEL_FORMS: tuple[LabelForm, ...] = ("plain", "log")
_NUMBER_FORMS: tuple[NumberForm, ...] = ("plain", "quantile", "piecewise")

NETWORK: Space = {
    "history": (4, 12, 26, None),
    "regression_loss": _LOSSES,
    "label_form": _LABEL_FORMS,
    "number_form": _NUMBER_FORMS,
    "width": (16, 32, 64, 128),
    "num_layers": (1, 2, 3),
    "num_trelu": (0, 1, None),
    "embedding": (4, 8, 16),
    "time_width": (1, 2, 4, 8),
    "time_linear": (1, 2),
    "batch_size": (None, 64, 128, 256, 512, 1024),
    "pretrain_epochs": (3, 5, 10, 20, 40, 80),
    "pretrain_rate": (1e-3, 2e-3, 4e-3, 1e-2, 2e-2),
    "finetune_windows": (1, 2, 3, 4),
    "finetune_epochs": (1, 3, 10, 25),
    "finetune_rate": (1e-4, 3e-4, 1e-3, 3e-3),
    "weight_decay": (1e-4, 1e-2, 1e-1, 3e-1, 1.0, 3.0),
    "averaged": (0.2, 0.5, 0.9),
    "gi_weight": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "gi_pretrain": (False, True),
    "delta_max": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
}

BOOSTING: Space = {
    "history": (4, 12, 26, None),
    "regression_loss": _LOSSES,
    "label_form": _LABEL_FORMS,
    "boosting.learning_rate": (0.02, 0.05, 0.1, 0.2),
    "boosting.num_leaves": (7, 15, 31, 63, 127),
    "boosting.min_rows": (5, 20, 50, 100, 300),
    "boosting.feature_share": (0.4, 0.7, 1.0),
    "boosting.half_life": (2.0, 4.0, 13.0, 26.0, 52.0, 1000.0),
    "boosting.reads_time": (False, True),
    "boosting.reads_calendar": (False, True),
}

# Recipes that won elsewhere, tried before any sample: so a short search starts from recipes that work. Each was chosen
# on the first windows of one stream (docs/flights.md, docs/moons.md, benchmarks/task_files).
PROVEN: tuple[Mapping[str, Any], ...] = (
    {
        "width": 32, "num_layers": 2, "num_trelu": 1, "embedding": 8, "time_width": 2, "time_linear": 1,
        "pretrain_epochs": 5, "pretrain_rate": 4e-3, "finetune_windows": 2, "finetune_epochs": 1,
        "finetune_rate": 3e-4, "weight_decay": 3.0, "averaged": 0.9, "gi_weight": 10.0, "gi_pretrain": False,
        "delta_max": 8.0,
    },
    {
        "width": 64, "num_layers": 2, "num_trelu": None, "time_width": 8, "time_linear": 2, "batch_size": 64,
        "pretrain_epochs": 40, "pretrain_rate": 1e-2, "finetune_windows": 2, "finetune_epochs": 25,
        "finetune_rate": 3e-4, "weight_decay": 1e-4, "averaged": 0.5, "gi_weight": 0.1, "gi_pretrain": True,
        "delta_max": 1.0,
    },
    {
        "regression_loss": "absolute", "width": 64, "num_layers": 2, "num_trelu": 1, "time_width": 1,
        "time_linear": 1, "batch_size": 256, "pretrain_epochs": 20, "pretrain_rate": 4e-3, "finetune_windows": 1,
        "finetune_epochs": 3, "finetune_rate": 1e-3, "weight_decay": 1.0, "averaged": 0.9, "gi_weight": 0.3,
        "gi_pretrain": False, "delta_max": 1.0,
    },
)  # fmt: skip


# Recipes that complement a task's own, tried by `training.tune = "quick"`. The first is for numbers whose level
# wanders, such as prices, the second for numbers that act in proportion and in ranges that a fit has not seen.
PORTFOLIO: tuple[Mapping[str, Any], ...] = ({"views": ("plain", "last_day")}, {"number_form": "plain"})


def complements(task: Task) -> list[Training]:
    """The recipes of the portfolio that differ from the task's own."""
    base = task.training
    return [other for settings in PORTFOLIO if task.numbers and (other := merge(base, settings)) != base]


def calendars(known: Sequence[Calendar] = _CALENDARS) -> tuple[tuple[Calendar, ...], ...]:
    """Every subset of the calendar phases `known`, the smallest first."""
    return tuple(chosen for size in range(len(known) + 1) for chosen in combinations(known, size))


def space_of(task: Task) -> Space:
    """The space of a task's recipes."""
    return restrict_space({**NETWORK, "calendar": calendars()}, task)


def restrict_space(space: Space, task: Task | None) -> Space:
    """The space without the settings that a task's fits do not read.

    Only categories have an embedding, only numbers a form, and only labels that are values a regression loss and a
    label form. `task` is None for images and texts, which have classes.
    """
    unread = {"embedding"} if task is None or not task.categories else set[str]()
    unread |= {"number_form"} if task is None or not task.numbers else set()
    unread |= {"regression_loss", "label_form"} if task is None or task.is_classification else set()
    return {name: values for name, values in space.items() if name not in unread}


def merge(base: Training, settings: Mapping[str, Any]) -> Training:
    """The recipe with these settings; TReLU layers and linear entries beyond the available room are dropped."""
    values = base.model_dump()
    for name, value in settings.items():
        *path, last = name.split(".")
        part = values[path[0]] if path else values
        part[last] = value
    values["time_linear"] = min(values["time_linear"], values["time_width"])
    if values["num_trelu"] is not None:
        values["num_trelu"] = min(values["num_trelu"], values["num_layers"])
    return Training.model_validate(values)


def value_of(training: Training, name: str) -> Any:
    """The recipe's value of a setting, named as in a space."""
    found: Any = training
    for part in name.split("."):
        found = getattr(found, part)
    return found
