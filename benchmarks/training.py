"""`python -m benchmarks training`: what a step of the GI loss and a cohort of eight cost.

One network of 8 numbers and time, 2 × 128 units, as in a fit: minibatch on the device, losses, gradients, AdamW. Ours
and its yardstick take turns, so both meet the same machine, and the medians of the rounds are compared. On a CPU, with
one thread, the process's own CPU time counts, which other work on the machine disturbs least. On CUDA the wall clock
counts, once the device is done. A GI step is compared with a plain one, and with the paper's way of taking a GI step
(`benchmarks.nested_autograd`).

A cohort is cheap while a step is bound by the start of its operations, which eight members share. It is not while the
step is bound by the products of their matrices, of which each member has its own. So its ratio is taken at several
batches. With it the command prints what the step's products alone would take, at the rate of a bare product of the
hidden layer.

`--cycles` adds the two ratios of a whole cycle, which start a real stack (`benchmarks.cycles`).
"""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal

import torch
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import cycles
from benchmarks.hardware import hardware
from benchmarks.nested_autograd import nested_step
from benchmarks.output import add_output_options, record_run
from benchmarks.ratios import Ratio, ratio_figures, smaller_is_better, write_ratios
from benchmarks.result_files import Figure, Label
from contracts.clock import Clock
from contracts.task import Training
from trainer.methods.plans import Phase
from trainer.network.adamw import AdamW
from trainer.network.losses import Batch, cross_entropy
from trainer.network.network import CohortNetwork, architecture
from trainer.network.step import capture, tensor_objective

RECIPE = Training(width=128, num_layers=2, calendar=(), delta_steps=5, delta_rate=0.1)
CLOCK = Clock(window=1, offset=0, span=20)
NUM_NUMBERS, NUM_CLASSES = 8, (2, 10, 100)
LARGE, MIDDLE = 1024, 256
SMALL = 16, 32
RATE = 1e-3
MAXIMUM = RECIPE.delta_max * CLOCK.window / CLOCK.span  # δ_max in model time

Kind = Literal["gi", "erm"]
KINDS: tuple[Kind, Kind] = ("gi", "erm")

Step = Callable[[], object]


def main(arguments: list[str]) -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks training", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=9, help="turns of ours and its yardstick, at least 5")
    parser.add_argument("--compiled", action="store_true", help="compile the losses of both; takes minutes")
    parser.add_argument("--cycles", action="store_true", help="also compare a first and a steady cycle with one fit")
    add_output_options(parser)
    given = parser.parse_args(arguments)
    if given.rounds < 5:
        parser.error("--rounds is at least 5")
    console, device = Console(), torch.device(given.device)
    torch.set_num_threads(1)
    console.print(hardware(device), highlight=False)

    def report(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    ratios = measure(device, given.rounds, is_compiled=given.compiled, report=report)
    if given.results:
        title = "What a step of the GI loss and a cohort of eight cost"
        figures = [*ratio_figures(ratios), *(products_figure(batch, device) for batch in (*SMALL, MIDDLE, LARGE))]
        record_run(given.results, title, ["training", *arguments], figures, ran_on=hardware(device))
    if given.cycles:
        ratios += cycles.measure(console).ratios
    if given.json:
        write_ratios(given.json, ratios)


def measure(
    device: torch.device,
    num_rounds: int,
    *,
    is_compiled: bool = False,
    batches: Sequence[int] = (LARGE, MIDDLE),
    classes: Sequence[int] = NUM_CLASSES,
    seconds: float = 0.1,
    report: Callable[[str], object],
) -> list[Ratio]:
    """Every ratio of steps, reported as it is found: ms a step. A round repeats each step for about `seconds`."""
    how = "compiled" if is_compiled else "eager"

    def compare(name: str, ours: Step, yardstick: Step, *, commit: float, goal: float, of: dict[str, Label]) -> None:
        mine, other = take_turns([ours, yardstick], device, num_rounds, seconds)
        if is_compiled:
            of["how"] = how
        ratios.append(
            smaller_is_better(
                name, mine, other, commit=commit * other, goal=goal * other, unit="ms a step", device=device, of=of
            )
        )
        report(f"{name}: {mine:.2f} / {other:.2f} ms = {mine / other:.3g} (commit {commit:.3g}, goal {goal:.3g})")

    ratios: list[Ratio] = []
    for batch in batches:
        for num_classes in classes:
            gi, plain = (step(kind, num_classes, batch, device=device, is_compiled=is_compiled) for kind in KINDS)
            name = f"GI step / ERM step, {how}, {num_classes} classes, batch {batch}"
            of: dict[str, Label] = {"what": "GI step / plain step", "classes": num_classes, "batch": batch}
            compare(name, gi, plain, commit=6, goal=2.5, of=of)
        gi = step("gi", 10, batch, device=device, is_compiled=is_compiled)
        network, rows = cohort(10, 1, device), minibatch(10, batch, 1, device)
        nested = nested_step(network, rows, maximum=MAXIMUM, num_steps=RECIPE.delta_steps, weight=RECIPE.gi_weight)
        name = f"GI step, {how} / nested autograd, 10 classes, batch {batch}"
        of = {"what": "GI step / nested autograd", "classes": 10, "batch": batch}
        compare(name, gi, nested, commit=1 / 8, goal=1 / 25, of=of)
    for batch in (*SMALL, *batches):
        eight, one = (step("gi", 10, batch, num_members=number, device=device) for number in (8, 1))
        name = f"cohort of 8 / one member, GI step, batch {batch}"
        of = {"what": "cohort of 8 / one member", "batch": batch}
        compare(name, eight, one, commit=2.2, goal=1.3, of=of)
        alone = [products_alone(take, number, batch, device) for take, number in ((eight, 8), (one, 1))]
        report(f"  their products alone: {alone[0]:.2f} and {alone[1]:.2f} ms, {alone[0] / alone[1]:.3g}")
    return ratios


def cohort(num_classes: int, num_members: int, device: torch.device) -> CohortNetwork:
    """The network of all measurements, untrained."""
    shape = architecture(RECIPE, NUM_NUMBERS, 0, num_classes, is_timed=True)
    return CohortNetwork(shape, [()] * num_members, range(num_members)).to(device)


def minibatch(num_classes: int, num_rows: int, num_members: int, device: torch.device) -> Batch:
    """Random rows."""
    generator = torch.Generator().manual_seed(0)
    size = (num_members, num_rows)
    return Batch(
        dense=torch.randn(*size, NUM_NUMBERS, generator=generator).to(device),
        codes=torch.zeros(*size, 0, dtype=torch.int64, device=device),
        u=(torch.rand(*size, generator=generator) - 1).to(device),
        targets=torch.randint(0, num_classes, size, generator=generator).to(device),
    )


def step(
    kind: Kind,
    num_classes: int,
    num_rows: int,
    *,
    num_members: int = 1,
    device: torch.device,
    is_compiled: bool = False,
) -> Step:
    """One step of training as a fit takes it, ready to be repeated."""
    network = cohort(num_classes, num_members, device)
    batch = minibatch(num_classes, num_rows, num_members, device)
    optimiser = AdamW(list(network.parameters()), rate=RATE, weight_decay=RECIPE.weight_decay)
    generator = torch.Generator(device).manual_seed(1)
    phase = Phase("measured", rows="all", budget="all", epochs=1, rate=RATE, objective=kind)
    losses_of = tensor_objective(network, cross_entropy, phase, RECIPE, CLOCK)
    delta = torch.zeros(num_members, device=device)
    columns = (batch.dense, batch.codes, batch.u, batch.targets)
    if is_compiled:
        losses_of = torch.compile(losses_of)
    elif device.type == "cuda":
        losses_of = capture(network, losses_of, (*columns, delta, delta.clone()))

    def take() -> None:
        nonlocal delta
        draw = 2 * torch.rand(num_members, generator=generator, device=device) - 1
        losses, delta = losses_of(*columns, draw, delta)
        optimiser.descend(losses.sum())

    return take


def products_alone(take: Step, num_members: int, num_rows: int, device: torch.device) -> float:
    """Milliseconds of a step's matrix products at the rate of a bare product of its hidden layer."""
    with FlopCounterMode(display=False) as counter:
        take()
    size = num_members, RECIPE.width, RECIPE.width
    x, weight = torch.randn(num_members, num_rows, RECIPE.width, device=device), torch.randn(size, device=device)
    (milliseconds,) = take_turns([lambda: torch.bmm(x, weight)], device, num_rounds=5, seconds=0.01)
    num_products: float = counter.get_total_flops() / (2 * num_rows * num_members * RECIPE.width**2)
    return milliseconds * num_products


def products_figure(batch: int, device: torch.device) -> Figure:
    """The products alone of a cohort of eight, and of one member."""
    eight, one = (
        products_alone(step("gi", 10, batch, num_members=number, device=device), number, batch, device)
        for number in (8, 1)
    )
    of: dict[str, Label] = {"what": "products alone, cohort of 8 / one member", "batch": batch}
    return Figure(of=of, measure="sides", unit="ms", value=eight, yardstick=one)


def take_turns(steps: Sequence[Step], device: torch.device, num_rounds: int, seconds: float) -> list[float]:
    """Median milliseconds of each step; a round repeats a step for about `seconds`."""
    now = time.process_time if device.type == "cpu" else time.perf_counter

    def spent(take: Step, repeats: int) -> float:
        began = now()
        for _ in range(repeats):
            take()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (now() - began) / repeats

    for take in steps:
        spent(take, 3)  # a cost of the first steps
    repeats = [max(1, round(seconds / spent(take, 1))) for take in steps]
    rounds = [[spent(take, number) for take, number in zip(steps, repeats, strict=True)] for _ in range(num_rounds)]
    return [1000 * median(times) for times in zip(*rounds, strict=True)]
