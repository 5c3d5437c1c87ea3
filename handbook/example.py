"""The stream behind the pictures of the explanation: bicycle rentals, in which "warm enough" changes from day to day.

Its law is known: the temperature above which bicycles are rented falls by 0.3 degrees a day, and jumps on one day. One
label in twenty is noise. The rows are in memory, in the form in which a cycle reads them.
"""

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from contracts.clock import to_micros
from contracts.task import Task
from store.events.reading.columns import NEVER, EventColumns
from store.tasks.catalog import Schema
from trainer.data.snapshot import Reading

DAY = 86_400_000_000
START = to_micros(datetime(2026, 10, 1, tzinfo=UTC))
NUM_DAYS, JUMP_DAY, JUMP = 34, 32, 9.0
FALL, FREE_DAY = 0.3, 3.0
_ROWS_PER_DAY, _NOISE, _SEED = 300, 0.05, 7
_MEAN, _SPREAD = 14.0, 6.0

TASK = Task.model_validate(
    {
        "name": "rentals",
        "window": "P1D",
        "schedule": "manual",
        "target": {"name": "demand", "kind": "classification", "classes": ["busy", "quiet"]},
        "features": [{"name": "temperature", "kind": "number"}, {"name": "day", "kind": "category"}],
        "guard": {"max_age": 6},
        "training": {"experts": ["gi"], "batch_size": 64, "calendar": []},
    }
)
DAYS = ("free", "work")


def threshold(at: NDArray[np.int64]) -> NDArray[np.float64]:
    """The temperature above which a working day is busy, for each moment (microseconds)."""
    day = (at - START) // DAY
    return np.asarray(18.0 - FALL * day + JUMP * (day >= JUMP_DAY), np.float64)


def reading(num_days: int = NUM_DAYS) -> Reading:
    """All rows that are known after `num_days`."""
    rng = np.random.default_rng(_SEED)
    count = num_days * _ROWS_PER_DAY
    at = START + np.arange(count) * (DAY // _ROWS_PER_DAY)
    temperature, is_work = rng.normal(_MEAN, _SPREAD, count).round(1), rng.integers(2, size=count)
    is_busy = temperature > threshold(at) - FREE_DAY * (1 - is_work)
    is_noise, withheld = rng.random(count) < _NOISE, rng.random(count) < 0.05
    return Reading(
        Schema(1, 1, 1, TASK),
        START + num_days * DAY,
        START + num_days * DAY,
        _columns(at, temperature, is_work, is_busy == is_noise, withheld),
    )


def grid(at: NDArray[np.int64], temperature: NDArray[np.float64]) -> EventColumns:
    """Rows of working days without labels, one for each moment and temperature."""
    none = np.zeros(len(at), np.bool_)
    return _columns(at, temperature, np.ones(len(at), np.int64), none, none)


def _columns(
    at: NDArray[np.int64],
    temperature: NDArray[np.float64],
    days: NDArray[np.int64],
    is_quiet: NDArray[np.bool_],
    withheld: NDArray[np.bool_],
) -> EventColumns:
    return EventColumns(
        at=at,
        known_at=at,
        superseded_at=np.full(len(at), NEVER),
        numbers=temperature[:, None],
        categories=days[:, None].astype(np.int32),
        vocabularies=(DAYS,),
        labels=is_quiet.astype(np.int32),
        classes=("busy", "quiet"),
        withheld=withheld,
    )
