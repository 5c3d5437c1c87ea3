"""AdamW by torch's function for it, which any process can call as it is.

torch's optimiser objects load its compiler before their first step: for a process that trains one small network and
ends, as ours does, that is a second and more of a core, and 70 MiB, for nothing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

_MEAN_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8


class AdamW:
    """What `torch.optim.AdamW(…, fused=True)` does to these parameters, bit by bit; source: Loshchilov, Hutter (2019).

    A parameter that a loss does not depend on keeps its value, and so does one that asks for no gradient.
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
        # Backward, not grad: it lays each gradient out as its parameter is, and the function takes no other.
        torch.autograd.backward(loss)
        moved = [place for place, parameter in enumerate(self._parameters) if parameter.grad is not None]
        gradients = [gradient for parameter in self._parameters if (gradient := parameter.grad) is not None]
        with torch.no_grad():
            adamw(
                [self._parameters[place] for place in moved],
                gradients,
                [self._means[place] for place in moved],
                [self._squares[place] for place in moved],
                [],
                [self._steps[place] for place in moved],
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
