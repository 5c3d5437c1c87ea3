"""FTPL: the perturbed leader of online learning, made optimistic, as the paper's appendix C takes it from its source.

In round t + 1 the optimistic learner of Suggala and Netrapalli plays a minimum of all losses so far, of a guess g of
the loss to come, and of a random loss σ; with m = 1 it draws σ once. In the paper f_i is the loss on domain i, g the
newest loss f_t, and σ the loss on the rows of domain t with Gaussian noise on their inputs. What it plays are the
weights θ of a network of features only, here

    θ = argmin_θ  Σ_{i ≤ T} f_i(θ) + f_T(θ) + σ(θ)        f_i(θ) = Σ_{rows of domain i} ℓ(y, F_θ(x))
                                                          σ(θ) = Σ_{rows of domain T} ℓ(y, F_θ(x + s·ξ)),  ξ ~ N(0, 1)

so a domain of more rows weighs more. The source subtracts σ, and the paper's words leave its sign open. Subtracted, a
loss would reward mistakes without bound, so it is added. As all terms are sums over rows, their sum is the plain loss
on known rows, the newest domain's again, and the same ones perturbed: a fit by the plan of `baseline` minimises it. The
answer of an earlier round is not in it, so no earlier round is played.

The paper does not give s. Of 0.03 to 1 deviation, the largest was best on Elec2 and 2-Moons at earlier origins.

Legend: T known domains   θ weights   ξ noise, drawn once for each member   s = _NOISE, in standard deviations of the
known rows' numbers: the root of the mean variance of a number, one for all of them
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.paper.methods.rows import join, newest
from benchmarks.paper.splits import Split
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import baseline
from trainer.network.training_loop import draw_network, outputs, train

_NOISE = 1.0


def ftpl_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Fit each seed on its own perturbed rows. Raises CycleError if no number could be perturbed."""
    num_numbers = split.known.dense.shape[1] - 2 * len(training.calendar)
    if num_numbers == 0:
        raise CycleError("FTPL perturbs the numbers of a row: words and categories take no noise.")
    plan = baseline(training)
    members = [replace(member, rows=played(split.known, num_numbers, member.seed)) for member in split.members(seeds)]
    network = draw_network(members, training, plan.is_timed, torch.float32, split.build)
    for _epoch in train(network, members, plan, training, split.clock):
        pass
    return outputs(network, split.unseen)


def played(known: Encoded, num_numbers: int, seed: int) -> Encoded:
    """The rows whose plain loss is the sum of all terms: known ones, the newest again, the newest perturbed."""
    guess = newest(known)
    deviation = float(np.sqrt(known.dense[:, :num_numbers].var(axis=0, dtype=np.float64).mean()))
    return join([known, guess, perturbed(guess, num_numbers, _NOISE * deviation, seed)])


def perturbed(rows: Encoded, num_numbers: int, deviation: float, seed: int) -> Encoded:
    """Noise on the first columns of dense, those that hold numbers; the calendar is known and stays."""
    dense = rows.dense.copy()
    noise = np.random.default_rng(seed).normal(scale=deviation, size=(len(dense), num_numbers))
    dense[:, :num_numbers] += noise.astype(np.float32)
    return replace(rows, dense=dense)
