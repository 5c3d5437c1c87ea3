"""The first half of our method alone: the time-conditioned network with the plain loss (the paper's Base-Time)."""

from dataclasses import replace

from contracts.task import Training
from trainer.methods.baseline import baseline
from trainer.methods.plans import Plan


def base_time(training: Training) -> Plan:
    """The baseline's phases, rows and row visits, for a network that sees time."""
    return replace(baseline(training), is_timed=True)
