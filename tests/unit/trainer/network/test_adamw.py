"""Our AdamW gives torch's results without loading torch's compiler."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from trainer.network.adamw import AdamW

RATE, DECAY = 0.01, 0.1


def drawn(dtype: torch.dtype) -> list[Tensor]:
    """Four parameters; the last requires no gradient."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator, dtype=dtype) for shape in ((4, 5), (5,), (3,), (5,))]
    return [parameter.requires_grad_(place < 3) for place, parameter in enumerate(parameters)]


def loss(parameters: list[Tensor], step: int) -> Tensor:
    """Nothing depends on the third parameter."""
    weights, bias, _, scale = parameters
    rows = torch.randn((8, 4), generator=torch.Generator().manual_seed(step), dtype=weights.dtype)
    turned = weights.t().contiguous()  # so that the gradient has another memory layout than the parameter
    return torch.tanh(scale * (rows @ turned.t()) + bias).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parameters_move_as_by_torchs_own_bit_by_bit(dtype: torch.dtype) -> None:
    ours, theirs = drawn(dtype), drawn(dtype)
    optimiser = AdamW(ours, rate=RATE, weight_decay=DECAY)
    reference = torch.optim.AdamW(theirs, lr=RATE, weight_decay=DECAY, fused=True)
    for step in range(20):
        optimiser.descend(loss(ours, step))
        reference.zero_grad()
        torch.autograd.backward(loss(theirs, step))
        reference.step()
    for place, (mine, other, start) in enumerate(zip(ours, theirs, drawn(dtype), strict=True)):
        assert torch.equal(mine, other)
        assert torch.equal(mine, start) is (place >= 2)


def test_a_training_process_does_not_load_torchs_compiler() -> None:
    code = """
import sys, numpy, torch
from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.network.training_loop import Member, finish, fit
n = numpy.arange(20)
rows = Encoded(n.reshape(20, 1).astype("f4"), numpy.zeros((20, 0), int), n / 20 - 1, n % 2, n - n % 5)
training = Training(width=2, num_layers=1, batch_size=8, pretrain_epochs=1, finetune_epochs=1)
finish(fit([Member(rows, (), 2, seed=0)], training, Clock(window=5, offset=0, span=20), torch.device("cpu")))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "False\n"
