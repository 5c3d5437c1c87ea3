import json
import tomllib
from importlib.metadata import PackageNotFoundError

import pandas as pd
import pytest

from cli.demo import flights
from contracts.clock import to_micros
from contracts.errors import NotFound
from contracts.task import Task


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return flights.load_flights()


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.model_validate(tomllib.loads(flights.read_task_file()))


def test_flights_without_an_arrival_are_dropped(frame: pd.DataFrame) -> None:
    assert len(frame) == 327_346


def test_weeks_are_cut_as_documented(frame: pd.DataFrame) -> None:
    num_rows = frame.groupby("week").size()
    assert list(num_rows.index) == list(range(53))  # the few flights of 31 December begin a 53rd
    assert num_rows.median() == 6384
    assert num_rows.iloc[-1] == 759


def test_rates_of_lateness_are_those_of_the_source(frame: pd.DataFrame) -> None:
    late = frame["label"].eq("late").groupby(frame["event_id"].str[-5:-3]).mean()
    assert late["09"] == pytest.approx(0.132, abs=5e-4)
    assert late["12"] == pytest.approx(0.326, abs=5e-4)


def test_rows_are_in_order_and_their_ids_differ(frame: pd.DataFrame) -> None:
    assert frame["at"].is_monotonic_increasing
    assert frame["event_id"].is_unique


def test_weeks_of_the_data_are_windows_of_the_task(frame: pd.DataFrame, task: Task) -> None:
    for week in (0, 26, 52):
        start = to_micros(flights.week_start(week))
        assert task.clock.window_start(start) == start
        first = frame.loc[frame["week"] == week, "at"].iloc[0]
        assert task.clock.window_start(to_micros(first.to_pydatetime())) == start


def test_events_hold_the_features_of_the_task_and_nothing_else(frame: pd.DataFrame, task: Task) -> None:
    events = flights.to_events(frame.iloc[:2000])
    optional = {feature.name for feature in task.features if feature.optional}
    for event in events:
        assert set(event) == {"event_id", "at", "features", "label"}
        assert set(event["features"]) == {feature.name for feature in task.features}
        assert {name for name, value in event["features"].items() if value is None} <= optional
    assert {event["label"] for event in events} == set(task.target.classes or ())


def test_events_are_plain_json(frame: pd.DataFrame) -> None:
    first = flights.to_events(frame[frame["event_id"] == "UA-1545-EWR-2013-01-01"])
    assert json.loads(json.dumps(first, allow_nan=False)) == [
        {
            "event_id": "UA-1545-EWR-2013-01-01",
            "at": "2013-01-01T10:00:00Z",
            "features": {
                "sched_dep_minutes": 315,
                "distance": 1400,
                "weekday": "Tuesday",
                "carrier": "UA",
                "origin": "EWR",
                "dest": "IAH",
                "temp": 39.02,
                "dewp": 28.04,
                "humid": 64.43,
                "wind_speed": 12.658579999999999,
                "precip": 0.0,
                "pressure": 1011.9,
                "visib": 10.0,
            },
            "label": "on_time",
        }
    ]


def test_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "PACKAGE", "nycflights-of-another-year")
    with pytest.raises(NotFound, match=r"pip install 'morrow\[demo\]'") as caught:
        flights.load_flights()
    assert isinstance(caught.value.__cause__, PackageNotFoundError)
