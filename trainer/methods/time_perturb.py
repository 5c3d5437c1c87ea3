"""The same fit made robust to small errors of the time instead of bent by GI (the paper's TimePerturb)."""

from dataclasses import replace

from contracts.task import Training
from trainer.methods.gi import gi
from trainer.methods.plans import Plan


def time_perturb(training: Training) -> Plan:
    """Our method's phases with equation 4 of the paper in place of the GI loss, weighed by the same λ."""
    plan = gi(training)
    phases = (replace(phase, objective="time_perturb") if phase.objective == "gi" else phase for phase in plan.phases)
    return replace(plan, phases=tuple(phases))
