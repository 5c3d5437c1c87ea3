"""What a method hands to a fit: whether its network sees time, and the phases to run one after the other."""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Oldest:
    """The n-th oldest window that has rows, counted from 1."""

    number: int


# Which rows: all of them; the j-th newest window that has any (1 is the newest), or the n-th oldest; or, for a phase
# that is carried out once for each of them in order, every window after the oldest.
Rows = Literal["all", "later"] | int | Oldest
Objective = Literal["erm", "gi", "grad_reg", "time_perturb"]


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one optimiser.

    Rows are drawn from `rows`; an epoch visits as many of them as `budget` has (at most `rows_per_epoch`). Where the
    two differ, a rival spends on other rows what our method spends on `budget`. A phase that `watches_next` keeps the
    epoch with the lowest plain loss on the window that follows its own, where a member has such a window.
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
        """The phases that rows of so many windows run: a phase of `later` windows once for each, oldest first."""
        return tuple(step for phase in self.phases for step in _each(phase, num_windows))


def _each(phase: Phase, num_windows: int) -> tuple[Phase, ...]:
    if phase.rows != "later":
        return (phase,)
    return tuple(
        replace(phase, name=f"{phase.name}_{number}", rows=Oldest(number), budget=Oldest(number))
        for number in range(2, num_windows + 1)
    )
