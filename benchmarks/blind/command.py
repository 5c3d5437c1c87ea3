"""`python -m benchmarks blind`: a task's default recipe on streams that it was not made for, compared with its rivals.

Nothing is set by hand: features are declared as a newcomer would (`benchmarks.blind.streams`). Each method is fitted as
of some origins in the last 40 % of a stream's windows and scored on the windows after each. Ours is a cohort, as it
would be released. LightGBM is asked twice: as it comes, with time and calendar as inputs, and tuned on the windows
before these, in the CPU seconds that ours takes. Class probabilities are scored at the temperature that is best for a
method over all of its windows.

With `--experts` only the network, LightGBM as it comes and their mixture are compared, as a cycle keeps and scores them
with `experts = "auto"`. At each origin the mixture is weighed by errors of the origins before it, some of which are in
the first 60 %.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.blind.streams import STREAMS
from benchmarks.datasets import Dataset, default_folder
from benchmarks.output import add_output_options, record_run
from benchmarks.recipes import known_reading
from benchmarks.result_files import Figure
from benchmarks.streams import import_dataset, temporary_store
from contracts.task import Training
from store.error_cells import Cell
from trainer.data.encoder import class_positions
from trainer.data.snapshot import Reading
from trainer.data.windows import complete_until, in_window
from trainer.evaluation.calibration import tempered_losses
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.kept_scores import mix_as_of, score_origin
from trainer.evaluation.mixture import as_if
from trainer.evaluation.origin_fits import fit_origins, keep_fit
from trainer.methods.gbdt import GBDT
from trainer.methods.naive_answer import naive_answer
from trainer.tuning.origins import boosting_scorer, known_origins, network_scorer
from trainer.tuning.search import Budget, choose
from trainer.tuning.space import BOOSTING, merge, restrict_space
from trainer.tuning.trials import Errors, Scorer, mean_error, pick_evenly

# The first windows, on which LightGBM is tuned, as a share of a stream's windows.
KNOWN_SHARE = 0.6
NUM_ORIGINS, NUM_TUNING_ORIGINS, NUM_WEIGHING_ORIGINS = 6, 4, 8
TUNED = "gbdt, tuned"
# The mixture once it has proved better than the network alone, and everywhere.
AUTO, MIXED = "auto", "mixture"

# Our default, what it was made of, and the networks that it is compared with, by the settings that differ.
NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "gi": {},
    "gi, half by levels": {"views": ["plain", "last_day"]},
    "gi, plain numbers": {"number_form": "plain"},
    "gi, Gaussian loss": {"regression_loss": "gaussian"},
    "gi, both as before": {"number_form": "plain", "regression_loss": "gaussian"},
    "base_time": {"method": "base_time"},
    "baseline": {"method": "baseline"},
    "last_window": {"method": "last_window"},
}
METHODS = (*NETWORKS, "gbdt", TUNED, "naive")


@dataclass(frozen=True)
class Scored:
    """A method's mean error over (origin, window), and the CPU seconds of its fits.

    The method is named with what is special in its recipe, such as `gi, plain numbers`.
    """

    method: str
    error: float
    seconds: float


def main(arguments: list[str]) -> None:
    """Parse the arguments, score every method on every stream, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks blind", description=__doc__)
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the data sets")
    parser.add_argument("--streams", nargs="+", choices=[*STREAMS], default=[*STREAMS], help="names of streams")
    parser.add_argument("--experts", action="store_true", help="compare only the experts with their mixture")
    add_output_options(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    figures: list[Figure] = []
    for name in given.streams:
        dataset = STREAMS[name](given.data)
        unit = "nats" if dataset.task.is_classification else "unit of the label"
        for one in score_experts(dataset) if given.experts else score_stream(dataset):
            console.print(f"{name:18} {one.method:20} {one.error:10.4f} {unit:18} {one.seconds:7.1f} CPU s")
            method, _, recipe = one.method.partition(", ")
            of = {"stream": name, "method": method} | ({"recipe": recipe} if recipe else {})
            figures.append(Figure(of=of, measure="error", unit=unit, value=one.error))
            figures.append(Figure(of=of, measure="seconds", unit="CPU s", value=one.seconds))
    if given.results:
        title = "The default recipe, with features declared as a newcomer would, and its rivals"
        seeds = Training().num_seeds
        record_run(given.results, title, ["blind", *arguments], figures, seeds=seeds)


@dataclass(frozen=True)
class _Stream:
    """A stream's rows: all of them, those of the first windows, and the origins in the last ones."""

    reading: Reading
    known: Reading
    origins: Sequence[int]


def score_stream(dataset: Dataset) -> Iterator[Scored]:
    """Every method on the last windows of a stream; ours comes first, and its seconds are LightGBM's for its search."""
    stream = _read(dataset)
    reading, origins, task = stream.reading, stream.origins, stream.reading.schema.task
    seconds = 0.0
    for name, changes in NETWORKS.items():
        if "regression_loss" in changes and task.is_classification:
            continue
        network = network_scorer(reading, origins, torch.device("cpu"), with_cohort=True)
        found = _score(name, network, merge(task.training, changes))
        seconds = seconds or found.seconds
        yield found
    yield _score("gbdt", boosting_scorer(reading, origins, threads=1), task.training)
    tuned, spent = _tune(stream.known, seconds)
    found = _score(TUNED, boosting_scorer(reading, origins, threads=1), tuned)
    yield Scored(TUNED, found.error, found.seconds + spent)
    yield _timed("naive", lambda: [error for origin in origins for error in _naive_errors(reading, origin)])


def score_experts(dataset: Dataset) -> Iterator[Scored]:
    """The network alone, LightGBM, their mixture, and what `experts = "auto"` answers: all of the same fits."""
    stream = _read(dataset)
    training = stream.reading.schema.task.training.model_copy(update={"experts": "auto"})
    reading, device, cells = stream.reading.with_training(training), torch.device("cpu"), list[Cell]()
    task, began = reading.schema.task, time.process_time()
    weighing = pick_evenly(known_origins(stream.known), NUM_WEIGHING_ORIGINS)
    with tempfile.TemporaryDirectory(prefix="morrow-") as home:
        store = FitStore(Path(home), task)
        origins = [*weighing, *stream.origins]
        fits = fit_origins(reading, origins, device, training.num_seeds, lambda _epoch: None)
        for made in sorted(fits, key=lambda fit: fit.origin):
            mixture = mix_as_of(reading, store, cells, made.origin)
            keep_fit(made, reading, store, device=device, git_sha="", verdict=None, mixture=mixture)
            cells += score_origin(reading, store.open(made.origin), _windows_after(reading, made.origin))
    seconds = time.process_time() - began
    ours = training.method
    alone, mixed = (as_if(task, cells, is_mixed=is_mixed) for is_mixed in (False, True))
    for name, method, found in ((ours, ours, alone), (GBDT, GBDT, cells), (MIXED, ours, mixed), (AUTO, ours, cells)):
        chosen = [cell for cell in found if cell.method == method and cell.origin in stream.origins]
        errors = [np.array(cell.tempered if task.is_classification else [cell.metric]) for cell in chosen]
        yield Scored(name, mean_error(errors), seconds)


def _read(dataset: Dataset) -> _Stream:
    with temporary_store() as engine:
        reading = import_dataset(engine, dataset, datetime.now(UTC))
    task = reading.schema.task
    starts = [int(start) for start in np.unique(task.clock.window_starts(reading.current.at))]
    complete = [start for start in starts if start < complete_until(task, reading.cutoff)]
    first = round(len(complete) * KNOWN_SHARE)
    known = known_reading(dataset, (complete[first] - complete[0]) // task.clock.window)
    return _Stream(reading, known, pick_evenly(complete[first:], NUM_ORIGINS))


def _windows_after(reading: Reading, origin: int) -> list[int]:
    """The complete windows with rows after an origin, up to the last age."""
    task = reading.schema.task
    windows = (origin + age * task.clock.window for age in range(task.guard.max_age))
    known = reading.fingerprints
    return [one for one in windows if one < complete_until(task, reading.cutoff) and known.get(one, (0, 0))[0]]


def _tune(reading: Reading, seconds: float) -> tuple[Training, float]:
    """LightGBM's settings, chosen in these CPU seconds on the windows before the test, and the seconds that it took."""
    task, origins = reading.schema.task, pick_evenly(known_origins(reading), NUM_TUNING_ORIGINS)
    began = time.process_time()
    found = choose(
        boosting_scorer(reading, origins, threads=1),
        task.training,
        restrict_space(BOOSTING, task),
        Budget(trials=1000, seconds=seconds),
        seed=0,
        seconds_now=time.process_time,
    )
    return found.training, time.process_time() - began


def _score(method: str, score: Scorer, training: Training) -> Scored:
    return _timed(method, lambda: [error for group in score(training, lambda: None).groups for error in group])


def _timed(method: str, errors: Callable[[], list[Errors]]) -> Scored:
    began = time.process_time()
    found = errors()
    return Scored(method, mean_error(found), time.process_time() - began)


def _naive_errors(reading: Reading, origin: int) -> Iterator[Errors]:
    """The errors of the newest known window's class shares, or of its mean, on each window after an origin."""
    task, known = reading.schema.task, reading.fit_rows(origin)
    classes = task.target.classes or known.classes
    answer = np.array(naive_answer(task, known, classes))
    for age in range(task.guard.max_age):
        rows = in_window(reading.current, origin + age * task.clock.window, task.clock)
        if len(rows) == 0 or origin + age * task.clock.window >= complete_until(task, reading.cutoff):
            continue
        if task.is_classification:
            probabilities = np.tile(answer.astype(np.float32), (len(rows), 1))
            yield np.array(tempered_losses(probabilities, class_positions(classes, rows), 1.0))
        else:
            yield np.array([np.abs(rows.labels - answer[0]).mean()])
