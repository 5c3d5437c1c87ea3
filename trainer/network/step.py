"""The losses of one step of a phase, as a function of tensors alone, and that function as a CUDA graph.

A small network keeps a GPU waiting for the CPU, which launches hundreds of kernels per step. On CUDA, the forward and
backward pass of a step are therefore captured once per phase and then launched as one graph. Capturing takes the time
of a few steps; compiling takes minutes. On a CPU neither pays off: a compiled GI step costs about half of an eager one,
but the compiler takes one to four minutes, longer than most fits (`python -m benchmarks training --compiled`).

Legend as in `trainer.network.losses`
"""

from collections.abc import Callable

import structlog
import torch
from torch import Tensor, nn

from contracts.clock import Clock
from contracts.task import Training
from trainer.methods.plans import Phase
from trainer.network.delta_search import DeltaSearch, interpolation, perturbation, worst_delta
from trainer.network.losses import Batch, RowLoss, erm, grad_reg, gradient_interpolation, time_perturb
from trainer.network.network import HasCurvature, Network

log = structlog.get_logger(__name__)

# Losses and δ, both `(E,)`, of a batch and a draw `(E,)`; it remembers δ from step to step.
Objective = Callable[[Batch, Tensor], tuple[Tensor, Tensor]]
# The same without memory: (dense, codes, u, targets, draw, the δ of the step before) → (losses, δ).
TensorObjective = Callable[..., tuple[Tensor, Tensor]]
# Objectives with a shift δ: the loss that δ maximises, and the total loss for a given δ.
_WITH_DELTA = {"gi": (interpolation, gradient_interpolation), "time_perturb": (perturbation, time_perturb)}


def objective(network: Network, loss: RowLoss, phase: Phase, training: Training, clock: Clock) -> Objective:
    """The phase's losses, and the δ at which they were taken: 0 in a phase without δ.

    δ is remembered between minibatches, which all have the same shape.
    """
    function = tensor_objective(network, loss, phase, training, clock)
    captured: TensorObjective | None = None
    last: Tensor | None = None

    def losses(batch: Batch, draw: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal captured, last
        columns = (batch.dense, batch.codes, batch.u, batch.targets, draw)
        if captured is None or last is None:
            last = torch.zeros_like(draw)
            captured = capture(network, function, (*columns, last)) if draw.is_cuda else function
        result, last = captured(*columns, last)
        return result, last

    return losses


def tensor_objective(
    network: Network, loss: RowLoss, phase: Phase, training: Training, clock: Clock
) -> TensorObjective:
    """The phase's losses as a function without memory."""
    weight = training.gi_weight
    window = clock.window / clock.span
    if phase.objective == "erm" or weight == 0:
        return lambda *columns: (erm(network, loss, Batch(*columns[:4])), columns[5])
    if phase.objective == "grad_reg":
        return lambda *columns: (grad_reg(network, loss, Batch(*columns[:4]), weight, window), columns[5])
    shift_loss, total = _WITH_DELTA[phase.objective]
    search = DeltaSearch(training.delta_mode, training.delta_max * window, training.delta_steps, training.delta_rate)

    def losses(*columns: Tensor) -> tuple[Tensor, Tensor]:
        *rows, draw, last = columns
        batch = Batch(*rows)
        searched = batch.first(training.delta_rows)
        delta = worst_delta(lambda: shift_loss(network, loss, searched), search=search, last=last, draw=draw)
        return total(network, loss, batch, delta, weight), delta

    return losses


class Step(nn.Module):
    """A function of tensors as a module that owns the network's parameters, as a capture of gradients requires."""

    def __init__(self, network: nn.Module, function: TensorObjective) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *columns: Tensor) -> tuple[Tensor, Tensor]:
        losses, delta = self.function(*columns)
        return losses, delta.clone()  # not the input itself, which a capture could not tell from its copy


def capture(network: Network, function: TensorObjective, example: tuple[Tensor, ...]) -> TensorObjective:
    """The function as a CUDA graph for inputs like the example; unchanged if it cannot be captured.

    Only our own networks are captured: others may hold state that a capture would freeze.
    """
    if not (isinstance(network, nn.Module) and isinstance(network, HasCurvature)):
        return function
    try:
        captured = torch.cuda.make_graphed_callables(Step(network, function), example, allow_unused_input=True)
    except RuntimeError as error:
        log.warning("fit.not_recorded", reason=str(error), remedy="fits are slower but right; MORROW_DEVICE=cpu")
        return function
    assert isinstance(captured, Step)
    return captured
