"""M5 is read from Kaggle's format, here a small file of our own: the real one is not ours to keep."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.paper.sets import SETS
from benchmarks.paper.sets.files import FILES
from benchmarks.paper.sets.m5 import past
from benchmarks.paper.splits import Split

DAYS = pd.date_range("2012-12-01", "2016-02-10")


def write(folder: Path, late_sales: int) -> None:
    """Five series, of which two belong: others sell too little, elsewhere, or food. January sells `late_sales`."""
    calendar = pd.DataFrame({"date": DAYS.strftime("%Y-%m-%d"), "d": [f"d_{k + 1}" for k in range(len(DAYS))]})
    calendar["weekday"] = DAYS.day_name()
    calendar["event_name_1"] = ["Christmas" if day.month == 12 else None for day in DAYS]
    calendar["snap_CA"] = (DAYS.day <= 10).astype(int)
    ids = {
        "item_id": ["H_1", "H_2", "H_3", "H_1", "F_1"],
        "cat_id": ["HOBBIES", "HOBBIES", "HOBBIES", "HOBBIES", "FOODS"],
        "store_id": ["CA_1", "CA_1", "CA_1", "TX_1", "CA_1"],
        "state_id": ["CA", "CA", "CA", "TX", "CA"],
    }
    sales = np.random.default_rng(2).integers(1, 9, (5, len(DAYS)))
    sales[2, :-50] = 0
    sales[:, DAYS.year == 2016] = late_sales
    files = [folder / file for file in FILES["m5_hobbies"]]
    files[0].parent.mkdir(exist_ok=True)
    calendar.to_csv(files[0], index=False)
    pd.concat([pd.DataFrame(ids), pd.DataFrame(sales, columns=calendar["d"])], axis=1).to_csv(files[1], index=False)


@pytest.fixture
def split(tmp_path: Path) -> Split:
    write(tmp_path, 3)
    return SETS["m5_hobbies"](tmp_path).split(3)


def test_the_series_that_sell_are_cut_by_years_and_january(tmp_path: Path) -> None:
    write(tmp_path, 3)
    assert SETS["m5_hobbies"](tmp_path).domain_sizes == (2 * 365, 2 * 365, 2 * 365, 2 * 31)


def test_sales_are_told_by_what_was_sold_until_the_day_before() -> None:
    sales = np.stack([np.arange(20.0), 100 - np.arange(20.0)], axis=1)
    numbers = past(sales, 16)
    assert numbers.shape == (4, 2, 7)
    assert numbers[0, 0, [0, 1, 2, 3, 5, 6]].tolist() == [15, 9, 2, 8, 1, 15]
    assert numbers[0, 1, 0] == 85
    assert numbers[-1, 0, 0] == 18


def test_a_row_stands_beside_its_own_day(split: Split) -> None:
    assert split.answers.tolist() == [3.0] * 62
    assert split.vocabulary_sizes == (3, 2, 8, 3)
    assert set(split.unseen.codes[:2, 0]) == {1, 2}
    assert split.known.dense.shape[1] == 8


def test_sales_of_january_reach_nothing_that_is_known(split: Split, tmp_path: Path) -> None:
    write(tmp_path, 900)
    poisoned = SETS["m5_hobbies"](tmp_path).split(3)
    for field in ("dense", "codes", "u", "targets", "windows"):
        assert getattr(poisoned.known, field).tobytes() == getattr(split.known, field).tobytes()
    assert poisoned.label_unit == split.label_unit
    assert poisoned.vocabulary_sizes == split.vocabulary_sizes
    assert (poisoned.answers == 900).all()
