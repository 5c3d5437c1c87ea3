"""One plan per method: whether its network sees time, and the phases that a fit runs one after the other.

`PLANS` is the table of all methods that train a network. Most of them are GI's plan with one thing changed, so that a
rival gets the same epochs, rates and row visits. "The paper" is *Training for the Future* (NeurIPS 2021); the names in
parentheses are the paper's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from contracts.task import Method, Training


@dataclass(frozen=True)
class Oldest:
    """The n-th oldest window that has rows, counted from 1."""

    number: int


# The rows of a phase: "all"; the j-th newest window that has rows (1 is the newest); the n-th oldest; or "later": the
# phase is repeated for every window after the oldest, in order.
Rows = Literal["all", "later"] | int | Oldest
# "erm" is empirical risk minimisation: the plain loss.
Objective = Literal["erm", "gi", "grad_reg", "time_perturb"]


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one optimiser.

    Rows are drawn from `rows`. An epoch visits as many of them as `budget` has (at most `rows_per_epoch`). If the
    two differ, a rival spends on other rows what GI spends on `budget`. A phase that `watches_next` keeps the epoch
    with the lowest plain loss on the window after its own, for each member that has such a window.
    """

    name: str
    rows: Rows
    budget: Rows
    epochs: int
    rate: float
    objective: Objective
    watches_next: bool = False


@dataclass(frozen=True)
class Plan:
    """Phases in order, for a network that sees time (`is_timed`) or features only."""

    is_timed: bool
    phases: tuple[Phase, ...]

    def phases_of(self, num_windows: int) -> tuple[Phase, ...]:
        """The phases to run on rows of this many windows; a phase on "later" rows runs once per later window."""
        return tuple(step for phase in self.phases for step in _repeated(phase, num_windows))


def _repeated(phase: Phase, num_windows: int) -> tuple[Phase, ...]:
    if phase.rows != "later":
        return (phase,)
    return tuple(
        replace(phase, name=f"{phase.name}_{number}", rows=Oldest(number), budget=Oldest(number))
        for number in range(2, num_windows + 1)
    )


def gi(training: Training) -> Plan:
    """Gradient Interpolation (GI): pre-train on all rows, then fine-tune on the newest k windows with the GI loss.

    The oldest of the k windows comes first (the paper's algorithm 1).
    """
    pretrain = Phase(
        name="pretrain",
        rows="all",
        budget="all",
        epochs=training.pretrain_epochs,
        rate=training.pretrain_rate,
        objective="gi" if training.gi_pretrain else "erm",
    )
    finetune = [
        Phase(
            name=f"finetune_{newest}",
            rows=newest,
            budget=newest,
            epochs=training.finetune_epochs,
            rate=training.finetune_rate,
            objective="gi",
            watches_next=training.early_stopping,
        )
        for newest in range(training.finetune_windows, 0, -1)
    ]
    return Plan(is_timed=True, phases=tuple(phase for phase in (pretrain, *finetune) if phase.epochs))


def baseline(training: Training) -> Plan:
    """Features only, the plain loss, rows of all windows: the rival that ignores time."""
    return _plain(training, rows="all")


def base_time(training: Training) -> Plan:
    """The baseline for a network that sees time (Base-Time): GI's network without GI's loss."""
    return replace(baseline(training), is_timed=True)


def last_window(training: Training) -> Plan:
    """Features only, the plain loss, rows of the newest window: the rival that forgets (LastDomain)."""
    return _plain(training, rows=1)


def inc_finetune(training: Training) -> Plan:
    """Features only: pre-train on the oldest window, then fine-tune on each later one in order (IncFinetune).

    A recipe without pre-training fine-tunes on the oldest window too.
    """
    is_pretrained = training.pretrain_epochs > 0
    oldest = Phase(
        name="pretrain" if is_pretrained else "finetune_1",
        rows=Oldest(1),
        budget=Oldest(1),
        epochs=training.pretrain_epochs if is_pretrained else training.finetune_epochs,
        rate=training.pretrain_rate if is_pretrained else training.finetune_rate,
        objective="erm",
    )
    later = Phase(
        name="finetune",
        rows="later",
        budget="later",
        epochs=training.finetune_epochs,
        rate=training.finetune_rate,
        objective="erm",
        watches_next=training.early_stopping,
    )
    return Plan(is_timed=False, phases=(oldest, later) if training.finetune_epochs else (oldest,))


def inc_finetune_time(training: Training) -> Plan:
    """`inc_finetune` for a network that sees time (IncFinetune-Time)."""
    return replace(inc_finetune(training), is_timed=True)


def grad_reg(training: Training) -> Plan:
    """GI's plan with slopes in time penalised instead: equation 3 of the paper, weighed by the same λ (GradReg).

    It answers whether the GI loss is only a gradient regulariser.
    """
    return _in_place_of_gi(training, "grad_reg")


def time_perturb(training: Training) -> Plan:
    """GI's plan with the time perturbed instead: equation 4 of the paper, weighed by the same λ (TimePerturb)."""
    return _in_place_of_gi(training, "time_perturb")


def _plain(training: Training, rows: Rows) -> Plan:
    phases = (replace(phase, rows=rows, objective="erm") for phase in gi(training).phases)
    return Plan(is_timed=False, phases=tuple(phases))


def _in_place_of_gi(training: Training, objective: Objective) -> Plan:
    plan = gi(training)
    phases = (replace(phase, objective=objective) if phase.objective == "gi" else phase for phase in plan.phases)
    return replace(plan, phases=tuple(phases))


PLANS: Mapping[Method, Callable[[Training], Plan]] = {
    "gi": gi,
    "baseline": baseline,
    "last_window": last_window,
    "inc_finetune": inc_finetune,
    "base_time": base_time,
    "inc_finetune_time": inc_finetune_time,
    "grad_reg": grad_reg,
    "time_perturb": time_perturb,
}
