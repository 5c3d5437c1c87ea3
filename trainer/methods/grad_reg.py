"""Is the GI loss just a gradient regularizer? The same fit that penalises slopes in time (the paper's GradReg)."""

from dataclasses import replace

from contracts.task import Training
from trainer.methods.gi import gi
from trainer.methods.plans import Plan


def grad_reg(training: Training) -> Plan:
    """Our method's phases with equation 3 of the paper in place of the GI loss, weighed by the same λ."""
    plan = gi(training)
    phases = (replace(phase, objective="grad_reg") if phase.objective == "gi" else phase for phase in plan.phases)
    return replace(plan, phases=tuple(phases))
