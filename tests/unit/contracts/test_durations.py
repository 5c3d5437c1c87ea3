"""A duration has one length: every notation that has none is refused, with the duration that it probably means."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.clock import MICROSECOND, format_duration
from contracts.durations import parse_duration
from contracts.task import Task


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("P7D", timedelta(days=7)),
        ("P2W", timedelta(weeks=2)),
        ("PT6H", timedelta(hours=6)),
        ("P1DT12H30M", timedelta(days=1, hours=12, minutes=30)),
        ("PT0.5S", timedelta(seconds=0.5)),
        ("-PT1H", -timedelta(hours=1)),
        ("PT604800S", timedelta(days=7)),
        ("PT0S", timedelta(0)),
    ],
)
def test_a_duration_of_one_length_is_read(written: str, length: timedelta) -> None:
    assert parse_duration(written) == length


@given(st.timedeltas(timedelta(days=-36_525), timedelta(days=36_525)))
def test_a_duration_is_read_as_it_is_written(length: timedelta) -> None:
    assert parse_duration(format_duration(length // MICROSECOND)) == length


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("P1M", "P30D"),
        ("P1Y", "P365D"),
        ("P1Y2M10D", "P435D"),
        ("P3MT12H", "P90DT12H"),
        ("1 month", "P30D"),
        ("monthly", "P30D"),
        ("1M", "P30D"),
    ],
)
def test_months_and_years_are_refused_with_their_usual_days(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"months and years differ in length.*: write {remedy}$"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("P1.5D", "P1DT12H"),
        ("P0,5D", "PT12H"),
        ("PT1.5H", "PT1H30M"),
        ("P1W2D", "P9D"),
        ("P1DT", "P1D"),
        ("7d", "P7D"),
        ("1 day", "P1D"),
        ("7 days", "P7D"),
        ("1 week, 2 days", "P9D"),
        ("24h", "P1D"),
        ("1h30m", "PT1H30M"),
        ("30min", "PT30M"),
        ("weekly", "P7D"),
        ("@daily", "P1D"),
        ("p7d", "P7D"),
        ("24:00:00", "P1D"),
        ("7 days, 0:00:00", "P7D"),
        (604_800, "P7D"),
        ("P7", "one such as P7D or PT6H"),
        ("P", "one such as P7D or PT6H"),
        ("PT", "one such as P7D or PT6H"),
        ("", "one such as P7D or PT6H"),
        ("soon", "one such as P7D or PT6H"),
        (True, "one such as P7D or PT6H"),
        ({}, "one such as P7D or PT6H"),
    ],
)
def test_another_notation_is_refused_with_the_duration_that_it_means(written: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"not an ISO 8601 duration.*: write {remedy}$"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["-P7D", "P0D", "PT0S", "PT0.5S"])
def test_a_window_of_no_length_is_refused(written: str) -> None:
    spec = {
        "name": "flights",
        "window": written,
        "features": [{"name": "distance", "kind": "number"}],
        "target": {"name": "late", "kind": "classification"},
    }
    with pytest.raises(ValidationError, match="at least one second"):
        Task.model_validate(spec)
