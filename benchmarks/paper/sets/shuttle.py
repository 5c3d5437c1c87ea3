"""Shuttle: states of a space shuttle's radiators by nine numbers.

The first number is time. It is a feature, as the text counts nine, and model time as well. The text trains on times 30
to 70 and tests on 70 to 80. Read as shares of the whole time in percent, that gives 3,704 and 793 rows, and answering
class 5 is wrong for 0.25 % of the test. Read as they are in the file, it gives 54,670 and 720, which contradicts the
published errors. A domain is ten units of time. The text does not say how its own eight domains are cut.
"""

import gzip
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.sets.cut import DAY, PaperSet, even_edges
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.sets.tabular import Tabular, event_rows, numbers_task

# The file's first and last time: part of the published cut, so that rows beyond it change nothing.
_FIRST, _LAST = 27, 126
_START, _STEP, _NUM_DOMAINS = 30, 10, 5
_FEATURES = ("time", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9")


def load_shuttle(folder: Path) -> PaperSet:
    """Time in percent. Raises NotFound."""
    return _load(folder, "shuttle", "Shuttle, time in percent", numerator=100, denominator=_LAST - _FIRST, zero=_FIRST)


def load_shuttle_raw(folder: Path) -> PaperSet:
    """Time as in the file. Raises NotFound."""
    return _load(folder, "shuttle_raw", "Shuttle, the file's time", numerator=1, denominator=1, zero=0)


def _load(folder: Path, name: str, title: str, *, numerator: int, denominator: int, zero: int) -> PaperSet:
    """Load a set; a day is a domain. Times are integers, so that no row falls on the wrong side of an edge."""
    import pandas as pd

    (path,) = find_files(folder, name)
    frame = pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes())))
    task = numbers_task(name, _FEATURES, [str(number) for number in range(1, 8)], DAY, _NUM_DOMAINS)
    time: NDArray[np.int64] = frame["time"].to_numpy(np.int64)
    at = ((time - zero) * numerator - _START * denominator) * DAY // (_STEP * denominator)
    rows = event_rows(task, at, frame[list(_FEATURES)].to_numpy(np.float64), frame["class"].to_numpy())
    return PaperSet(
        name=name,
        title=title,
        contents=Tabular(task, rows),
        edges=even_edges(0, DAY, _NUM_DOMAINS),
        clock=task.clock,
        test_origin=_NUM_DOMAINS - 1,
        files=FILES[name],
    )
