"""What can stand in an error matrix: each method of a network turns a recipe into a plan for the fit."""

from collections.abc import Callable

from contracts.task import Method, Training
from trainer.methods.base_time import base_time
from trainer.methods.baseline import baseline
from trainer.methods.gi import gi
from trainer.methods.grad_reg import grad_reg
from trainer.methods.inc_finetune import inc_finetune
from trainer.methods.inc_finetune_time import inc_finetune_time
from trainer.methods.last_window import last_window
from trainer.methods.naive import naive
from trainer.methods.plans import Oldest, Phase, Plan, Rows
from trainer.methods.time_perturb import time_perturb

METHODS: dict[Method, Callable[[Training], Plan]] = {
    "gi": gi,
    "baseline": baseline,
    "last_window": last_window,
    "inc_finetune": inc_finetune,
    "base_time": base_time,
    "inc_finetune_time": inc_finetune_time,
    "grad_reg": grad_reg,
    "time_perturb": time_perturb,
}

__all__ = ["METHODS", "Oldest", "Phase", "Plan", "Rows", "naive"]
