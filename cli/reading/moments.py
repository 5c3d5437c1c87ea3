"""Moments as tools write them: pandas, psql, BigQuery, `%z`, .NET, spreadsheets and people.

Every spelling with one meaning is taken. A refusal says which part is wrong and which option settles it. Digits beyond
microseconds are cut off, as no store keeps them.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from contracts.clock import EPOCH, parse_moment
from contracts.errors import Fault, InvalidInput

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar janvier",
            "feb february februar fevrier février",
            "mar march märz mär mrz mars",
            "apr april avril",
            "may mai",
            "jun june juni juin",
            "jul july juli juillet",
            "aug august août aout",
            "sep sept september septembre",
            "oct october okt oktober octobre",
            "nov november novembre",
            "dec december dez dezember décembre decembre",
        ),
        start=1,
    )
    for name in names.split()
}
_MONTH = r"([^\W\d_]{3,9})\.?"
_WEEKDAY = r"(?:[^\W\d_]{2,10}\.?,? +)?"
_YMD = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?!\d)", re.ASCII)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)(?=$|[Tt _])", re.ASCII)
_COMPACT_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)?", re.ASCII)
_SWAPPABLE = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?!\d)", re.ASCII)
_DAY_MONTH = re.compile(rf"{_WEEKDAY}(\d{{1,2}})(?:st|nd|rd|th)?[-. ]+{_MONTH}[-, ]+(\d{{4}}|\d\d)(?!\d)")
_MONTH_DAY = re.compile(rf"{_WEEKDAY}{_MONTH} +(\d{{1,2}})(?:st|nd|rd|th)?,? +(\d{{4}})(?![\d:])")
_CTIME = re.compile(rf"{_WEEKDAY}{_MONTH} +(\d{{1,2}}) +(\d\d:\d\d:\d\d)( [A-Za-z/_+\-:0-9]+)? (\d{{4}})")
_WEEK = re.compile(r"(\d{4})-?W(\d\d)(?:-?([1-7]))?(?!\d)", re.ASCII)
_MONTH_ONLY = re.compile(r"(\d{4})-(\d\d)", re.ASCII)
_TIME = re.compile(
    r"(\d{1,2})(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?(?: ?([AaPp])\.?[Mm]\.?)?(?![\d:])",
    re.ASCII,
)
# As in much of Europe: 14.30, 14.30.15, 14h30.
_SPOKEN_TIME = re.compile(
    r"(\d{1,2})[.h](\d\d)(?:\.(\d\d)(?:[.,](\d+))?)?(?: ?([AaPp])\.?[Mm]\.?)?(?![\d.:])",
    re.ASCII,
)
_HOUR_WORD = re.compile(r"^ ?(?:uhr|h)(?![^\W_])", re.IGNORECASE)
_TIGHT_TIME = re.compile(r"(\d\d)(\d\d)(\d\d)?(?:[.,](\d+))?(?![\d:])", re.ASCII)
_GAP = re.compile(r"[Tt]|,? +(?:at +)?|_")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII)
_HOURS = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?00)?", re.ASCII)
_MINUS = "\N{MINUS SIGN}"
_UTC = re.compile(r"Z|UTC|GMT|UT|Etc/UTC|Universal|Zulu", re.IGNORECASE)
# As Go writes it: the offset, its abbreviation or the offset again, and perhaps a reading of another clock.
_NAMED_OFFSET = re.compile(r"([+-]\d{4}) (?:[A-Za-z]{2,5}|[+-]\d{2,4})(?: m=[+-][\d.]+)?", re.ASCII)
_AREA = re.compile(r"\[?([A-Za-z]+(?:/[A-Za-z0-9_+\-]+)+)\]?")
_COMMENT = re.compile(r" ?(\[[^\]]*\]|\([^)]*\))$")
_EPOCHS = {10: 1, 13: 1000, 16: 1_000_000, 19: 1_000_000_000}
_SHORT = re.compile(
    r"(\d{1,2})([-/.])(\d{1,2})\2\d\d(?:(,? )\d{1,2}([:.])\d\d(\5\d\d)?(?:( ?)([AaPp][Mm]))?)?",
    re.ASCII,
)
_YEARS = ("%y", "%Y", "%G", "%c", "%x")
_EXACT = re.compile(r"\d{4}-\d\d-\d\dT(?!24)\d\d:\d\d:\d\dZ", re.ASCII)


class MomentReader:
    """Reads moments by one set of options: a zone for those without an offset, an order of day and month, a format."""

    def __init__(self, timezone: str | None = None, day_first: bool | None = None, form: str | None = None) -> None:
        """Raises InvalidInput if the zone is unknown, or if the format cannot tell moments."""
        self._zone = None if timezone is None else find_zone(timezone)
        self._day_first = day_first
        self._form = None if form is None else _check_form(form)
        self._read = lru_cache(maxsize=65_536)(self._read_spelled)  # many rows share a moment

    def __call__(self, text: str) -> str:
        """The moment in RFC 3339. Raises ValueError, which names the part that is wrong."""
        if _EXACT.fullmatch(text):
            return text
        return self._read(text)

    def _read_spelled(self, text: str) -> str:
        if self._form is None:
            try:
                parse_moment(text)
            except ValueError:
                pass
            else:
                return text
        moment = self._parse(text.strip())
        try:
            return _format(moment.astimezone(UTC))
        except (ValueError, OverflowError):
            raise ValueError(f"{text!r} is outside of the years 1 to 9999") from None

    def _parse(self, text: str) -> datetime:
        if self._form is not None:
            try:
                found = datetime.strptime(text, self._form)  # noqa: DTZ007 the zone is added below
            except ValueError:
                raise ValueError(f"{text!r} is not of the form {self._form} (--at-format)") from None
            return found if found.tzinfo else self._localise(found, "", text)
        if text[:1].isdigit() and (epoch := _read_epoch(text)) is not None:
            return epoch
        day, rest = self._read_date(text)
        naive, rest = _read_time(day, rest, text)
        return self._add_zone(naive, rest, text)

    def _read_date(self, text: str) -> tuple[date, str]:  # noqa: PLR0911 one for each spelling
        """The date, and the text behind it."""
        if found := _YMD.match(text):
            return _date(found[1], found[3], found[4], text), text[found.end() :]
        if found := _COMPACT_TIME.fullmatch(text):
            rest = f" {found[4]}:{found[5]}" + (f":{found[6]}" if found[6] else "")
            return _date(found[1], found[2], found[3], text), rest
        if found := _COMPACT.match(text):
            return _date(found[1], found[2], found[3], text), text[found.end() :]
        if found := _SWAPPABLE.match(text):
            return self._read_swappable(found, text), text[found.end() :]
        if found := _CTIME.match(text):
            day = _date(found[5], _month(found[1], text), found[2], text)
            return day, f" {found[3]}{found[4] or ''}{text[found.end() :]}"
        if found := _DAY_MONTH.match(text):
            return _date(_century(found[3], text), _month(found[2], text), found[1], text), text[found.end() :]
        if found := _MONTH_DAY.match(text):
            return _date(found[3], _month(found[1], text), found[2], text), text[found.end() :]
        if found := _WEEK.match(text):
            try:
                day = date.fromisocalendar(int(found[1]), int(found[2]), int(found[3] or 1))
            except ValueError:
                raise ValueError(f"{text!r} names week {found[2]}, which the year does not have") from None
            return day, text[found.end() :]
        if found := _MONTH_ONLY.fullmatch(text):
            return _date(found[1], found[2], "1", text), ""
        raise ValueError(_why_no_date(text))

    def _read_swappable(self, found: re.Match[str], text: str) -> date:
        first, second, year = found[1], found[3], _century(found[4], text, self._day_first)
        day_first = True if found[2] == "." else self._day_first
        if day_first is None:
            raise ValueError(f"{text!r} may name the day or the month first: say --dayfirst or --monthfirst")
        day, month = (first, second) if day_first else (second, first)
        if int(month) > 12 >= int(day):
            other = "--monthfirst" if day_first else "--dayfirst"
            raise ValueError(
                f"{text!r} names month {month} if the {'day' if day_first else 'month'} is first: {other}?"
            )
        return _date(year, month, day, text)

    def _add_zone(self, naive: datetime, rest: str, text: str) -> datetime:
        rest = rest.strip()
        comment = _COMMENT.search(rest)
        if comment is not None and comment.start() > 0:
            rest = rest[: comment.start()]
        if not rest:
            return self._localise(naive, "", text)
        if _UTC.fullmatch(rest):
            return naive.replace(tzinfo=UTC)
        if found := _NAMED_OFFSET.fullmatch(rest):
            rest = found[1]
        if found := _OFFSET.fullmatch(rest.replace(_MINUS, "-")):
            hours, minutes, seconds = int(found[2]), int(found[3] or 0), int(found[4] or 0)
            if hours > 23 or minutes > 59 or seconds > 59:
                raise ValueError(f"{text!r} has the offset {rest}, which no clock has")
            offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
            return naive.replace(tzinfo=timezone(-offset if found[1] == "-" else offset))
        if found := _AREA.fullmatch(rest):
            return _localise(naive, find_zone(found[1], text), "", text)
        if re.fullmatch(r"[A-Za-z]{2,5}", rest):
            return self._localise(naive, rest, text)
        raise ValueError(f"{text!r} ends in {rest!r}, which is no offset from UTC such as Z or +02:00")

    def _localise(self, naive: datetime, abbreviation: str, text: str) -> datetime:
        if self._zone is None:
            if abbreviation:
                raise ValueError(
                    f"{text!r} names its zone {abbreviation}, which has several meanings: say --timezone Europe/Berlin"
                )
            raise ValueError("has no offset: an offset such as Z or +02:00 is required, or --timezone Europe/Berlin")
        return _localise(naive, self._zone, abbreviation, text)


def find_zone(name: str, text: str | None = None) -> ZoneInfo:
    """A zone of the IANA database. Raises InvalidInput, or ValueError if it stands in the moment `text`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if text is not None:
            raise ValueError(f"{text!r} names the zone {name}, which is unknown") from None
        meant = _find_meant(name.strip())
        remedy = f": write {meant}" if meant else "; usual ones are UTC, Europe/Berlin and America/New_York"
        reason = f"{name!r} is no time zone that this machine knows{remedy}"
        raise InvalidInput([Fault("--timezone", reason)]) from None


def _find_meant(name: str) -> str | None:
    """The zone of a city, of a name in other letters, or of whole hours from UTC, whose sign those zones turn round."""
    if (found := _HOURS.fullmatch(name)) is not None and (hours := int(found[2])) <= (12 if found[1] == "-" else 14):
        return f"Etc/GMT{'+' if found[1] == '-' else '-'}{hours}" if hours else "UTC"
    wanted = name.replace(" ", "_").casefold()
    zones = sorted(available_timezones())
    return next((zone for zone in zones if zone.casefold() == wanted), None) or next(
        (zone for zone in zones if zone.casefold().rpartition("/")[2] == wanted), None
    )


def spell_form(text: str, day_first: bool | None = None) -> str | None:
    """The format of a date whose year has two digits, in this order; None if the order is open, or for other texts."""
    found = _SHORT.fullmatch(text)
    if found is None:
        return None
    if found[2] == ".":
        day_first = True
    elif day_first is None:
        day_first = find_order([text])
    if day_first is None:
        return None
    form = f"%d{found[2]}%m{found[2]}%y" if day_first else f"%m{found[2]}%d{found[2]}%y"
    if found[4] is None:
        return form
    mark = found[5]
    seconds = f"{mark}%S" if found[6] else ""
    time = f"%I{mark}%M{seconds}{found[7]}%p" if found[8] else f"%H{mark}%M{seconds}"
    return f"{form}{found[4]}{time}"


def find_order(cells: Iterable[str]) -> bool | None:
    """Whether dates such as 31/12/2026 put the day first, by some cells; None if they do not show it."""
    firsts, seconds = 0, 0
    for cell in cells:
        found = _SWAPPABLE.match(cell.strip())
        if found is not None and found[2] != ".":
            firsts = max(firsts, int(found[1]))
            seconds = max(seconds, int(found[3]))
    if (firsts > 12) == (seconds > 12):
        return None
    return firsts > 12


def has_dots(text: str) -> bool:
    """Whether this is a date such as 31.12.2026, whose day is first in any case."""
    found = _SWAPPABLE.match(text.strip())
    return found is not None and found[2] == "."


def _localise(naive: datetime, zone: ZoneInfo, abbreviation: str, text: str) -> datetime:
    """A local time as a moment. Raises ValueError for one that a change of clocks skips or repeats."""
    early, late = naive.replace(tzinfo=zone), naive.replace(tzinfo=zone, fold=1)
    choices = [early] if early.utcoffset() == late.utcoffset() else [early, late]
    if abbreviation:
        named = [moment for moment in choices if moment.tzname() == abbreviation]
        if not named:
            raise ValueError(f"{text!r} names its zone {abbreviation}, which {zone.key} does not use at that time")
        return named[0]
    if len(choices) == 1:
        return early
    if early.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != naive:
        raise ValueError(f"{text!r} does not exist in {zone.key}: the clocks were set forward over it")
    first, second = (moment.isoformat() for moment in choices)
    raise ValueError(f"{text!r} happened twice in {zone.key}, as the clocks were set back: write {first} or {second}")


def _read_epoch(text: str) -> datetime | None:
    """Seconds or smaller units since 1970, by the number of digits; None if the text is no such number."""
    whole, _, fraction = text.partition(".")
    if not whole.isdecimal() or not whole.isascii() or (fraction and not fraction.isdecimal()):
        return None
    unit = _EPOCHS.get(len(whole))
    if unit is None:
        return None
    parts = 10 ** len(fraction[:6])
    micros = int(whole + fraction[:6]) * 1_000_000 // (unit * parts)
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise ValueError(f"{text!r} is outside of the years 1 to 9999") from None


def _read_time(day: date, rest: str, text: str) -> tuple[datetime, str]:
    """The date with its time of day, midnight if there is none, and the text behind it."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 the zone is added later
    gap = _GAP.match(rest)
    if gap is None or not rest[gap.end() : gap.end() + 1].isdigit():
        if rest[:1] in ("T", "t"):
            raise ValueError(f"{text!r} has no time of day behind its T")
        return midnight, rest
    rest = rest[gap.end() :]
    found = _SPOKEN_TIME.match(rest) or _TIME.match(rest) or _TIGHT_TIME.match(rest)
    if found is None:
        raise ValueError(f"{text!r} has {rest!r} where a time of day such as 14:30 belongs")
    hour, minute, second = int(found[1]), int(found[2] or 0), int(found[3] or 0)
    micros = int(f"{found[4]:0<6}"[:6]) if found[4] else 0
    half = found[5] if found.re is not _TIGHT_TIME else None
    if half is not None:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text!r} has the hour {hour} with {half}M")
        hour = hour % 12 + (12 if half in "Pp" else 0)
    if minute > 59 or second > 59 or hour > 24 or (hour == 24 and (minute or second or micros)):
        part = f"hour {hour}" if hour > 23 else f"minute {minute}" if minute > 59 else f"second {second}"
        raise ValueError(f"{text!r} has the {part}, which no clock shows")
    try:
        length = timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micros)
        return midnight + length, _HOUR_WORD.sub("", rest[found.end() :], count=1)
    except OverflowError:
        raise ValueError(f"{text!r} is outside of the years 1 to 9999") from None


def _date(year: str, month: str | int, day: str, text: str) -> date:
    if not 1 <= int(month) <= 12:
        raise ValueError(f"{text!r} has the month {month}")
    if int(year) < 1:
        raise ValueError(f"{text!r} has the year 0")
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        raise ValueError(f"{text!r} has the day {day}, which its month does not have") from None


def _month(name: str, text: str) -> int:
    found = _MONTHS.get(name.casefold())
    if found is None:
        raise ValueError(f"{text!r} has {name!r} where the name of a month belongs")
    return found


def _century(year: str, text: str, day_first: bool | None = None) -> str:
    if len(year) == 2:
        known = spell_form(text, day_first)
        forms = [known] if known else [form for first in (True, False) if (form := spell_form(text, first))]
        such_as = " or ".join(map(repr, forms or ["%d.%m.%y", "%m/%d/%y"]))
        raise ValueError(f"{text!r} has a year of two digits: give its form, such as --at-format {such_as}")
    return year


def _check_form(form: str) -> str:
    """The format of moments. Raises InvalidInput for one by which every moment, or half of each day, is misread."""
    try:
        datetime.strptime("", form)  # noqa: DTZ007 only the format matters
    except ValueError as error:
        if "directive" in str(error) or "stray" in str(error):
            raise InvalidInput([Fault("--at-format", f"{form!r} is no format: {error}")]) from None
    if not any(year in form for year in _YEARS):
        reason = f"{form!r} names no year: write %Y for one of four digits, %y for one of two, as in '%d.%m.%Y %H:%M'"
        raise InvalidInput([Fault("--at-format", reason)])
    if "%p" in form and "%I" not in form:
        reason = f"{form!r} has AM or PM, %p, without the hour that it belongs to: write %I for %H"
        raise InvalidInput([Fault("--at-format", reason)])
    return form


def _why_no_date(text: str) -> str:  # noqa: PLR0911 one for each kind of text
    if not text:
        return "is empty"
    if text.lstrip("+-").casefold() in ("infinity", "inf"):
        return f"{text!r} is no moment of the calendar"
    if re.fullmatch(r"\d{5}([.,]\d+)?", text):
        return f"{text!r} looks like a spreadsheet's number of days: format the column as a date before saving it"
    if re.fullmatch(r"-?\d+([.,]\d+)?", text):
        return f"{text!r} is a bare number: seconds since 1970 have 10 digits, milliseconds 13"
    if re.fullmatch(r"[+-]?\d+([.,]\d+)?[eE][+-]?\d+", text):
        return f"{text!r} is a number in scientific notation, which lacks digits: save the column with all of them"
    if re.match(r"[+-]?\d{5,}-", text) or text.startswith("-"):
        return f"{text!r} is outside of the years 1 to 9999"
    return f"{text!r} is no date and time, such as 2026-01-31T12:00:00Z; give another form with --at-format"


def _format(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
