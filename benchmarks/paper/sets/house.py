"""House: what a home sells for, in ten thousands of Australian dollars, by its bedrooms, type and postcode.

A domain is a calendar year, the first 2013; the exact day is a row's time. The paper's text tests on 2019, its authors'
public code on 2018. Sales of earlier years are in the file and in no domain.
"""

from pathlib import Path

from benchmarks.datasets import load_house, read_task
from benchmarks.paper.sets.cut import PaperSet
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.sets.tabular import Tabular, frame_rows, with_domains
from contracts.clock import parse_moment

_YEARS = range(2013, 2021)


def load_house_sales(folder: Path, name: str = "house", title: str = "House", test_year: int = 2019) -> PaperSet:
    """20,937 sales of six years, and 1,385 of the seventh. Raises NotFound."""
    find_files(folder, name)
    task = read_task("house_yearly")
    num_domains = len(_YEARS) - 1
    task = with_domains(task, task.clock.window, num_domains)
    return PaperSet(
        name=name,
        title=title,
        contents=Tabular(task, frame_rows(task, load_house(folder))),
        edges=tuple(parse_moment(f"{year}-01-01T00:00:00Z") for year in _YEARS),
        clock=task.clock,
        test_origin=_YEARS.index(test_year),
        files=FILES[name],
        calendars=("week", "year"),
    )
