"""The convolutional network with a batch norm after each convolution, as residual networks have; the paper is silent.

Rot-MNIST's text gives a "ResNet like" network by its blocks and channels; its authors' public code normalises every
convolution. The sets `mnist` and `mnist_normed` show whether the published errors need that.

Legend: E members   n rows   C channels   r side of an image
"""

import torch
from torch import nn

from benchmarks.paper.networks import Conv, ConvNetwork
from trainer.network.layers import Dual

_MOMENTUM, _EPSILON = 0.1, 1e-5


class Norm(nn.Module):
    """The batch norm of images `(n, E·C, r, r)`. Statistics are held: the rate is that of what they scale.

    While gradients are computed, mean and variance are the minibatch's, and the remembered ones follow them by a tenth.
    Otherwise the remembered ones count. Nothing learns them, but they are parameters: whatever keeps a fit's best epoch
    keeps them too.
    """

    def __init__(self, num_members: int, num_channels: int) -> None:
        super().__init__()
        shape = num_members, num_channels
        self.scale, self.shift = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))
        self.mean = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(shape), requires_grad=False)

    def forward(self, x: Dual) -> Dual:
        is_fitting = torch.is_grad_enabled()
        mean, variance, scale, shift = (own.flatten() for own in (self.mean, self.variance, self.scale, self.shift))
        value = nn.functional.batch_norm(
            x.value, mean, variance, scale, shift, training=is_fitting, momentum=_MOMENTUM, eps=_EPSILON
        )
        if x.rate is None:
            return Dual(value, None)
        spread = x.value.var((0, 2, 3), correction=0) if is_fitting else variance
        factor = (scale * torch.rsqrt(spread + _EPSILON))[:, None, None]
        return Dual(value, x.rate * factor, None if x.curvature is None else x.curvature * factor)


class NormedConvNetwork(ConvNetwork):
    """A `ConvNetwork` whose convolutions end in a `Norm`; the paths around them are within it."""

    def convolution(self, num_members: int, num_in: int, num_out: int) -> nn.Module:
        return nn.Sequential(Conv(num_members, num_in, num_out), Norm(num_members, num_out))
