"""Moments, windows and model time obey their laws."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.clock import Clock, format_duration, format_moment, from_micros, parse_moment, to_micros

DAY = 86_400_000_000
MOMENTS = st.integers(to_micros(datetime(1800, 1, 1, tzinfo=UTC)), to_micros(datetime(2200, 1, 1, tzinfo=UTC)))
CLOCKS = st.builds(
    Clock, window=st.integers(1_000_000, 400 * DAY), offset=st.integers(0, 400 * DAY), span=st.just(182 * DAY)
)


@given(CLOCKS, MOMENTS)
def test_every_moment_lies_in_exactly_one_window(clock: Clock, at: int) -> None:
    start = clock.window_start(at)
    assert start <= at < start + clock.window
    assert clock.window_start(start) == start
    assert clock.window_starts(np.array([at, start])).tolist() == [start, start]
    assert clock.window_start(start - 1) == start - clock.window


@given(CLOCKS, MOMENTS, st.integers(0, 50))
def test_the_window_that_begins_at_the_origin_has_age_zero(clock: Clock, at: int, age: int) -> None:
    origin = clock.window_start(at)
    assert clock.age(origin, origin) == 0
    assert clock.age(origin, origin + age * clock.window) == age


@given(MOMENTS)
def test_a_formatted_moment_reads_back_exactly(at: int) -> None:
    assert parse_moment(format_moment(at)) == at
    assert to_micros(from_micros(at)) == at


@given(MOMENTS)
def test_a_moment_is_written_as_the_calendar_writes_it(at: int) -> None:
    assert format_moment(at) == from_micros(at).isoformat().replace("+00:00", "Z")


@given(MOMENTS, st.integers(-14 * 60, 14 * 60))
def test_an_offset_names_the_same_instant(at: int, minutes: int) -> None:
    local = from_micros(at).astimezone(timezone(timedelta(minutes=minutes)))
    assert parse_moment(local.isoformat()) == at


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-01-01T00:00:00", "is required"),
        ("2026-01-01T00:00", "is required"),
        ("2026-01-01", "is required"),
        ("2026-01-01T00:00:00 02:00", "%2B"),
        ("2026-01-01 00:00:00+00:00", "write T there"),
        ("2026-01-01T24:00:00Z", "RFC 3339"),
        ("2026-01-01T23:59:60Z", "calendar"),
        ("2026-02-30T00:00:00Z", "calendar"),
        ("2026-01-01T00:00:00.1234567Z", "RFC 3339"),
        ("2026-01-01T00:00:00+02:00:30", "RFC 3339"),
        ("0001-01-01T00:00:00+14:00", "calendar"),
        ("9999-12-31T23:59:59-14:00", "calendar"),
        ("1767225600", "RFC 3339"),
        ("1767225600000", "RFC 3339"),
        ("-1", "RFC 3339"),
        ("", "RFC 3339"),
        ("2026-01-01T00:00:00Z ", "RFC 3339"),
        ("٢٠٢٦-01-01T00:00:00Z", "RFC 3339"),
    ],
)
def test_what_is_no_moment_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_moment(text)


def test_the_doubled_hour_of_autumn_falls_into_distinct_windows() -> None:
    clock = Clock(window=3600 * 1_000_000, offset=0, span=DAY)
    berlin = ["2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]
    assert len({clock.window_start(parse_moment(text)) for text in berlin}) == 3


def test_model_time_is_zero_at_the_cutoff_and_one_a_span_later() -> None:
    clock = Clock(window=7 * DAY, offset=0, span=182 * DAY)
    cutoff = parse_moment("2026-01-01T00:00:00Z")
    u = clock.model_time(np.array([cutoff, cutoff + 182 * DAY, cutoff - 91 * DAY]), cutoff)
    assert u.dtype == np.float32
    assert u.tolist() == [0.0, 1.0, -0.5]


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, "PT0S"), (1, "PT0.000001S"), (-1, "-PT0.000001S"), (7 * DAY, "P7D"), (DAY + 5_400_000_000, "P1DT1H30M")],
)
def test_durations_are_iso_8601(micros: int, text: str) -> None:
    assert format_duration(micros) == text
