"""What the recipe of the flights task is worth compared with its rivals, on the 26 weeks that chose it.

It is fitted as of several origins within those weeks, with one member each, and scored on the week that begins at each:
the error matrix's age 0. No row of a later week is ever loaded, so the demo's weeks choose nothing. `docs/flights.md`
says how the recipe was chosen; `python -m benchmarks recipes --sets flights` chooses another by the same rows.
"""

import argparse
import hashlib
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.output import add_output_options, record_run
from benchmarks.ratios import Ratio, smaller_is_better, write_ratios
from benchmarks.result_files import Figure, Label
from cli.demo.flights import load_flights, read_task_file, week_start
from contracts.clock import to_micros
from contracts.task import Task, Training
from store.events.reading.columns import NEVER, EventColumns
from store.events.reading.copied_tuples import WITHHELD_BYTES
from trainer.data.encoder import Encoded, encode, fit_encoder
from trainer.methods.naive_answer import naive
from trainer.network.training_loop import Member, finish, fit, outputs

if TYPE_CHECKING:
    import pandas as pd

NUM_KNOWN_WEEKS = 26
TARGET_WEEKS = (9, 11, 13, 15, 17, 19, 21, 23, 25)


@dataclass(frozen=True)
class Origin:
    """One origin's rows, encoded: what its fit may use, and the window that it is scored on."""

    known: Encoded
    target: Encoded
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int


def main(arguments: list[str]) -> None:
    """Print the recipe's loss and those of the rivals with the same budget."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks flights", description=__doc__)
    add_output_options(parser)
    options = parser.parse_args(arguments)
    task = Task.model_validate(tomllib.loads(read_task_file()))
    columns = known_columns(task)
    yardsticks = {"naive": _naive_loss(task, columns)}
    by_week: dict[str, list[float]] = {}
    print(f"{len(columns)} events of weeks 0-25; target weeks {TARGET_WEEKS}; naive {yardsticks['naive']:.4f}")
    for method in ("gi", "baseline", "last_window"):
        losses = by_week[method] = score(task, columns, task.training.model_copy(update={"method": method}))
        yardsticks[method] = float(np.mean(losses))
        print(f"{method:12} {yardsticks[method]:.4f}  by week {np.round(losses, 4).tolist()}", flush=True)
    if options.results:
        title = "The flights recipe and its rivals, on the weeks that chose it"
        figures = [
            Figure(of={"weeks": "0 to 25"}, measure="events", unit="", value=len(columns)),
            *(_loss_figure({"method": method}, loss) for method, loss in yardsticks.items()),
            *(
                _loss_figure({"method": method, "week": week}, loss)
                for method, losses in by_week.items()
                for week, loss in zip(TARGET_WEEKS, losses, strict=True)
            ),
        ]
        record_run(options.results, title, ["flights", *arguments], figures, seeds=1)
    if options.json:
        ours = yardsticks.pop("gi")
        write_ratios(options.json, [_beside(method, ours, loss) for method, loss in yardsticks.items()])


def _loss_figure(of: dict[str, Label], loss: float) -> Figure:
    return Figure(of=of, measure="log_loss", unit="nats", value=loss)


def _beside(method: str, ours: float, loss: float) -> Ratio:
    """GI's mean log-loss compared with a rival's: we commit to no more than it, and aim at 2 % less."""
    return smaller_is_better(
        f"flights, choosing weeks, GI and {method}", ours, loss, commit=loss, goal=0.98 * loss, unit="nats"
    )


def known_columns(task: Task) -> EventColumns:
    """The events of weeks 0 to 25 as the store would return them; later rows are dropped first."""
    frame = load_flights()
    return to_columns(task, frame[frame["week"] < NUM_KNOWN_WEEKS])


def to_columns(task: Task, frame: "pd.DataFrame") -> EventColumns:
    """Rows of `load_flights` as arrays, without a database."""
    at = frame["at"].astype("datetime64[us, UTC]").to_numpy("datetime64[us]").astype(np.int64)
    categories = [frame[feature.name].to_numpy(str) for feature in task.categories]
    coded = [np.unique(values, return_inverse=True) for values in categories]
    classes, labels = np.unique(frame["label"].to_numpy(str), return_inverse=True)
    hashes = [hashlib.sha256(event_id.encode()).digest()[0] for event_id in frame["event_id"]]
    return EventColumns(
        at=at,
        known_at=at + int(task.label_delay.total_seconds() * 1e6),
        superseded_at=np.full(len(at), NEVER),
        numbers=frame[[feature.name for feature in task.numbers]].to_numpy(np.float64),
        categories=np.stack([codes for _, codes in coded], axis=1).astype(np.int32),
        vocabularies=tuple(tuple(values.tolist()) for values, _ in coded),
        labels=labels.astype(np.int32),
        classes=tuple(classes.tolist()),
        withheld=np.array(hashes) < WITHHELD_BYTES,
    )


def score(task: Task, columns: EventColumns, training: Training) -> list[float]:
    """Mean log-loss of a recipe on each target week, one member per origin, all in one cohort."""
    recipe = task.model_copy(update={"training": training})
    origins = [_origin(recipe, columns, week) for week in TARGET_WEEKS]
    members = [Member(one.known, one.vocabulary_sizes, one.num_outputs, seed=0) for one in origins]
    network = finish(fit(members, training, task.clock, torch.device("cpu")))
    return [
        _log_loss(outputs(network, one.target, [number])[0], one.target.targets) for number, one in enumerate(origins)
    ]


def _origin(task: Task, columns: EventColumns, week: int) -> Origin:
    start, end = to_micros(week_start(week)), to_micros(week_start(week + 1))
    known = columns.as_of(start)
    known = known.select(~known.withheld)
    encoder = fit_encoder(task, known, start)
    target = encode(encoder, columns.in_window(start, end))
    return Origin(encode(encoder, known), target, encoder.vocabulary_sizes, encoder.num_outputs)


def _naive_loss(task: Task, columns: EventColumns) -> float:
    losses = []
    for week in TARGET_WEEKS:
        origin = _origin(task, columns, week)
        logits = naive(origin.known, origin.num_outputs, True)
        losses.append(_log_loss(np.tile(logits, (len(origin.target.u), 1)), origin.target.targets))
    return float(np.mean(losses))


def _log_loss(logits: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> float:
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(targets).long())
    return loss.item()
