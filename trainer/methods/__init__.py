"""What can stand in an error matrix: each method turns a recipe into a plan for the fit."""

from collections.abc import Callable

from contracts.task import Training
from trainer.methods.baseline import baseline
from trainer.methods.gi import gi
from trainer.methods.last_window import last_window
from trainer.methods.naive import naive
from trainer.methods.plan import Phase, Plan, Rows

METHODS: dict[str, Callable[[Training], Plan]] = {"gi": gi, "baseline": baseline, "last_window": last_window}

__all__ = ["METHODS", "Phase", "Plan", "Rows", "naive"]
