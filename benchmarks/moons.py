"""The paper's 2-Moons: two half moons that turn by 18° from each domain to the next.

The network is the paper's (two hidden layers of 50, a TReLU after each, Time2Vec with m = 8 and m_p = 2), the batch is
64. The recipe was chosen by training on domains 0–7 and scoring domain 8 (`docs/moons.md`). It trains on domains 0–8
and predicts domain 9, compared with the same recipe without the interpolated loss and with the time-oblivious rivals of
the same budget. `python -m benchmarks paper` has the other methods, and other choices.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.output import add_output_options, record_run
from benchmarks.paper.published import PUBLISHED as PUBLISHED_FIGURES
from benchmarks.ratios import Ratio, smaller_is_better, write_ratios
from benchmarks.result_files import Figure, Label
from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.network.training_loop import Member, finish, fit, outputs

FILE = "moons/moons_paper_processed.npz"
NUM_DOMAINS = 11
# One domain a day; model time counts in elevenths of the sequence, as the authors' code does.
DOMAIN = 86_400_000_000
CLOCK = Clock(window=DOMAIN, offset=0, span=NUM_DOMAINS * DOMAIN)
TEST_TARGET = 9

PAPER = Training(
    calendar=(),
    width=50,
    num_layers=2,
    time_width=8,
    time_linear=2,
    trelu_width=8,
    batch_size=64,
    pretrain_epochs=30,
    pretrain_rate=5e-3,
    finetune_windows=2,
    finetune_epochs=25,
    finetune_rate=5e-4,
    delta_max=5.5,
)
# The choice, on domain 8 (docs/moons.md).
RECIPE = PAPER.model_copy(
    update={"gi_weight": 0.1, "gi_pretrain": True, "delta_max": 1.0, "pretrain_rate": 1e-2, "pretrain_epochs": 30}
)

WITHOUT_TERM = "gi, λ = 0"
# Errors in percent: the paper's, what we commit to, and the best that a later paper published.
PUBLISHED, COMMITTED, BEST_PUBLISHED = 3.5, 5.0, 1.3


def main(arguments: list[str]) -> None:
    """Print a line a recipe or method."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks moons", description=__doc__)
    default = os.environ.get("MORROW_PAPER_DATA", "../shared/data")
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with the paper's data sets")
    parser.add_argument("--seeds", type=int, default=5, help="networks that are trained and averaged over")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # a second thread only slows networks this small
    x, y = load(options.data)
    cases: dict[str, Mapping[str, Any]] = {
        "gi": {},
        WITHOUT_TERM: {"gi_weight": 0.0},
        "baseline": {"method": "baseline"},
        "last_window": {"method": "last_window"},
    }
    scored = {
        name: show(name, x, y, RECIPE.model_copy(update=changes), options.seeds) for name, changes in cases.items()
    }
    if options.json:
        write_ratios(options.json, [result(float(np.mean(scored["gi"][0])))])
    if options.results:
        title = "2-Moons by the recipe of `benchmarks moons`, error on domain 9"
        figures = [figure for name, both in scored.items() for figure in figures_of(name, *both)]
        record_run(options.results, title, ["moons", *arguments], figures, seeds=options.seeds)


def load(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points `(11, 200, 2)` and classes `(11, 200)` by domain. Exits with a sentence if the file is absent."""
    path = folder / FILE
    if not path.is_file():
        sys.exit(f"{path} is not there: name the folder that holds {FILE} with --data or MORROW_PAPER_DATA")
    with np.load(path) as arrays:
        return arrays["X"].reshape(NUM_DOMAINS, -1, 2), arrays["Y"].reshape(NUM_DOMAINS, -1)


def cut(x: NDArray[np.float64], y: NDArray[np.int64], target: int) -> tuple[Encoded, Encoded]:
    """Rows of the domains before `target`, and those of `target`; the scale comes from the former alone."""
    known = x[:target].reshape(-1, 2)
    mean, scale = known.mean(0), known.std(0)

    def encoded(first: int, end: int) -> Encoded:
        windows = np.repeat(np.arange(first, end) * DOMAIN, x.shape[1])
        return Encoded(
            dense=((x[first:end].reshape(-1, 2) - mean) / scale).astype(np.float32),
            codes=np.zeros((len(windows), 0), np.int64),
            u=CLOCK.model_time(windows, target * DOMAIN),
            targets=y[first:end].ravel(),
            windows=windows,
        )

    return encoded(0, target), encoded(target, target + 1)


def score(
    x: NDArray[np.float64], y: NDArray[np.int64], target: int, training: Training, num_seeds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors in percent and mean log-losses on the target domain, `(num_seeds,)` each."""
    known, unseen = cut(x, y, target)
    members = [Member(known, (), 2, seed) for seed in range(num_seeds)]
    network = finish(fit(members, training, CLOCK, torch.device("cpu")))
    logits = outputs(network, unseen).astype(np.float64)
    errors = 100 * (logits.argmax(-1) != unseen.targets).mean(1)
    chances = np.take_along_axis(logits, unseen.targets[None, :, None].astype(np.int64), axis=-1)[..., 0]
    return errors, (np.logaddexp.reduce(logits, axis=-1) - chances).mean(1)


def show(
    name: str, x: NDArray[np.float64], y: NDArray[np.int64], training: Training, num_seeds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors in percent and log-losses of a recipe on domain 9, printed under a name."""
    began = time.perf_counter()
    errors, losses = score(x, y, TEST_TARGET, training, num_seeds)
    print(
        f"{name:12} domain {TEST_TARGET}: error {errors.mean():5.2f} % ± {errors.std():.2f}, "
        f"log-loss {losses.mean():.4f}, seeds {errors.tolist()}, {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    return errors, losses


def figures_of(name: str, errors: NDArray[np.float64], losses: NDArray[np.float64]) -> list[Figure]:
    """A method's errors and log-losses as data, with the published error."""
    of: dict[str, Label] = {"method": "gi", "gi_weight": 0.0} if name == WITHOUT_TERM else {"method": name}
    of["seeds"] = len(errors)
    published = PUBLISHED_FIGURES.get(("main", "moons", name))
    return [
        Figure(
            of=of,
            measure="error",
            unit="%",
            value=float(errors.mean()),
            std=float(errors.std()),
            yardstick=None if published is None else published.mean,
            yardstick_std=None if published is None else published.std,
        ),
        Figure(of=of, measure="log_loss", unit="nats", value=float(losses.mean())),
    ]


def result(error: float) -> Ratio:
    """The error and the published one."""
    return smaller_is_better(
        "2-Moons, GI, domain 9, mean over seeds",
        error,
        PUBLISHED,
        commit=COMMITTED,
        goal=BEST_PUBLISHED,
        unit="% error",
    )
