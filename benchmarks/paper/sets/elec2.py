"""Elec2: is the price of electricity in New South Wales above its mean over the past day? 41 domains of two weeks.

The published arrays hold eight numbers, among them the date as a number and the row's own number. They were
standardised over all rows, the test's included; standardising them again with known rows only undoes that, for it is
affine. The dated rows are those of the service's own stream, with the true calendar. The paper tests on domain 29, its
successors on domain 40.
"""

from pathlib import Path

import numpy as np

from benchmarks.datasets import load_elec2, read_task
from benchmarks.paper.sets.cut import DAY, PaperSet, even_edges
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.sets.tabular import Tabular, event_rows, frame_rows, numbers_task, with_domains
from contracts.clock import parse_moment

NUM_DOMAINS = 41
_WINDOW = 14 * DAY
_FIRST = parse_moment("1997-05-11T00:00:00Z")
_FEATURES = ("date", "day", "period", "nswprice", "nswdemand", "vicprice", "vicdemand", "row_number")


def load_elec2_arrays(folder: Path, name: str = "elec2", test_origin: int = 29) -> PaperSet:
    """The published features; the raw file gives each row its moment. Raises NotFound."""
    arrays_path, _ = find_files(folder, name)
    frame = load_elec2(folder)
    task = numbers_task(name, _FEATURES, ["DOWN", "UP"], _WINDOW, NUM_DOMAINS)
    at = frame["at"].to_numpy("datetime64[us]").astype(np.int64)
    with np.load(arrays_path) as arrays:
        rows = event_rows(task, at, arrays["X"], np.array(["DOWN", "UP"])[arrays["Y"]])
    return _paper_set(name, f"Elec2, domain {test_origin}", Tabular(task, rows), test_origin)


def load_elec2_rows(folder: Path, name: str = "elec2_rows", test_origin: int = 29) -> PaperSet:
    """The dated rows. Raises NotFound."""
    find_files(folder, name)
    task = with_domains(read_task("elec2"), _WINDOW, NUM_DOMAINS)
    contents = Tabular(task, frame_rows(task, load_elec2(folder)))
    return _paper_set(name, f"Elec2, dated rows, domain {test_origin}", contents, test_origin)


def _paper_set(name: str, title: str, contents: Tabular, test_origin: int) -> PaperSet:
    return PaperSet(
        name=name,
        title=title,
        contents=contents,
        edges=even_edges(_FIRST, _WINDOW, NUM_DOMAINS),
        clock=contents.task.clock,
        test_origin=test_origin,
        files=FILES[name],
        calendars=("day", "week", "year"),
    )
