"""AdamW through torch's functional form, which needs no compiler.

torch's optimiser objects load its compiler before their first step. For a process that trains one small network and
ends, as ours does, that wastes more than a second of a core and 70 MiB.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

_MEAN_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8


class AdamW:
    """The same as `torch.optim.AdamW(…, fused=True)`, bit for bit (Loshchilov and Hutter, 2019).

    A parameter keeps its value if the loss does not depend on it or if it requires no gradient.
    """

    def __init__(self, parameters: Sequence[Tensor], *, rate: float, weight_decay: float) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._rate = rate
        self._weight_decay = weight_decay
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros((), device=parameter.device) for parameter in self._parameters]

    def descend(self, loss: Tensor) -> None:
        """One step down the gradients of a loss, a scalar."""
        # backward, not grad: it gives each gradient its parameter's memory layout, which the function requires.
        torch.autograd.backward(loss)
        moved = [index for index, parameter in enumerate(self._parameters) if parameter.grad is not None]
        gradients = [gradient for parameter in self._parameters if (gradient := parameter.grad) is not None]
        with torch.no_grad():
            adamw(
                [self._parameters[index] for index in moved],
                gradients,
                [self._means[index] for index in moved],
                [self._squares[index] for index in moved],
                [],
                [self._steps[index] for index in moved],
                fused=True,
                amsgrad=False,
                beta1=_MEAN_DECAY,
                beta2=_SQUARE_DECAY,
                lr=self._rate,
                weight_decay=self._weight_decay,
                eps=_EPSILON,
                maximize=False,
            )
        for parameter in self._parameters:
            parameter.grad = None
