"""The error matrix as people read it."""

import math

from contracts.clock import Clock, format_moment, parse_moment
from service.dashboard.heatmap import MAX_ORIGINS, MAX_WINDOWS, NUM_LEVELS, tabulate
from store.error_cells import Mark

DAY = 86_400_000_000
CLOCK = Clock(window=DAY, offset=0, span=26 * DAY)


def mark(origin: int, window: int, loss: float, method: str = "gi", *, is_complete: bool = True) -> Mark:
    return Mark(origin * DAY, window * DAY, method, 50, loss, loss / 2, 50, is_complete, 0)


def test_time_runs_to_the_right_and_downwards_and_gaps_stay_empty() -> None:
    marks = [mark(1, 1, 0.2), mark(1, 2, 0.4), mark(2, 2, 0.3, is_complete=False), mark(2, 2, 0.1, "naive")]
    table = tabulate(marks, "gi", "log_loss", CLOCK)
    assert table is not None
    assert table.windows == (format_moment(DAY), format_moment(2 * DAY))
    (oldest, oldest_cells), (newest, newest_cells) = table.rows
    assert (newest, oldest) == (format_moment(2 * DAY), format_moment(DAY))
    assert newest_cells[0] is None
    assert newest_cells[1] is not None
    assert (newest_cells[1].error, newest_cells[1].age, newest_cells[1].is_complete) == (0.3, 0, False)
    assert [cell and (cell.error, cell.age) for cell in oldest_cells] == [(0.2, 0), (0.4, 1)]
    assert (table.least, table.largest) == (0.2, 0.4)


def test_shades_go_from_the_least_to_the_largest_error() -> None:
    table = tabulate([mark(1, 1 + place, place / 10) for place in range(11)], "gi", "log_loss", CLOCK)
    assert table is not None
    levels = [cell.level for cell in table.rows[0][1] if cell]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (0, NUM_LEVELS - 1)
    same = tabulate([mark(1, 1, 0.5), mark(1, 2, 0.5)], "gi", "log_loss", CLOCK)
    assert same is not None
    assert {cell.level for cell in same.rows[0][1] if cell} == {0}


def test_the_error_is_the_one_that_the_task_is_judged_by_and_finite() -> None:
    table = tabulate([mark(1, 1, 0.5), mark(1, 2, math.inf)], "gi", "mean_absolute_error", CLOCK)
    assert table is not None
    assert [cell and cell.error for cell in table.rows[0][1]] == [0.25]
    assert tabulate([mark(1, 1, math.nan)], "gi", "log_loss", CLOCK) is None
    assert tabulate([], "gi", "log_loss", CLOCK) is None


def test_a_long_history_shows_its_newest_part() -> None:
    marks = [mark(origin, origin + age, 0.5) for origin in range(60) for age in range(4)]
    table = tabulate(marks, "gi", "log_loss", CLOCK)
    assert table is not None
    assert (len(table.rows), len(table.windows)) == (MAX_ORIGINS, MAX_WINDOWS - 1)
    assert table.windows[-1] == format_moment(62 * DAY)


def test_pages_lead_from_the_newest_windows_to_the_oldest() -> None:
    marks = [mark(origin, origin + age, 0.5) for origin in range(60) for age in range(4)]
    shown: list[str] = []
    before = None
    while True:
        table = tabulate(marks, "gi", "log_loss", CLOCK, before)
        assert table is not None
        assert table.is_newest == (before is None)
        shown = [*table.windows, *shown]
        if not table.has_older:
            break
        before = parse_moment(table.windows[0])
    assert shown == [format_moment(window * DAY) for window in range(63)]
    assert tabulate(marks, "gi", "log_loss", CLOCK, before=0) == tabulate(marks, "gi", "log_loss", CLOCK)
