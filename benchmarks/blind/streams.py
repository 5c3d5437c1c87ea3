"""Streams as a newcomer would hand them over: numbers are numbers, and no setting is made by hand.

elec2, house_half_yearly, appliance, flights   as in `benchmarks.datasets`, with a task's default recipe; of the
             flights every eighth one
late_flights how many flights of an airport and hour are late; hour, weekday and month are numbers
departures   how many flights leave an airport in an hour; hour, weekday and month are numbers
temperature  temperature at an airport by the hour; hour and day of the year are numbers
friedman     y = 10·sin(π·a·b) + 20·(c − ½)² + 10·d + 5·e + N(0, 1) of ten uniform numbers (Friedman, "Multivariate
             Adaptive Regression Splines", 1991). The five that count give way, one by one, to the five others
sea          whether a + b ≤ θ of three uniform numbers within 0 to 10, a tenth of the labels wrong (Street and Kim,
             "A streaming ensemble algorithm", 2001). θ wanders from 7 to 9.5 and back
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.datasets import Dataset, load, to_events
from cli.demo.flights import LABEL, WEATHER, load_flights
from contracts.task import Task, Training

if TYPE_CHECKING:
    import pandas as pd

_HOURS = 24 * 365
_NUMBERS = tuple("abcdefghij")


def default_of(name: str, every: int = 1) -> Callable[[Path], Dataset]:
    """A stream of `benchmarks.datasets` with a task's default recipe, and one in `every` of its events."""

    def load_it(folder: Path) -> Dataset:
        dataset = load(name, folder)
        return Dataset(dataset.task.with_training(Training()), dataset.events[::every])

    return load_it


def late_flights(_folder: Path) -> Dataset:
    """Late flights of each airport and hour in which one leaves."""
    rows = load_flights()
    rows["is_late"] = rows[LABEL] == "late"
    hours = _by_hour(rows, label=("is_late", "sum"), scheduled=("is_late", "size"))
    return _dataset("late_flights", hours, ("hour", "weekday", "month", "scheduled", *WEATHER), ("origin",))


def departures(_folder: Path) -> Dataset:
    """Flights of each airport and hour in which one leaves."""
    hours = _by_hour(load_flights(), label=("event_id", "size"))
    return _dataset("departures", hours, ("hour", "weekday", "month", *WEATHER), ("origin",))


def temperature(_folder: Path) -> Dataset:
    """The temperature of each airport and hour in which a flight leaves, in °F."""
    hours = _by_hour(load_flights(), label=("temp", "first")).dropna(subset=[LABEL])
    hours["day"] = hours["at"].dt.day_of_year
    return _dataset("temperature", hours, ("hour", "day", "wind_speed", "precip", "pressure", "visib"), ("origin",))


def friedman(_folder: Path) -> Dataset:
    """A year of hours."""
    random = np.random.default_rng(0)
    x = random.uniform(size=(_HOURS, len(_NUMBERS)))
    phase = np.linspace(0, 1, _HOURS)[:, None] * 5 - np.arange(5)
    has_moved = random.uniform(size=(_HOURS, 5)) < phase.clip(0, 1)
    a, b, c, d, e = np.where(has_moved, x[:, 5:], x[:, :5]).T
    y = 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e + random.normal(size=_HOURS)
    return _generated("friedman", x, y)


def sea(_folder: Path) -> Dataset:
    """A year of hours."""
    random = np.random.default_rng(1)
    x = random.uniform(0, 10, size=(_HOURS, 3))
    limit = 8.25 - 1.25 * np.cos(2 * np.pi * np.linspace(0, 1, _HOURS))
    is_wrong = random.uniform(size=_HOURS) < 0.1
    return _generated("sea", x, np.where((x[:, 0] + x[:, 1] <= limit) ^ is_wrong, "yes", "no"))


STREAMS: Mapping[str, Callable[[Path], Dataset]] = {
    "elec2": default_of("elec2"),
    "house_half_yearly": default_of("house_half_yearly"),
    "appliance": default_of("appliance"),
    "flights": default_of("flights", every=8),
    "late_flights": late_flights,
    "departures": departures,
    "temperature": temperature,
    "friedman": friedman,
    "sea": sea,
}


def _by_hour(rows: "pd.DataFrame", **figures: tuple[str, str]) -> "pd.DataFrame":
    """One row for each airport and hour, with these figures and the hour's weather."""
    weather = {name: (name, "first") for name in WEATHER}
    hours = rows.groupby(["origin", "at"]).agg(**weather, **figures).reset_index()
    at = hours["at"].dt
    hours["hour"], hours["weekday"], hours["month"] = at.hour, at.day_of_week, at.month
    return hours.sort_values("at", kind="stable", ignore_index=True)


def _generated(name: str, x: "np.typing.NDArray[np.float64]", y: "np.typing.NDArray[Any]") -> Dataset:
    """An event for each hour of 2024."""
    import pandas as pd

    numbers = _NUMBERS[: x.shape[1]]
    frame = pd.DataFrame(dict(zip(numbers, x.T, strict=True)) | {LABEL: y})
    frame["at"] = pd.date_range("2024-01-01", periods=len(x), freq="h", tz="UTC")
    return _dataset(name, frame, numbers, ())


def _dataset(name: str, frame: "pd.DataFrame", numbers: Sequence[str], categories: Sequence[str]) -> Dataset:
    """A stream of fortnights; every number may be missing."""
    features = [{"name": one, "kind": "number", "optional": True} for one in numbers]
    features += [{"name": one, "kind": "category"} for one in categories]
    kind = "regression" if frame[LABEL].dtype.kind in "fiu" else "classification"
    target = {"name": "y", "kind": kind}
    task = Task.model_validate({"name": name, "features": features, "target": target, "window": "P14D"})
    rows = frame.assign(event_id=[f"{name}-{number}" for number in range(len(frame))])
    return Dataset(task, to_events(task, rows))
