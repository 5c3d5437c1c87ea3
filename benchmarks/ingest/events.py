"""New events as JSON: eight numbers and a label of two classes, a second apart."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from contracts.task import Task

FEATURES = tuple(f"x{number}" for number in range(8))
LABEL = "label"
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)

TASK = Task.model_validate(
    {
        "name": "ingest",
        "features": [{"name": name, "kind": "number"} for name in FEATURES],
        "target": {"name": LABEL, "kind": "classification"},
        "window": "P7D",
        "schedule": "manual",
    }
)


def make_events() -> Iterator[dict[str, Any]]:
    """Endless events, each with its own id."""
    draw = random.Random(0)  # noqa: S311 nothing is kept secret
    for number in count():
        yield {
            "event_id": f"event-{number:09}",
            "at": (_FIRST + timedelta(seconds=number)).isoformat(),
            "features": {name: round(draw.gauss(), 6) for name in FEATURES},
            "label": draw.choice("ab"),
        }


def take_bodies(events: Iterator[dict[str, Any]], num_bodies: int, num_rows: int | None = None) -> list[str]:
    """Bodies of one event each, or of an array of `num_rows`."""
    if num_rows is None:
        return [json.dumps(next(events)) for _ in range(num_bodies)]
    return [json.dumps([next(events) for _ in range(num_rows)]) for _ in range(num_bodies)]
