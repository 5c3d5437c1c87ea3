"""M5: how many of an item does a Californian store sell in a day? Three calendar years, and January 2016 as the test.

The files are not among ours: this code follows Kaggle's format and has read none of their rows. A series is an item in
a store, of those that sell at least one a day over the three known years. The paper has 78 features and names a few of
them. Ours are of the kinds that it names, and of all series' sales until the day before: the last day, the days one and
two weeks ago, mean, deviation and extremes of the past 15 days, holidays, food stamps, weekday, item and store. The
paper does not give the unit of its errors, which are far below one item; ours is an item.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.sets.cut import PaperSet
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.sets.tabular import Tabular, event_rows, with_domains
from cli.demo.flights import LABEL
from contracts.clock import parse_moment
from contracts.task import Task
from store.events.reading.columns import EventColumns

if TYPE_CHECKING:
    import pandas as pd

_EDGES = ("2013-01-01", "2014-01-01", "2015-01-01", "2016-01-01", "2016-02-01")
_FIRST_DAY, _TEST_DAY, _END_DAY = _EDGES[0], _EDGES[-2], _EDGES[-1]
_STATE = "CA"
_LEAST_MEAN = 1.0
_PAST_DAYS = 15
_NUMBERS = ("day_before", "week_before", "fortnight_before", "mean", "deviation", "least", "most", "snap")
_CATEGORIES = ("item_id", "store_id", "weekday", "event")


def load_m5(folder: Path, name: str, title: str, category: str) -> PaperSet:
    """The sales of a category, such as HOBBIES. Raises NotFound."""
    import pandas as pd

    calendar_path, sales_path = find_files(folder, name)
    calendar, series = pd.read_csv(calendar_path), pd.read_csv(sales_path)
    series = series[(series["cat_id"] == category) & (series["state_id"] == _STATE)]
    calendar = calendar[calendar["d"].isin(series.columns) & (calendar["date"] < _END_DAY)]
    sales = series[calendar["d"]].to_numpy(np.float64).T
    is_known = calendar["date"].between(_FIRST_DAY, _TEST_DAY, inclusive="left").to_numpy()
    is_sold = sales[is_known].mean(0) >= _LEAST_MEAN
    first = int(np.flatnonzero(is_known)[0])
    task = _task(name, len(_EDGES) - 1)
    return PaperSet(
        name=name,
        title=title,
        contents=Tabular(task, _rows(task, calendar, series[is_sold], sales[:, is_sold], first)),
        edges=tuple(parse_moment(f"{day}T00:00:00Z") for day in _EDGES),
        clock=task.clock,
        test_origin=len(_EDGES) - 2,
        files=FILES[name],
        calendars=("week", "year"),
    )


def past(sales: NDArray[np.float64], first: int) -> NDArray[np.float64]:
    """Seven numbers `(days, series, 7)` for each day from `first` on, of the sales `(days, series)` before that day."""
    windows = np.lib.stride_tricks.sliding_window_view(sales[first - _PAST_DAYS : -1], _PAST_DAYS, axis=0)
    statistics = windows.mean(-1), windows.std(-1), windows.min(-1), windows.max(-1)
    return np.stack([windows[..., -1], windows[..., -7], windows[..., -14], *statistics], axis=-1)


def _rows(
    task: Task, calendar: "pd.DataFrame", series: "pd.DataFrame", sales: NDArray[np.float64], first: int
) -> EventColumns:
    days, num_series = calendar.iloc[first:], len(series)

    def by_day(column: str) -> NDArray[Any]:
        return np.repeat(days[column].to_numpy(), num_series)

    def by_series(column: str) -> NDArray[Any]:
        return np.tile(series[column].to_numpy(), len(days))

    numbers = past(sales, first).reshape(len(days) * num_series, -1)
    events = days.assign(event=days["event_name_1"].fillna("none"))["event"]
    return event_rows(
        task,
        by_day("date").astype("datetime64[us]").astype(np.int64),
        np.column_stack([numbers, by_day("snap_CA")]),
        sales[first:].ravel(),
        [by_series("item_id"), by_series("store_id"), by_day("weekday"), np.repeat(events.to_numpy(), num_series)],
    )


def _task(name: str, num_domains: int) -> Task:
    def features(names: Sequence[str], kind: str) -> list[dict[str, str]]:
        return [{"name": feature, "kind": kind} for feature in names]

    spec: dict[str, Any] = {
        "name": name,
        "window": "P365DT6H",
        "features": features(_NUMBERS, "number") + features(_CATEGORIES, "category"),
        "target": {"name": LABEL, "kind": "regression"},
        "schedule": "manual",
    }
    task = Task.model_validate(spec)
    return with_domains(task, task.clock.window, num_domains)
