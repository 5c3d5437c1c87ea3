"""The error matrix as a table for people: a row for each origin, a column for each target window, oldest first.

Time runs from left to right and from top to bottom, as in the picture of a run.

The shade of a cell repeats its number in seven levels between the least and the largest error of the table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from contracts.clock import Clock, format_moment
from store.error_cells import Mark, error_of

NUM_LEVELS = 7
MAX_ORIGINS, MAX_WINDOWS = 12, 16


@dataclass(frozen=True)
class Heat:
    """One cell: its error, its level of shade (0 to 6), and whether all labels of its window were due."""

    error: float
    level: int
    age: int
    num_rows: int
    is_complete: bool


@dataclass(frozen=True)
class HeatTable:
    """Starts of target windows, and origins, oldest first; each origin has a cell or None for each window.

    `has_older` says whether the matrix has windows before them, and `is_newest` whether it has none after them.
    """

    windows: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Heat | None, ...]], ...]
    least: float
    largest: float
    has_older: bool = False
    is_newest: bool = True


def tabulate(
    marks: Sequence[Mark], method: str, error_name: str, clock: Clock, before: int | None = None
) -> HeatTable | None:
    """The newest origins and windows with finite errors of one method; None if there are none.

    With `before` (microseconds) only windows that start before it, if there are any.
    """
    scored = [mark for mark in marks if mark.method == method and math.isfinite(error_of(mark, error_name))]
    found = [mark for mark in scored if before is None or mark.window < before] or scored
    windows = sorted({mark.window for mark in found}, reverse=True)[:MAX_WINDOWS]
    origins = sorted({mark.origin for mark in found if mark.window in windows}, reverse=True)[:MAX_ORIGINS]
    cells = {(mark.origin, mark.window): mark for mark in found if mark.origin in origins and mark.window in windows}
    if not cells:
        return None
    windows = sorted(window for window in windows if any((origin, window) in cells for origin in origins))
    has_older = any(mark.window < windows[0] for mark in found)
    errors = [error_of(mark, error_name) for mark in cells.values()]
    least, largest = min(errors), max(errors)

    def warm(origin: int, window: int) -> Heat | None:
        mark = cells.get((origin, window))
        if mark is None:
            return None
        error = error_of(mark, error_name)
        share = (error - least) / (largest - least) if largest > least else 0.0
        level = min(NUM_LEVELS - 1, int(share * NUM_LEVELS))
        return Heat(error, level, clock.age(origin, window), mark.num_rows, mark.is_complete)

    rows = tuple((format_moment(origin), tuple(warm(origin, window) for window in windows)) for origin in origins[::-1])
    is_newest = len(found) == len(scored)
    return HeatTable(tuple(map(format_moment, windows)), rows, least, largest, has_older, is_newest)
