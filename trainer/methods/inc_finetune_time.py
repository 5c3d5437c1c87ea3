"""Incremental fine-tuning of the time-conditioned network (the paper's IncFinetune-Time)."""

from dataclasses import replace

from contracts.task import Training
from trainer.methods.inc_finetune import inc_finetune
from trainer.methods.plans import Plan


def inc_finetune_time(training: Training) -> Plan:
    """The same phases, for a network that sees time."""
    return replace(inc_finetune(training), is_timed=True)
