"""Where recipes are looked for: the values that each setting may take, in order. `NETWORK` is that of our methods,
`BOOSTING` that of the rival LightGBM, whose settings stand in a part of the recipe: `boosting.num_leaves`.

What a space does not name stays as the task has it: the method, the number of seeds, how δ is searched. Values stand in
the order of their size, so that the sampler can tell near from far; those of `UNORDERED` have none. None is the most
where it means all, and stands before the least minibatch where it means one by the rows: few rows are what a search is
for most. λ = 0 is not among them: it is another method.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from contracts.task import Calendar, LabelForm, NumberForm, RegressionLoss, Task, Training

Space = Mapping[str, Sequence[Any]]

UNORDERED = frozenset({"calendar"})
# Forms in which rows are read. Which is right depends on the rows more than on the rest of a recipe.
FORMS = ("number_form", "label_form")
_CALENDARS: tuple[Calendar, ...] = ("day", "week", "year")
_LOSSES: tuple[RegressionLoss, ...] = ("gaussian", "absolute")
_LABEL_FORMS: tuple[LabelForm, ...] = ("plain", "log")
_NUMBER_FORMS: tuple[NumberForm, ...] = ("plain", "quantile")

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

# Recipes that won elsewhere, tried before any is drawn: a short search then starts from what is known to work. Each was
# chosen on the first windows of one stream (docs/flights.md, docs/moons.md, benchmarks/tasks).
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


def calendars(known: Sequence[Calendar] = _CALENDARS) -> tuple[tuple[Calendar, ...], ...]:
    """Every subset of the phases that mean something, the smallest first."""
    return tuple(chosen for size in range(len(known) + 1) for chosen in combinations(known, size))


def space_of(task: Task) -> Space:
    """The space of a task's recipes."""
    return restrict_space({**NETWORK, "calendar": calendars()}, task)


def restrict_space(space: Space, task: Task | None) -> Space:
    """The space without what a task's fits do not read: an embedding is of categories, a form of numbers of numbers,
    a regression's loss and the form of its labels of labels that are values.

    No task is that of images or texts, which have classes.
    """
    idle = {"embedding"} if task is None or not task.categories else set[str]()
    idle |= {"number_form"} if task is None or not task.numbers else set()
    idle |= {"regression_loss", "label_form"} if task is None or task.is_classification else set()
    return {name: values for name, values in space.items() if name not in idle}


def merge(base: Training, drawn: Mapping[str, Any]) -> Training:
    """The recipe with drawn settings; a TReLU layer or a linear entry more than there is room for is left out."""
    values = base.model_dump()
    for name, value in drawn.items():
        *path, last = name.split(".")
        part = values[path[0]] if path else values
        part[last] = value
    values["time_linear"] = min(values["time_linear"], values["time_width"])
    if values["num_trelu"] is not None:
        values["num_trelu"] = min(values["num_trelu"], values["num_layers"])
    return Training.model_validate(values)


def value_of(training: Training, name: str) -> Any:
    """The recipe's value of a setting of a space."""
    found: Any = training
    for part in name.split("."):
        found = getattr(found, part)
    return found
