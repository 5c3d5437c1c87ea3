"""A small drifting stream in windows of an hour, and the window that producers are at."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from contracts.clock import format_moment, to_micros
from contracts.task import Task

START = to_micros(datetime(2025, 1, 1, tzinfo=UTC))
WINDOW = timedelta(hours=1) // timedelta(microseconds=1)
NUM_KNOWN_WINDOWS = 8
ROWS_PER_WINDOW = 150
LABELS = ("no", "yes")
_TURN = 0.04  # how far the boundary moves in a window


@dataclass(frozen=True)
class Row:
    """An event as its producer knows it; `at` in microseconds."""

    event_id: str
    at: int
    x: float
    kind: str
    label: str

    def document(self) -> dict[str, Any]:
        """The body of POST /events, or of a correction."""
        features = {"x": self.x, "kind": self.kind}
        return {"event_id": self.event_id, "at": format_moment(self.at), "features": features, "label": self.label}

    def with_other_label(self) -> "Row":
        return replace(self, label=LABELS[self.label == "no"])


def make_task(name: str) -> Task:
    """A network that fits in a second, horizons of up to three windows, and cycles on request alone."""
    return Task.model_validate(
        {
            "name": name,
            "features": [{"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}],
            "target": {"name": "y", "kind": "classification"},
            "window": "PT1H",
            "schedule": "manual",
            "guard": {"max_age": 3, "tolerance": 5.0, "min_rows": 100, "rivals": []},
            "training": {
                "experts": ["gi"],
                "num_seeds": 2,
                "calendar": [],
                "width": 8,
                "num_layers": 1,
                "batch_size": 64,
                "pretrain_epochs": 4,
                "pretrain_rate": 0.02,
                "finetune_windows": 1,
                "finetune_epochs": 1,
            },
        }
    )


def window_start(window: int) -> int:
    """The boundary this many windows after the start, in microseconds."""
    return START + window * WINDOW


def make_row(rng: np.random.Generator, event_id: str, at: int) -> Row:
    """An event of that moment, labelled by the stream's law."""
    x, kind = float(rng.normal()), "ab"[int(rng.integers(2))]
    boundary = _TURN * (at - START) / WINDOW * (1 if kind == "a" else -1)
    return Row(event_id, at, x, kind, LABELS[x > boundary])


def make_rows(window: int, prefix: str, seed: int) -> Iterator[Row]:
    """The events of one window, evenly spread."""
    rng = np.random.default_rng(seed)
    for k in range(ROWS_PER_WINDOW):
        yield make_row(rng, f"{prefix}-{window}-{k}", window_start(window) + k * (WINDOW // ROWS_PER_WINDOW))


@dataclass
class Present:
    """The window that producers post events of. The story moves it."""

    window: int = NUM_KNOWN_WINDOWS
