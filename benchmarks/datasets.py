"""Real streams for replays, each as a task and its events: Elec2, House, Appliance and the flights of the demo.

The files come from a folder that the user names (`--data`, else `MORROW_PAPER_DATA`, else `../shared/data`), because
not all of their licences allow handing them on. Features are those known at `at`; timestamps are read as UTC.

    elec2              half-hours from 11 May 1997 on, the first without missing values. Stated dates are partly
                       swapped, so the calendar is counted from the first row. The features are the published ones
                       without date and row number, which model time replaces. The label says whether the price of New
                       South Wales is above its mean over the past day: the published features hold that price, and so
                       do ours
    house_yearly,      sales by day; windows begin on 1 January, half-yearly ones on 1 or 2 July too. The price is in
    house_half_yearly  ten thousands, as published
    appliance          ten-minute readings of a house, the weather of the next station as its publishers interpolated
                       it, and the energy in Wh that the appliances took in those minutes. Left out are the lights,
                       which hang on the same meter, and the two random columns
    flights            `cli.demo.flights`, whole weeks only
"""

import gzip
import io
import os
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cli.demo.flights import LABEL, NUM_WEEKS, load_flights, read_task_file
from contracts.clock import MICROSECOND
from contracts.errors import NotFound
from contracts.task import Task
from store.events.batches import Event

if TYPE_CHECKING:
    import pandas as pd

_TASKS = Path(__file__).parent / "task_files"

_ELEC2_COLUMNS = ("date", "day", "period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer", LABEL)
_ELEC2_FIRST_DAY = "1996-05-07"
_ELEC2_PERIODS = 48
_ELEC2_REPEATED = 17_424  # the day that begins with this row repeats the date of the day before
_HOUSE_UNIT = 10_000


@dataclass(frozen=True)
class Dataset:
    """A stream: its task, and its events in the order of `at`."""

    task: Task
    events: list[Event]


def default_folder() -> Path:
    """The folder of the files if the user names none."""
    return Path(os.environ.get("MORROW_PAPER_DATA", Path(__file__).parents[2] / "shared" / "data"))


def load(name: str, folder: Path) -> Dataset:
    """One of `DATASETS`. Raises NotFound if its file is not in the folder."""
    task, read_frame = read_task(name), DATASETS[name]
    return Dataset(task, to_events(task, read_frame(folder)))


def read_task(name: str) -> Task:
    """The task file of a data set."""
    text = read_task_file() if name == "flights" else (_TASKS / f"{name}.toml").read_text("utf-8")
    return Task.model_validate(tomllib.loads(text))


def to_events(task: Task, frame: "pd.DataFrame") -> list[Event]:
    """Rows with event_id, at (aware UTC), the task's features and label; labels are known after the task's delay."""
    at = frame["at"].astype("datetime64[us, UTC]").to_numpy("datetime64[us]").astype(np.int64)
    known_at = at + task.label_delay // MICROSECOND
    numbers = frame[[feature.name for feature in task.numbers]].to_numpy(np.float64)
    categories = frame[[feature.name for feature in task.categories]].astype(str).to_numpy(object)
    return [
        Event(*values)
        for values in zip(
            frame["event_id"],
            at.tolist(),
            known_at.tolist(),
            map(tuple, numbers.tolist()),
            map(tuple, categories.tolist()),
            frame[LABEL].astype(str),
            strict=True,
        )
    ]


def load_elec2(folder: Path) -> "pd.DataFrame":
    """The 27,549 half-hours without missing values: 41 windows of 14 days."""
    import pandas as pd

    text = gzip.decompress(_find(folder, "elec2/elec2.data.gz").read_bytes())
    rows = pd.read_csv(
        io.BytesIO(text), names=list(_ELEC2_COLUMNS), skipinitialspace=True, na_values="?", dtype={"day": str}
    )
    number = np.arange(len(rows))
    days = number // _ELEC2_PERIODS - (number >= _ELEC2_REPEATED)
    half_hours = pd.to_timedelta(30 * (rows["period"] - 1), unit="min")
    rows["at"] = pd.Timestamp(_ELEC2_FIRST_DAY, tz="UTC") + pd.to_timedelta(days, unit="D") + half_hours
    rows["event_id"] = [f"elec2-{k}" for k in number]
    return rows.dropna(ignore_index=True)


def load_house(folder: Path) -> "pd.DataFrame":
    """All 29,580 sales in the order of their day."""
    import pandas as pd

    rows = pd.read_csv(_find(folder, "house/raw_sales.csv.gz"))
    rows["at"] = pd.to_datetime(rows["datesold"], format="%m/%d/%Y %H:%M", utc=True)
    rows["event_id"] = [f"house-{k}" for k in range(len(rows))]
    rows[LABEL] = rows["price"] / _HOUSE_UNIT
    return rows.sort_values("at", kind="stable", ignore_index=True)


def load_appliance(folder: Path) -> "pd.DataFrame":
    """All 19,735 readings."""
    import pandas as pd

    with zipfile.ZipFile(_find(folder, "energy/energydata_complete.zip")) as archive:
        (name,) = archive.namelist()
        rows = pd.read_csv(io.BytesIO(archive.read(name)))
    rows["at"] = pd.to_datetime(rows["date"], utc=True)
    rows["event_id"] = [f"appliance-{k}" for k in range(len(rows))]
    return rows.rename(columns={"Appliances": LABEL})


def load_whole_weeks(_folder: Path) -> "pd.DataFrame":
    """The flights of the 52 whole weeks; they come with a package."""
    frame = load_flights()
    return frame[frame["week"] < NUM_WEEKS]


def _find(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        raise NotFound(f"There is no {file}: name the folder that holds {name} by --data or MORROW_PAPER_DATA.")
    return file


DATASETS: dict[str, Callable[[Path], "pd.DataFrame"]] = {
    "elec2": load_elec2,
    "house_yearly": load_house,
    "house_half_yearly": load_house,
    "appliance": load_appliance,
    "flights": load_whole_weeks,
}


# First windows of each stream that chose its recipe; replays report the origins after them.
CHOSEN_ON = {"elec2": 13, "house_yearly": 6, "house_half_yearly": 12, "appliance": 8, "flights": 26}


def split_names(text: str) -> Sequence[str]:
    """Names of data sets separated by commas. Raises NotFound for any other."""
    names = text.split(",")
    for name in names:
        if name not in DATASETS:
            raise NotFound(f"There is no data set {name!r}; there are {', '.join(DATASETS)}.")
    return names
