"""What a method hands to a fit: whether its network sees time, and the phases to run one after the other."""

from dataclasses import dataclass
from typing import Literal

# Which rows: all of them, or the j-th newest window that has any (1 is the newest).
Rows = Literal["all"] | int
Objective = Literal["erm", "gi"]


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one optimiser.

    Rows are drawn from `rows`; an epoch visits as many of them as `budget` has (at most `rows_per_epoch`). Where the
    two differ, a rival spends on other rows what our method spends on `budget`.
    """

    name: str
    rows: Rows
    budget: Rows
    epochs: int
    rate: float
    objective: Objective


@dataclass(frozen=True)
class Plan:
    """Phases in order, for a network that sees time (`is_timed`) or features only."""

    is_timed: bool
    phases: tuple[Phase, ...]
