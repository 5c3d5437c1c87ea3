"""Durations that people write: ISO 8601 in weeks, or in days and smaller units, each of one length.

Every other notation is refused, with the duration that it probably means (docs/decisions/0019).
"""

import re
from collections.abc import Iterator
from datetime import timedelta

from contracts.clock import format_duration
from contracts.shown import shorten

CENTURY = timedelta(days=36_525)
_SECONDS = r"[0-9]{1,6}(\.[0-9]{1,6})?S"
_TIME = rf"T([0-9]{{1,6}}H([0-9]{{1,6}}M)?({_SECONDS})?|[0-9]{{1,6}}M({_SECONDS})?|{_SECONDS})"
# The form that is written, and that documents promise to accept.
ISO_DURATION = rf"^-?P([0-9]{{1,6}}W|[0-9]{{1,6}}D({_TIME})?|{_TIME})$"
# What is read: larger numbers too, which bounds then refuse.
_READ = re.compile(
    r"([+-]?)P(?=\d|T\d)(?:(\d{1,12})W|(?:(\d{1,12})D)?"
    r"(?:T(?=\d)(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12}(?:\.\d{1,6})?)S)?)?)",
    re.ASCII,
)
# A number with its unit, and a time of day, in any other notation.
_PART = re.compile(r"(\d{1,9}(?:[.,]\d{1,9})?)\s*([A-Za-z]+)", re.ASCII)
_CLOCK_TIME = re.compile(r"(\d{1,3}):(\d\d)(?::(\d\d)(?:\.\d+)?)?", re.ASCII)
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), _MINUTE),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "hourly"), _HOUR),
    **dict.fromkeys(("d", "day", "days", "daily"), _DAY),
    **dict.fromkeys(("w", "wk", "week", "weeks", "weekly"), 7 * _DAY),
    **dict.fromkeys(("mo", "month", "months", "monthly"), 30 * _DAY),
    **dict.fromkeys(("y", "yr", "year", "years", "yearly", "annually"), 365 * _DAY),
}
_UNEQUAL = (30 * _DAY, 365 * _DAY)


def parse_duration(given: object) -> timedelta:
    """The duration of an ISO 8601 text. Raises ValueError with the duration that is probably meant."""
    if isinstance(given, timedelta):
        return given
    if isinstance(given, str) and (found := _READ.fullmatch(given)) is not None:
        sign, *counts = found.groups()
        weeks, days, hours, minutes, seconds = (float(count or 0) for count in counts)
        try:
            length = timedelta(days=days, seconds=seconds, minutes=minutes, hours=hours, weeks=weeks)
        except OverflowError:
            raise ValueError(f"is {given!r}, which is beyond the calendar") from None
        return -length if sign == "-" else length
    shown = repr(shorten(given) if isinstance(given, str) else given)
    parts = list(_guess(given))
    seconds = sum(count * unit for count, unit in parts)
    is_known = bool(parts) and 1 <= seconds <= CENTURY.total_seconds()
    hint = f"write {format_duration(round(seconds) * 1_000_000)}" if is_known else "write one such as P7D or PT6H"
    if any(unit in _UNEQUAL for _, unit in parts):
        raise ValueError(f"is {shown}: months and years differ in length, and all windows have the same: {hint}")
    raise ValueError(f"is {shown}, not an ISO 8601 duration of whole weeks, days, hours or minutes: {hint}")


def _guess(given: object) -> Iterator[tuple[float, int]]:
    """Counts of units, in seconds each, that an unreadable duration seems to have; nothing if it makes no sense."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        yield float(given), 1
    if not isinstance(given, str):
        return
    text = given.strip()
    is_iso = re.match(r"[+-]?[Pp][\dTt]", text) is not None
    date, _, time = text.upper().lstrip("+-P").partition("T") if is_iso else (text, "", "")
    found = [(count, "mo" if is_iso and unit == "M" else unit) for count, unit in _PART.findall(date)]
    found += _PART.findall(time)
    if not found and text.lower().lstrip("@") in _UNITS:
        found = [("1", text.lstrip("@"))]
    for count, unit in found:
        # A capital M is a month in the notations of pandas and others.
        length = _UNITS["month"] if unit == "M" and not is_iso else _UNITS.get(unit.lower())
        if length is not None:
            yield float(count.replace(",", ".")), length
    if not is_iso:
        for hours, minutes, seconds in _CLOCK_TIME.findall(text):
            yield int(hours) * _HOUR + int(minutes) * _MINUTE + int(seconds or 0), 1
