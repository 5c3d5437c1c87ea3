"""The moments of a file without those of a wrong year, and a window that usually holds enough rows.

Long gaps are not counted as windows, so a large group of a wrong year does not stretch the window.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np

from contracts.clock import MICROSECOND, format_moment, to_micros
from contracts.durations import parse_duration
from contracts.errors import Fault, InvalidInput
from contracts.quality.far_values import Gap, count_far_off, find_gaps, part_by_gaps

_WINDOWS = ((1, "P1D"), (7, "P7D"), (14, "P14D"), (28, "P28D"), (91, "P91D"), (364, "P364D"))
_SHORTEST = timedelta(days=1)
_ROWS_PER_WINDOW = 100
_FEWEST_WINDOWS = 8


def choose_window(moments: Counter[datetime], given: str | None) -> tuple[str, str]:
    """The shortest window that usually holds enough rows, as long as there are some windows of it, or the given one.

    Raises InvalidInput if that is no duration.
    """
    empty = sum(gap.length for gap in _find_gaps(moments)) * MICROSECOND
    days = max(1.0, (max(moments) - min(moments) - empty) / timedelta(days=1))
    num_rows = moments.total()
    chosen: tuple[float, str] | None = None
    if given is not None:
        try:
            chosen = parse_duration(given) / timedelta(days=1), given
        except ValueError as error:
            raise InvalidInput([Fault("--window", str(error))]) from None
        if chosen[0] <= 0:
            raise InvalidInput([Fault("--window", f"{given} is not longer than 0")])
    for whole_days, shown in _WINDOWS if given is None else ():
        if days / whole_days < _FEWEST_WINDOWS and chosen is not None:
            break
        chosen = whole_days, shown
        if num_rows * whole_days / days >= _ROWS_PER_WINDOW:
            break
    assert chosen is not None
    length, window = chosen
    per_window = num_rows * length / days
    why = f"about {per_window:,.0f} rows a window, and {max(1, round(days / length))} windows in the file"
    if per_window < _ROWS_PER_WINDOW:
        why += f"; fewer than {_ROWS_PER_WINDOW} rows a window make its errors uncertain"
    return window, why


def describe_gaps(moments: Counter[datetime]) -> list[str]:
    """What to check about the rows before each long gap, unless the gap may be a pause."""
    groups = part_by_gaps(to_micros(min(moments)), to_micros(max(moments)), _find_gaps(moments))
    said = []
    for (_, last), (first, _) in pairwise(groups):
        count = sum(number for moment, number in moments.items() if to_micros(moment) <= last)
        said.append(
            f"{count:,} of {moments.total():,} rows are dated up to {format_moment(last)}, and the next row is of "
            f"{format_moment(first)}: correct the file unless that is right"
        )
    return said


def _find_gaps(moments: Counter[datetime]) -> tuple[Gap, ...]:
    micros = np.sort(np.array([to_micros(moment) for moment in moments], np.int64))
    return find_gaps(micros, _SHORTEST // MICROSECOND)


def part_far_off(moments: Counter[datetime]) -> tuple[Counter[datetime], list[datetime]]:
    """The moments without those far off, which no fit reads, and the far ones by themselves, ascending."""
    at = sorted(moments.elements())
    micros = np.array([to_micros(moment) for moment in at], np.int64)
    num_before, num_after = count_far_off(micros, _SHORTEST // MICROSECOND, len(at))
    usual = at[num_before : len(at) - num_after]
    return Counter(usual), at[:num_before] + at[len(at) - num_after :]


def describe_far_off(far: Sequence[datetime], usual: Counter[datetime]) -> str:
    times = dict.fromkeys((far[0], far[-1]))
    return (
        f"{'1 row is' if len(far) == 1 else f'{len(far):,} rows are'} dated far from the others "
        f"({' and '.join(_format(moment) for moment in times)}), which are from {_format(min(usual))} to "
        f"{_format(max(usual))}: correct the file unless that is right"
    )


def _format(moment: datetime) -> str:
    return format_moment(to_micros(moment))
