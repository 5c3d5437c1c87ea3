"""Deep ODE: a neural differential equation carries every point to its next domain, and on to the future.

The paper's definition (its appendix of other methods, after Chen and others): the path of a point x obeys

    dx/ds = v_φ(x)        s counts domains,

with a network v of tanh layers. φ minimises the mean of ‖x_i(s + 1) − x_{i, s+1}‖² over all points i and successive
domains, x_i(s + 1) being the solution that starts from x_{i, s}. The newest domain's points are carried one domain on,
keep their targets, and are joined to the known rows; the time-conditioned classifier is trained on them all by the plan
of `base_time`. v does not read time: only a law that holds for all known domains can be carried beyond them.

The same point must be there in every domain, so the i-th rows of all domains must be the same point. As in the
paper, that holds for 2-Moons alone; rows that differ in number or target from domain to domain are refused.

Legend: E members   n points   p numbers of a row   φ weights of v
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.paper.methods.draws import minibatches, seeds_for, steps_of
from benchmarks.paper.methods.rows import join, moved_on, newest
from benchmarks.paper.splits import Split
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import base_time
from trainer.network.layers import Dual, Linear
from trainer.network.training_loop import draw_network, outputs, train

# The solver's steps in a domain. They are fixed: steps that adapt would be the same for all members, and so tie them.
_SOLVER_STEPS = 4
_PARAMETERS, _ROWS = range(2)


class Field(nn.Module):
    """The velocity v_φ(x) `(E, n, p)` of points `(E, n, p)`, for a cohort."""

    def __init__(self, num_numbers: int, width: int, num_layers: int, seeds: Sequence[int]) -> None:
        super().__init__()
        widths = [num_numbers] + [width] * num_layers + [num_numbers]
        self.layers = nn.ModuleList(Linear(len(seeds), narrow, wide) for narrow, wide in itertools.pairwise(widths))
        with torch.no_grad():
            for member, seed in enumerate(seeds):
                generator = torch.Generator().manual_seed(seed)
                for layer in self.layers:
                    assert isinstance(layer, Linear)
                    layer.draw(member, generator)

    def forward(self, _s: Tensor, points: Tensor) -> Tensor:
        x = self.layers[0](Dual(points, None))
        for layer in self.layers[1:]:
            x = layer(Dual(x.value.tanh(), None))
        value: Tensor = x.value
        return value


def deep_ode_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Learn the motion, carry the newest domain on, and train on all rows.

    Raises CycleError if the domains do not hold the same points, or if a point is carried out of all bounds.
    """
    num_numbers = split.known.dense.shape[1] - 2 * len(training.calendar)
    paths = paths_of(split.known, num_numbers)
    field = learned(paths, training, seeds)
    newest_rows = newest(split.known)
    with torch.inference_mode():
        images = carried(field, paths[-1].expand(len(seeds), -1, -1)).numpy()
    if not np.isfinite(images).all():
        raise CycleError("The differential equation carries a point out of all bounds.")
    members = [
        replace(member, rows=join([split.known, moved_on(newest_rows, image, split.clock)]))
        for member, image in zip(split.members(seeds), images, strict=True)
    ]
    plan = base_time(training)
    network = draw_network(members, training, plan.is_timed, torch.float32, split.build)
    for _epoch in train(network, members, plan, training, split.clock):
        pass
    return outputs(network, split.unseen)


def paths_of(known: Encoded, num_numbers: int) -> Tensor:
    """The numbers of each point in every domain `(domains, n, p)`. Raises CycleError if points do not correspond."""
    starts, counts = np.unique(known.windows, return_counts=True)
    if known.codes.shape[1] or num_numbers == 0:
        raise CycleError("A differential equation moves numbers: categories and texts cannot be moved.")
    if len(starts) < 2 or np.any(counts != counts[0]):
        raise CycleError("A motion is learned from the same points in two domains or more; these differ in number.")
    targets = known.targets.reshape(len(starts), -1)
    if np.any(targets != targets[0]):
        raise CycleError("A motion is learned from the same points in all domains; the targets of these differ.")
    return torch.from_numpy(known.dense[:, :num_numbers].reshape(*targets.shape, num_numbers))


def learned(paths: Tensor, training: Training, seeds: Sequence[int]) -> Field:
    """The motion of these points, by the epochs, batches and rate of the recipe's pre-training."""
    num_numbers = paths.shape[2]
    field = Field(num_numbers, training.width, training.num_layers, seeds_for(seeds, _PARAMETERS))
    optimiser = torch.optim.Adam(field.parameters(), lr=training.pretrain_rate, fused=True)
    before, after = (part.reshape(-1, num_numbers) for part in (paths[:-1], paths[1:]))
    batch_size = training.rows_per_minibatch(len(before))
    num_steps = steps_of(len(before), training.pretrain_epochs, batch_size)
    for numbers in minibatches(len(before), num_steps, batch_size, seeds_for(seeds, _ROWS)):
        losses = distances(carried(field, before[numbers]), after[numbers])
        optimiser.zero_grad()
        torch.autograd.backward(losses.sum())
        optimiser.step()
    return field


def carried(field: nn.Module, points: Tensor) -> Tensor:
    """Where the motion carries points `(E, n, p)` within one domain."""
    from torchdiffeq import odeint

    moments = torch.tensor([0.0, 1.0], dtype=points.dtype)
    path: Tensor = odeint(field, points, moments, method="rk4", options={"step_size": 1 / _SOLVER_STEPS})
    return path[-1]


def distances(images: Tensor, points: Tensor) -> Tensor:
    """Mean squared distance of images from points, both `(E, n, p)`, of each member `(E,)`."""
    return (images - points).square().sum(2).mean(1)
