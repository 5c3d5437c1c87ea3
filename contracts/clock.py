"""Moments, windows and model time.

A moment is an aware UTC datetime in Python, and a count of microseconds since the Unix epoch in computations. Integers
are not rounded, have one unit, and are the same in PostgreSQL, NumPy and ONNX.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_PER_MINUTE, _MINUTES_PER_DAY = 60_000_000, 1440
_TWO_DIGITS = tuple(f"{number:02d}" for number in range(60))

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]([01]\d|2[0-3]):\d\d(:\d\d(\.\d{1,6})?)?([Zz]|[+-]\d\d:[0-5]\d)", re.ASCII)
_NAIVE = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?)?", re.ASCII)
_LOST_PLUS = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d(:\d\d(\.\d{1,6})?)? \d\d:\d\d", re.ASCII)


def parse_moment(text: str) -> int:
    """Microseconds since the epoch of an RFC 3339 time with an offset.

    Raises ValueError for anything else, with a message for the sender. Refused are a time without an offset, a bare
    number, 24:00, a leap second, more than six decimals, and an offset whose `+` was lost in a query string.
    """
    if not _RFC3339.fullmatch(text):
        if _LOST_PLUS.fullmatch(text):
            raise ValueError("holds a space where an offset's sign belongs: write + as %2B in a query string")
        if text[10:11] == " " and _RFC3339.fullmatch(text.replace(" ", "T", 1)):
            raise ValueError("has a blank between date and time: write T there, as in 2026-01-31T12:00:00Z")
        if _NAIVE.fullmatch(text):
            raise ValueError("has no offset: an offset such as Z or +02:00 is required")
        raise ValueError("is not an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z")
    try:
        moment = datetime.fromisoformat(text.upper())
        return to_micros(moment if moment.tzinfo is UTC else moment.astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not a moment of the calendar ({error})") from None


def to_micros(moment: datetime) -> int:
    """Exact microseconds since the epoch of an aware datetime."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    """The aware UTC datetime of a count of microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=micros)


def format_moment(micros: int) -> str:
    """RFC 3339 in UTC with a trailing Z; microseconds only if they are not zero. Raises OverflowError."""
    minutes, micros = divmod(micros, _MICROS_PER_MINUTE)
    days, minutes = divmod(minutes, _MINUTES_PER_DAY)
    seconds, micros = divmod(micros, 1_000_000)
    time = f"{_format_time_of_day(minutes)}:{_TWO_DIGITS[seconds]}"
    return f"{_format_date(days)}T{time}{f'.{micros:06d}' if micros else ''}Z"


# A batch of answers holds many moments, but few dates and minutes of the day.
@lru_cache(maxsize=4096)
def _format_date(days: int) -> str:
    """The date this number of days after the epoch."""
    return (EPOCH + timedelta(days)).date().isoformat()


@lru_cache(maxsize=_MINUTES_PER_DAY)
def _format_time_of_day(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def format_duration(micros: int) -> str:
    """ISO 8601 duration of a count of microseconds, such as PT1H30M, with a leading minus if it is negative."""
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    minutes, micros = divmod(micros, _MICROS_PER_MINUTE)
    days, minutes = divmod(minutes, _MINUTES_PER_DAY)
    date = f"{days}D" if days else ""
    time = _format_hours(minutes) + (_format_seconds(micros) if micros else "")
    return f"{sign}P{date}{'T' + time if time else ''}" if date or time else "PT0S"


@lru_cache(maxsize=_MINUTES_PER_DAY)
def _format_hours(minutes: int) -> str:
    """Hours and minutes of a duration, without parts that are zero."""
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")


def _format_seconds(micros: int) -> str:
    seconds, micros = divmod(micros, 1_000_000)
    return f"{seconds}.{micros:06d}".rstrip("0") + "S" if micros else f"{seconds}S"


def count_windows(number: int) -> str:
    """A number of windows in words."""
    return "1 window" if number == 1 else f"{number:,} windows"


@dataclass(frozen=True)
class Clock:
    """How a task divides time: windows `[offset + k·window, offset + (k+1)·window)`, all in microseconds.

    `span` is the fixed unit of model time, so that a recipe's frequencies and rates mean the same at every cutoff.
    """

    window: int
    offset: int
    span: int

    def window_start(self, at: int) -> int:
        """Start of the window that holds `at`; a moment on a boundary belongs to the window that starts there."""
        return at - (at - self.offset) % self.window

    def window_starts(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """`window_start` of many moments `(n,)`."""
        return at - (at - self.offset) % self.window

    def age(self, origin: int, window: int) -> int:
        """Whole windows from the origin to the start of the target window; 0 for the window that starts there."""
        return (window - origin) // self.window

    def model_time(self, at: NDArray[np.int64], cutoff: int) -> NDArray[np.float32]:
        """`u = (at − cutoff) / span`, computed in float64, returned as float32: 0 at the cutoff."""
        return ((at - cutoff).astype(np.float64) / self.span).astype(np.float32)
