"""The real streams are cut as their provenance says. Without their folder only the flights are tested."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.datasets import DATASETS, Dataset, default_folder, load, read_task, split_names
from contracts.clock import format_moment
from contracts.errors import NotFound

DATA = default_folder()
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the folder of the data sets is not here (MORROW_PAPER_DATA)")


def rows_by_window(dataset: Dataset) -> dict[str, int]:
    counts = Counter(dataset.task.clock.window_start(event.at) for event in dataset.events)
    return {format_moment(window): counts[window] for window in sorted(counts)}


@needs_data
def test_elec2_has_the_published_domains() -> None:
    dataset = load("elec2", DATA)
    counts = rows_by_window(dataset)
    assert len(dataset.events) == 27_549
    assert list(counts.values())[:6] == [670, 672, 672, 672, 671, 672]
    assert len(counts) == 41
    assert next(iter(counts)) == "1997-05-11T00:00:00Z"
    assert sum(list(counts.values())[:29]) == 19_485
    assert dataset.events[0].event_id == "elec2-17760"


@needs_data
def test_labels_of_elec2_follow_from_the_price_of_the_day_before() -> None:
    events = load("elec2", DATA).events
    prices = [event.numbers[1] for event in events]
    for k in range(10_000, 10_500):
        mean = sum(prices[k - 48 : k]) / 48
        assert events[k].label == ("UP" if prices[k] > mean else "DOWN")


@needs_data
def test_house_is_cut_by_calendar_years() -> None:
    counts = list(rows_by_window(load("house_yearly", DATA)).values())
    assert counts[-7:] == [2119, 2863, 3648, 3908, 4541, 3858, 1385]
    assert sum(counts) == 29_580


@needs_data
def test_half_years_of_house_add_up_to_its_years() -> None:
    yearly = list(rows_by_window(load("house_yearly", DATA)).values())
    half_yearly = list(rows_by_window(load("house_half_yearly", DATA)).values())
    assert [sum(half_yearly[k : k + 2]) for k in range(0, len(half_yearly), 2)] == yearly


@needs_data
def test_appliance_is_cut_by_weeks() -> None:
    dataset = load("appliance", DATA)
    counts = list(rows_by_window(dataset).values())
    assert len(dataset.events) == 19_735
    assert counts == [906, *[1008] * 18, 685]
    assert {event.label for event in dataset.events} >= {"60", "1080"}


def test_flights_are_the_whole_weeks() -> None:
    counts = rows_by_window(load("flights", DATA))
    assert len(counts) == 52
    assert sum(counts.values()) == 327_346 - 759


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_has_a_task(name: str) -> None:
    assert read_task(name).name == name


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"elec2\.data\.gz by --data or MORROW_PAPER_DATA"):
        load("elec2", tmp_path)


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(NotFound, match="'moon'"):
        split_names("elec2,moon")
