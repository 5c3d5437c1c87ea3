"""Sets whose rows are events of a task, encoded as the service encodes them.

So a split holds what the service would train on: numbers standardised within their tails, categories with an unseen
bucket, calendar phases of the recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.sets.cut import Encoding
from benchmarks.paper.splits import Metric
from cli.demo.flights import LABEL
from contracts.clock import MICROSECOND
from contracts.task import Task, Training
from store.events.reading.columns import NEVER, EventColumns
from trainer.data.encoder import class_positions, encode, fit_encoder
from trainer.network.network import Build, CohortNetwork, Network

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Tabular:
    """Events of a task."""

    task: Task
    rows: EventColumns
    build: Build[Network] = field(default=CohortNetwork)

    @property
    def at(self) -> NDArray[np.int64]:
        return self.rows.at

    @property
    def metric(self) -> Metric:
        return "error_percent" if self.task.is_classification else "mae"

    def encode(self, known: slice, unseen: slice, training: Training, /) -> Encoding:
        task = self.task.with_training(training)
        # Times are counted from no cutoff: the code that cuts the rows knows the edge and gives them model time.
        encoder = fit_encoder(task, self.rows.select(known), cutoff=0)
        rows = self.rows.select(slice(known.start, unseen.stop))
        encoded = encode(encoder, rows)
        answers = class_positions(encoder.classes, rows) if task.is_classification else rows.labels
        return Encoding(
            dense=encoded.dense,
            codes=encoded.codes,
            targets=encoded.targets,
            answers=answers.astype(np.float64),
            vocabulary_sizes=encoder.vocabulary_sizes,
            num_outputs=encoder.num_outputs,
            label_unit=encoder.label_unit,
        )


def numbers_task(name: str, features: Sequence[str], classes: Sequence[str], window: int, num_domains: int) -> Task:
    """A classification by numbers alone; a window is a domain, the unit of model time the whole set."""
    spec: dict[str, Any] = {
        "name": name,
        "features": [{"name": feature, "kind": "number"} for feature in features],
        "target": {"name": LABEL, "kind": "classification", "classes": classes},
        "schedule": "manual",
    }
    return with_domains(Task.model_validate(spec | {"window": timedelta(microseconds=window)}), window, num_domains)


def with_domains(task: Task, window: int, num_domains: int) -> Task:
    """The same task, with a domain for its window and the whole set for its unit of model time."""
    lengths = {"window": window * MICROSECOND, "span": num_domains * window * MICROSECOND}
    return Task.model_validate(task.model_dump() | lengths)


def frame_rows(task: Task, frame: "pd.DataFrame") -> EventColumns:
    """Events of a frame with `at`, the task's features and `LABEL`."""
    return event_rows(
        task,
        frame["at"].astype("datetime64[us, UTC]").to_numpy("datetime64[us]").astype(np.int64),
        frame[[feature.name for feature in task.numbers]].to_numpy(np.float64),
        frame[LABEL].to_numpy(),
        [frame[feature.name].astype(str).to_numpy(object) for feature in task.categories],
    )


def event_rows(
    task: Task,
    at: NDArray[np.int64],
    numbers: NDArray[np.float64],
    labels: NDArray[Any],
    categories: Sequence[NDArray[Any]] = (),
) -> EventColumns:
    """Events in the order of `at`; classes are those that the task lists. Raises KeyError for another one."""
    order = np.argsort(at, kind="stable")
    coded = [np.unique(values[order].astype(str), return_inverse=True) for values in categories]
    classes = task.target.classes or ()
    position = {name: k for k, name in enumerate(classes)}
    count = len(at)
    return EventColumns(
        at=at[order],
        known_at=at[order],
        superseded_at=np.full(count, NEVER),
        numbers=numbers[order],
        categories=np.array([codes for _, codes in coded], np.int32).reshape(len(coded), count).T,
        vocabularies=tuple(tuple(values.tolist()) for values, _ in coded),
        labels=np.array([position[str(label)] for label in labels[order]], np.int32)
        if classes
        else labels[order].astype(np.float64),
        classes=classes,
        withheld=np.zeros(count, np.bool_),
    )
