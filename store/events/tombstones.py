"""What is left of an event that is erased or retracted: rows that count, and say nothing.

Cells of the error matrix know how many revisions their window held, so rows never go. Their numbers, categories and
labels are blank, and their moments are the starts of the windows that held them. They were never current, so no
training set as of any moment holds them.
"""

from datetime import UTC, datetime

from contracts.clock import MICROSECOND, from_micros, to_micros
from contracts.task import Task

# `date_bin` counts windows from a start, and some versions of PostgreSQL miscount those before it. So the start is an
# early one: the window that holds this day may begin before the calendar does; the next one cannot.
_FIRST = datetime(1, 1, 2, tzinfo=UTC)

# Assignments of an UPDATE of `events` joined with `schemas`, with the parameters of `window_grid`. A fit decodes rows
# before it looks at their moments, so blanks have the widths and types of real values.
BLANK_CONTENT = """
        at = date_bin(:window, events.at, :origin),
        known_at = date_bin(:window, events.known_at, :origin),
        received_at = date_bin(:window, events.received_at, :origin),
        superseded_at = date_bin(:window, events.known_at, :origin),
        numbers = array_fill('NaN'::float8, ARRAY[cardinality(events.numbers)]),
        categories = array_fill(''::text, ARRAY[cardinality(events.categories)]),
        label = CASE schemas.spec -> 'target' ->> 'kind' WHEN 'regression' THEN 'NaN' ELSE '' END"""


def window_grid(task: Task) -> dict[str, object]:
    """The parameters that cut moments to the starts of a task's windows."""
    clock = task.clock
    return {
        "window": clock.window * MICROSECOND,
        "origin": from_micros(clock.window_start(to_micros(_FIRST)) + clock.window),
    }
