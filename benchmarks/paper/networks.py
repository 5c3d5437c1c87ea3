"""Networks for rows that are images or texts, from the layers of `trainer.network.layers`.

`ConvNetwork` is the paper's for Rot-MNIST: blocks of a convolution and a TReLU whose slope and threshold all pixels of
a channel share, then a fully connected layer with a TReLU, then the head. It reads an image from dense. `BagNetwork` is
the paper's for Reuters: the mean of a text's word vectors, then the layers of `CohortNetwork`. It reads words from
codes. Both take what `CohortNetwork` takes, keep the same promises and are trained by the same
`trainer.network.training_loop.train`.

Legend: E members   n rows   C channels   r side of an image   q words of the longest text   K outputs   as in
`trainer.network.network` otherwise
"""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainer.network.layers import Dual, Embedding, Linear, ReLU, Time2Vec, TReLU, trelu
from trainer.network.network import Architecture, CohortNetwork, TimeFunction

# Channels of the first block; each further block doubles them.
FIRST_CHANNELS = 16
_KERNEL = 3


class Conv(nn.Module):
    """A convolution that halves the side, and a path around it without parameters; images are `(n, E·C, r, r)`.

    All members run as groups of one convolution. The path around averages each 2 × 2 and leaves new channels at zero.
    """

    def __init__(self, num_members: int, num_in: int, num_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_members, num_out, num_in, _KERNEL, _KERNEL))
        self.bias = nn.Parameter(torch.zeros(num_members, num_out))

    def draw(self, member: int, generator: torch.Generator) -> None:
        """Weights and biases uniform in ±1/√(inputs of a unit)."""
        bound = 1 / math.sqrt(self.weight[member, 0].numel())
        self.weight[member].uniform_(-bound, bound, generator=generator)
        self.bias[member].uniform_(-bound, bound, generator=generator)

    def forward(self, x: Dual) -> Dual:
        rate, curvature = (None if column is None else self._linear(column, None) for column in x[1:])
        return Dual(self._linear(x.value, self.bias.flatten()), rate, curvature)

    def _linear(self, images: Tensor, bias: Tensor | None) -> Tensor:
        num_members, num_out, num_in = self.weight.shape[:3]
        # With channels last a group of few channels is many times faster on a CPU.
        weight = self.weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        convolved = nn.functional.conv2d(images, weight, bias, stride=2, padding=_KERNEL // 2, groups=num_members)
        around = nn.functional.avg_pool2d(images, 2, ceil_mode=True)
        if num_in == num_out:
            return convolved + around
        num_rows, _, *sides = convolved.shape
        grouped = around.reshape(num_rows, num_members, num_in, *sides)
        widened = nn.functional.pad(grouped, (0, 0, 0, 0, 0, num_out - num_in))
        return convolved + widened.reshape(convolved.shape)


class ChannelTReLU(TReLU):
    """A TReLU on images `(n, E·C, r, r)` with one slope and threshold for each channel (the paper's appendix)."""

    def forward(self, x: Dual, tau: Dual) -> Dual:
        h, g = (_over_pixels(gate) for gate in self.gates(tau))
        return trelu(x, h, g)


class Bag(Embedding):
    """The mean of the vectors of a text's words; code 0 is no word. A text without words is the zero vector.

    All q columns of codes share one vocabulary, so `vocabulary_sizes` holds one size per member.
    """

    def forward(self, codes: Int[Tensor, "E n q"]) -> Float[Tensor, "E n a"]:
        num_members, num_rows, width = self.table.shape
        first_row = num_rows * torch.arange(num_members, device=codes.device)[:, None, None]
        # The table's row 0 pads every member's texts: it is the first member's code 0, which is no word either.
        numbers = torch.where(codes == 0, 0, codes + first_row).flatten(0, 1)
        means = nn.functional.embedding_bag(numbers, self.table.reshape(-1, width), mode="mean", padding_idx=0)
        return means.view(*codes.shape[:2], width)


class BagNetwork(CohortNetwork):
    """A `CohortNetwork` that reads all of codes `(E, n, q)` as the words of one text.

    `vocabulary_sizes` holds one size per member, code 0 included; `architecture.embedding` is a word vector's width.
    """

    def __init__(
        self,
        architecture: Architecture,
        vocabulary_sizes: Sequence[tuple[int, ...]],
        seeds: Sequence[int],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(replace(architecture, num_categories=1), vocabulary_sizes, seeds, dtype)
        assert self.embedding is not None
        bag = Bag(vocabulary_sizes, architecture.embedding)
        bag.table = self.embedding.table
        self.embedding = bag


class ConvNetwork(nn.Module):
    """E convolutional networks of one architecture; parameters and promises as in `CohortNetwork`.

    Of `num_layers` layers with an activation the last is fully connected, of `width` units, and those before it are
    convolutions of 16, 32, 64, … channels; the paper's are 5 and 256. `num_trelu` counts from the last, so the plain
    ones come first. τ(u) joins the last convolution's pixels; before, time works through the TReLUs alone. Raises
    ValueError if the numbers of a row are no square image, and for a single layer.
    """

    def __init__(
        self,
        architecture: Architecture,
        vocabulary_sizes: Sequence[tuple[int, ...]],
        seeds: Sequence[int],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        shape, num_members, num_blocks = architecture, len(seeds), architecture.num_layers - 1
        assert len(vocabulary_sizes) == num_members
        self.architecture = shape
        self.side = math.isqrt(shape.num_numbers)
        if self.side**2 != shape.num_numbers or shape.num_categories:
            raise ValueError(f"{shape.num_numbers} numbers and {shape.num_categories} categories are no square image")
        if not num_blocks:
            raise ValueError("the fully connected layer needs a convolution before it: num_layers is at least 2")
        channels = [1] + [FIRST_CHANNELS * 2**block for block in range(num_blocks)]
        num_pixels = channels[-1] * (-(-self.side // 2**num_blocks)) ** 2
        self.time = Time2Vec(num_members, shape.time_width, shape.time_linear) if shape.is_timed else None
        self.convolutions = nn.ModuleList(
            self.convolution(num_members, narrow, wide) for narrow, wide in itertools.pairwise(channels)
        )
        self.hidden = Linear(num_members, num_pixels + shape.time_width * shape.is_timed, shape.width)
        widths = [*channels[1:], shape.width]
        num_plain = shape.num_layers - shape.num_trelu * shape.is_timed
        self.activations = nn.ModuleList(
            ReLU()
            if i < num_plain
            else (ChannelTReLU if i < num_blocks else TReLU)(num_members, shape.time_width, shape.trelu_width, width)
            for i, width in enumerate(widths)
        )
        self.head = Linear(num_members, shape.width, shape.num_outputs)
        self.to(dtype)
        with torch.no_grad():
            for member, seed in enumerate(seeds):
                generator = torch.Generator().manual_seed(seed)
                for layer in self.modules():
                    if isinstance(layer, Conv | Time2Vec | Linear):
                        layer.draw(member, generator)

    @property
    def num_members(self) -> int:
        return self.head.weight.shape[0]

    def convolution(self, num_members: int, num_in: int, num_out: int) -> nn.Module:
        """The layer before an activation."""
        return Conv(num_members, num_in, num_out)

    def forward(
        self,
        dense: Float[Tensor, "E n d"],
        codes: Int[Tensor, "E n q"],  # noqa: ARG002 every network takes codes; images have none
        u: Float[Tensor, "E n"],
    ) -> Float[Tensor, "E n K"]:
        """F(x, u): logits, or (mean, raw log-scale)."""
        return self._layers(dense, u, with_rate=False).value

    def dual(
        self,
        dense: Float[Tensor, "E n d"],
        codes: Int[Tensor, "E n q"],  # noqa: ARG002 every network takes codes; images have none
        u: Float[Tensor, "E n"],
    ) -> tuple[Float[Tensor, "E n K"], Float[Tensor, "E n K"]]:
        """F(x, u) and ∂F(x, u)/∂u with the image held."""
        result = self._layers(dense, u, with_rate=True)
        return result.value, torch.zeros_like(result.value) if result.rate is None else result.rate

    def along_time(self, dense: Float[Tensor, "E n d"], codes: Int[Tensor, "E n q"]) -> TimeFunction:  # noqa: ARG002
        """F(x, ·) with its rate and curvature, to be evaluated at many u: the first convolution is computed once.

        Only for a network that sees time.
        """
        first, time = self._first(dense), self.time
        assert time is not None, "a time-oblivious network has no along_time"
        return lambda u: self._rest(first, time(u, with_rate=True, with_curvature=True))

    def _layers(self, dense: Tensor, u: Tensor, with_rate: bool) -> Dual:
        return self._rest(self._first(dense), None if self.time is None else self.time(u, with_rate))

    def _first(self, dense: Tensor) -> Dual:
        """What the first convolution, which no time reaches, makes of the images."""
        convolved: Dual = self.convolutions[0](Dual(self._images(dense), None))
        return convolved

    def _rest(self, x: Dual, tau: Dual | None) -> Dual:
        first, *before, last = self.activations
        x = first(x, tau)
        for convolution, activation in zip(self.convolutions[1:], before, strict=True):
            x = activation(convolution(x), tau)
        x = _flat(x, self.num_members)
        result: Dual = self.head(last(self.hidden(x if tau is None else _joined(x, tau)), tau))
        return result

    def _images(self, dense: Tensor) -> Tensor:
        """Images `(n, E, r, r)`, one channel per member."""
        pixels = dense[..., : self.architecture.num_numbers].transpose(0, 1)
        return pixels.reshape(*pixels.shape[:2], self.side, self.side).contiguous(memory_format=torch.channels_last)

    def select(self, members: Sequence[int]) -> "ConvNetwork":
        """A copy with these members only, in this order."""
        chosen = copy.deepcopy(self)
        index = torch.tensor(list(members), device=self.head.weight.device)
        for parameter in chosen.parameters():
            parameter.data = parameter.data[index]
        return chosen


def _over_pixels(gate: Dual) -> Dual:
    """From `(E, n, C)` to `(n, E·C, 1, 1)`."""
    return _each(gate, lambda x: x.transpose(0, 1).flatten(1)[..., None, None])


def _flat(images: Dual, num_members: int) -> Dual:
    """From `(n, E·C, r, r)` to `(E, n, C·r·r)`."""
    return _each(images, lambda x: x.reshape(len(x), num_members, -1).transpose(0, 1))


def _each(x: Dual, moved: Callable[[Tensor], Tensor]) -> Dual:
    rate, curvature = (None if column is None else moved(column) for column in x[1:])
    return Dual(moved(x.value), rate, curvature)


def _joined(x: Dual, tau: Dual) -> Dual:
    """The columns of both, side by side."""
    value = torch.cat([x.value, tau.value], dim=-1)
    return Dual(value, _beside(x.rate, tau.rate), _beside(x.curvature, tau.curvature))


def _beside(held_or_moving: Tensor | None, moving: Tensor | None) -> Tensor | None:
    """Rates side by side; those of the last columns alone if the others are held."""
    if held_or_moving is None or moving is None:
        return moving
    return torch.cat([held_or_moving, moving], dim=-1)
