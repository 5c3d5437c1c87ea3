"""Moments that a file splits into two columns: a date, and a time of day or an hour."""

import re
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from cli.file_rows.columns import normalise
from cli.inferring.moment_texts import are_times_of_day, is_time_of_day, looks_like_a_moment
from cli.inferring.names import rank_name
from cli.inferring.profile import Column
from cli.reading.options import Options

# Names of columns of moments, the likeliest first.
TIME_NAMES = (
    "at",
    "timestamp",
    "datetime",
    "date_time",
    "time",
    "date",
    "when",
    "datum",
    "zeit",
    "created_at",
    "created",
    "ts",
)
# Names of columns of a time of day, as `normalise` writes them.
_NAMES = ("hr", "hour", "h", "stunde", "time", "hour_of_day", "zeit", "uhrzeit", "heure", "hora", "ora", "tijd", "tid")
_DATE = re.compile(r"[\d./-]{8,10}", re.ASCII)
_FEWEST_HOURS = 12
_NUM_LOOKED_AT = 1000


def find_split(columns: Sequence[Column], at: str | None, options: Options) -> tuple[str, str] | None:
    """The names of the columns of a date and a time of day, as `at` names them (`--at DATE+TIME`) or as they look.

    None if `at` names one column, or if the column that is most likely to hold the moments has whole ones.
    """
    names = [column.name for column in columns]
    if at is not None:
        parts = [] if at in names else [part.strip() for part in at.split("+")]
        found = [name for part in parts for name in names if name == part or normalise(name) == normalise(part)]
        return (found[0], found[1]) if len(parts) == len(found) == 2 else None
    missing = {"", *options.missing}
    values = {column.name: _first_values(column, missing) for column in columns}
    times = [name for name in names if _may_be_times(name, values[name])]
    moments = [name for name in names if name not in times and _mostly(looks_like_a_moment, values[name])]
    if not moments or not times:
        return None
    best = min(moments, key=lambda name: rank_name(normalise(name), TIME_NAMES))
    return (best, times[0]) if _mostly(_is_date, values[best]) else None


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None


def _mostly(is_one: Callable[[str], bool], texts: Sequence[str]) -> bool:
    """Whether this is true of all texts, or of all but one in a hundred."""
    return bool(texts) and sum(not is_one(text) for text in texts) <= len(texts) // 100


def _may_be_times(name: str, texts: Sequence[str]) -> bool:
    """Whether a column holds times of day; by its name also hours, and times that could be numbers."""
    if are_times_of_day(texts):
        return len(texts) > 1
    if normalise(name) not in _NAMES or len(texts) <= _FEWEST_HOURS:
        return False
    if all(text.isdecimal() and int(text) < 25 for text in texts):
        return True
    return all(map(is_time_of_day, texts))


def _first_values(column: Column, missing: Collection[str]) -> list[str]:
    return list(islice((text for text in column.counts if text not in missing), _NUM_LOOKED_AT))
