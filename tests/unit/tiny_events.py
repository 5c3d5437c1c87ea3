"""A tiny task and hand-written events, for tests that compute by hand."""

from typing import Any

import numpy as np

from contracts.task import Task
from store.events.reading.columns import NEVER, EventColumns

HOUR = 3_600_000_000


def task(kind: str = "classification", **changes: Any) -> Task:
    spec: dict[str, Any] = {
        "name": "demand",
        "window": "PT1H",
        "features": [{"name": "x", "kind": "number"}],
        "target": {"name": "y", "kind": kind},
        "guard": {"max_age": 3, "min_pairs": 2},
    }
    return Task.model_validate(spec | changes)


def rows(at: list[int], labels: list[float], classes: tuple[str, ...] = ()) -> EventColumns:
    count = len(at)
    return EventColumns(
        at=np.array(at, np.int64),
        known_at=np.array(at, np.int64),
        superseded_at=np.full(count, NEVER),
        numbers=np.zeros((count, 1)),
        categories=np.zeros((count, 0), np.int32),
        vocabularies=(),
        labels=np.array(labels, np.int32) if classes else np.array(labels, np.float64),
        classes=classes,
        withheld=np.zeros(count, np.bool_),
    )
