"""Moments in the spellings of many tools: one meaning is taken, and two are refused with the part that is wrong."""

import re

import pytest

from cli.reading.moments import MomentReader, find_order, spell_form
from contracts.errors import InvalidInput

NOON = "2026-11-01T12:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-01 12:00:00+00:00",  # pandas
        "2026-11-01 12:00:00+00",  # psql
        "2026-11-01 12:00:00 UTC",  # BigQuery
        "2026-11-01T13:00:00+0100",  # %z
        "2026-11-01T12:00:00.0000000Z",  # .NET
        "2026-11-01T12:00:00.000000000Z",  # nanoseconds
        "2026-11-01 12:00:00,000 +0000",
        "2026-11-01 12:00Z",
        "2026-11-01T12Z",
        "20261101T120000Z",
        "2026/11/01 12:00 GMT",
        "2026-11-01T13:00+01:00[Europe/Berlin]",  # Java
        "2026-11-01 13:00:00 Europe/Berlin",
        "Sun, 01 Nov 2026 12:00:00 GMT",  # HTTP
        "Sun Nov  1 12:00:00 UTC 2026",  # date
        "Sun Nov 01 2026 13:00:00 GMT+0100 (Central European Standard Time)",  # JavaScript
        "1 November 2026 12:00 UTC",
        "Nov 1, 2026 12:00 PM UTC",
        "1793534400",
        "1793534400.0",
        "1793534400000",
        "1793534400000000",
        "1793534400000000000",
        " 2026-11-01T12:00:00Z ",
    ],
)
def test_a_spelling_with_one_meaning_is_taken(text: str) -> None:
    assert MomentReader()(text) == NOON


@pytest.mark.parametrize("text", [NOON, "2026-11-01T13:00:00+01:00", "2026-11-01t12:00:00.5z"])
def test_what_the_api_takes_is_sent_unchanged(text: str) -> None:
    assert MomentReader()(text) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("2026-11-01T12:00:00", "has no offset: an offset such as Z or .* or --timezone"),
        ("2026-11-01", "has no offset"),
        ("2026-13-01 12:00:00Z", "the month 13"),
        ("2026-02-30 12:00:00Z", "the day 30"),
        ("2026-11-01 25:00 UTC", "the hour 25"),
        ("2026-11-01 12:61 UTC", "the minute 61"),
        ("2026-12-31 23:59:60 UTC", "the second 60"),
        ("2026-11-01 12:00 CET", "names its zone CET"),
        ("2026-11-01 12:00 Mars/Olympus", "the zone Mars/Olympus, which is unknown"),
        ("2026-11-01 12:00 +25:00", "the offset"),
        ("01/02/2026 12:00 UTC", "--dayfirst or --monthfirst"),
        ("01.02.26", "two digits"),
        ("45000.5", "spreadsheet"),
        ("2026", "bare number"),
        ("12000-01-01", "years 1 to 9999"),
        ("0000-01-01 00:00:00Z", "the year 0"),
        ("infinity", "no moment"),
        ("2026-11-01T", "no time of day"),
        ("2026-11-01 about noon", "ends in 'about noon'"),
        ("yesterday", "no date"),
        ("", "empty"),
    ],
)
def test_a_refusal_names_the_part_that_is_wrong(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        MomentReader()(text)


def test_a_zone_is_given_to_moments_without_an_offset_only() -> None:
    read = MomentReader("Europe/Berlin")
    assert read("2026-07-01 12:00") == "2026-07-01T10:00:00Z"
    assert read("01.07.2026 12:00:00") == "2026-07-01T10:00:00Z"
    assert read("2026-01-01") == "2025-12-31T23:00:00Z"
    assert read("2026-07-01 12:00+00") == "2026-07-01T12:00:00Z"
    assert read("2026-01-31 24:00") == "2026-01-31T23:00:00Z"


def test_an_hour_that_clocks_skip_is_refused_and_one_that_they_repeat_names_both_moments() -> None:
    read = MomentReader("Europe/Berlin")
    with pytest.raises(ValueError, match="does not exist in Europe/Berlin"):
        read("2026-03-29 02:30")
    with pytest.raises(ValueError, match=r"twice in Europe/Berlin.*2026-10-25T02:30:00\+02:00 or .*\+01:00"):
        read("2026-10-25 02:30")
    assert read("2026-10-25 02:30 CEST") == "2026-10-25T00:30:00Z"
    assert read("2026-10-25 02:30 CET") == "2026-10-25T01:30:00Z"


def test_an_unknown_zone_is_refused_by_its_option() -> None:
    with pytest.raises(InvalidInput, match="--timezone: 'Berlin' is no time zone"):
        MomentReader("Berlin")


def test_day_or_month_is_first_as_the_option_says() -> None:
    assert MomentReader("UTC", day_first=True)("01/02/2026") == "2026-02-01T00:00:00Z"
    assert MomentReader("UTC", day_first=False)("01/02/2026 3:04 PM") == "2026-01-02T15:04:00Z"
    with pytest.raises(ValueError, match="month 13"):
        MomentReader("UTC", day_first=True)("01/13/2026")


def test_the_order_of_day_and_month_is_found_if_a_date_shows_it() -> None:
    assert find_order(["01/02/2026", "31/12/2026"]) is True
    assert find_order(["01/02/2026", "12/31/2026"]) is False
    assert find_order(["01/02/2026"]) is None
    assert find_order(["13/01/2026", "01/13/2026"]) is None


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("europe/berlin", "Europe/Berlin"),
        ("America/new york", "America/New_York"),
        ("+01:00", "Etc/GMT-1"),
        ("UTC-5", "Etc/GMT+5"),
        ("+0000", "UTC"),
    ],
)
def test_a_zone_in_other_letters_or_as_an_offset_is_told_its_name(name: str, zone: str) -> None:
    with pytest.raises(InvalidInput, match=f"is no time zone that this machine knows: write {re.escape(zone)}$"):
        MomentReader(name)
    assert MomentReader(zone)("2026-01-31 12:00").startswith("2026-01-31T")


def test_hours_from_utc_are_told_the_zone_with_the_same_clock() -> None:
    assert MomentReader("Etc/GMT-1")("2026-07-31 12:00") == "2026-07-31T11:00:00Z"


def test_a_format_reads_what_no_rule_can() -> None:
    assert MomentReader("UTC", form="%d.%m.%y %H.%M")("01.02.26 03.04") == "2026-02-01T03:04:00Z"
    with pytest.raises(ValueError, match="not of the form"):
        MomentReader("UTC", form="%d.%m.%y")("2026-01-01")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("new york", "write America/New_York"), ("berlin", "write Europe/Berlin"), ("Nowhere", "usual ones are UTC")],
)
def test_an_unknown_zone_is_told_the_one_of_that_city(name: str, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=remedy):
        MomentReader(name)


@pytest.mark.parametrize(
    ("text", "order", "form"),
    [
        ("31.12.24 14:05", None, "%d.%m.%y %H:%M"),
        ("12/31/24 2:05 PM", None, "%m/%d/%y %I:%M %p"),
        ("31/12/24, 14:05:09", None, "%d/%m/%y, %H:%M:%S"),
        ("01/02/24 2:05pm", False, "%m/%d/%y %I:%M%p"),
        ("01-02-24", True, "%d-%m-%y"),
        ("01/02/24", None, None),
        ("31.12.2024", None, None),
    ],
)
def test_the_form_of_a_date_with_a_year_of_two_digits_is_spelt_out(
    text: str, order: bool | None, form: str | None
) -> None:
    assert spell_form(text, order) == form
    if form is not None:
        assert MomentReader("UTC", form=form)(text).startswith("2024-")


def test_a_year_of_two_digits_is_told_its_form_with_the_time_of_day() -> None:
    with pytest.raises(ValueError, match=r"such as --at-format '%m/%d/%y %I:%M %p'$"):
        MomentReader("UTC")("12/31/24 2:05 PM")
    with pytest.raises(ValueError, match=r"such as --at-format '%d/%m/%y %H:%M' or '%m/%d/%y %H:%M'$"):
        MomentReader("UTC")("01/02/24 14:05")
    with pytest.raises(ValueError, match=r"such as --at-format '%m/%d/%y %H:%M'$"):
        MomentReader("UTC", day_first=False)("01/02/24 14:05")


@pytest.mark.parametrize(
    ("form", "remedy"),
    [
        ("%m/%d/%y %H:%M %p", "write %I for %H"),
        ("%d.%m. %H:%M", "names no year: write %Y"),
        ("yyyy-MM-dd", "names no year: write %Y"),
        ("%Y-%m-%d %k", "is no format: 'k' is a bad directive"),
    ],
)
def test_a_format_that_would_misread_moments_is_refused(form: str, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=remedy):
        MomentReader("UTC", form=form)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31 12:00:00 +0000 UTC", "2026-01-31T12:00:00Z"),
        ("2026-01-31 12:00:00.123456789 +0100 CET", "2026-01-31T11:00:00.123456Z"),
        ("2026-01-31 12:00:00 -0300 -03 m=+0.000012", "2026-01-31T15:00:00Z"),
        ("2026-01-31 12:00:00 +0000 +0000", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00\N{MINUS SIGN}05:00", "2026-01-31T17:00:00Z"),
        ("2026-01-31T24:00:00Z", "2026-02-01T00:00:00Z"),
    ],
)
def test_moments_as_go_and_typesetters_write_them_are_read(text: str, moment: str) -> None:
    assert MomentReader()(text) == moment
