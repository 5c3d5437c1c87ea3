"""One oracle for all entrances over HTTP: what one of them takes all take, as the same value; what one refuses, all do.

The oracles here are written apart from the service's own laws. That the rules of rows agree with each other is
`tests/unit/service/validation/test_rules.py`.
"""

import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from sqlalchemy import Engine

from tests.integration.entrances import AT, JSON, NDJSON, House, Verdict, hold, open_house, taken, unhurried, verdicts


@pytest.fixture
def house(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[House]:
    with open_house(database_url, engine, tmp_path) as house:
        yield house


def number_of(literal: str) -> float | None:
    """The oracle of numbers: RFC 8259, finite as float64, and an integer only where that holds it exactly."""
    if not re.fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", literal):
        return None
    value = float(literal)
    if math.isinf(value) or (literal.lstrip("-").isdigit() and Decimal(literal) != Decimal(value)):
        return None
    if literal.lstrip("-").isdigit() and abs(value) > 2**53:
        return None
    return value


STRANGE_NUMBERS = [
    "1_0",
    "+1",
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "-Infinity",
    "nan",
    "0x10",
    "01",
    "1.",
    ".5",
    "-",
    "1e",
    "١",
    "-0",
    "9007199254740993",
    "9007199254740992",
    "-9007199254740993",
    "1e-400",
    "1E+2",
    "true",
]
strange_numbers = st.sampled_from([*STRANGE_NUMBERS, "1" * 4300, "1" * 4301])
numbers = st.one_of(
    strange_numbers,
    st.floats().map(json.dumps),
    st.integers(-(2**54), 2**54).map(str),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?\Z"),
    st.text("0123456789+-_.eE", min_size=1, max_size=8),
)


def test_a_number_has_one_verdict_and_one_value_at_every_entrance(house: House) -> None:
    @unhurried
    @given(numbers)
    def law(literal: str) -> None:
        expected = number_of(literal)
        found, stored, _ = verdicts(house, distance=literal)
        hold(found, stored, expected is not None, "features.distance")
        for row in stored:
            assert row is None or row.numbers[0] == expected

    law()


def text_fits(text: str) -> bool:
    """The oracle of categories and ids: 1 to 256 characters, no control character, no half of a pair."""
    return 1 <= len(text) <= 256 and not any(
        ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F or 0xD800 <= ord(c) <= 0xDFFF for c in text
    )


texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=12),
    st.text("a", min_size=250, max_size=260),
    st.sampled_from(
        ["\ufeff", "\ufeffUA", "\x00", "a\x00b", "\ud800", "%", "%00", "%zz", "a+b", " ", "a&b=c", "\u2028"]
    ),
    st.sampled_from(
        ["\r\nERROR fake", "\x1b[31mred", "\x7f", "\x9f", "null", "NaN", "1_0", "'; DROP TABLE events; --"]
    ),
)


def test_a_category_has_one_verdict_and_one_value_at_every_entrance(house: House) -> None:
    @unhurried
    @given(texts, st.booleans())
    def law(text: str, escaped: bool) -> None:
        # Two halves side by side are a whole character to JSON's escapes, and to nothing else.
        assume(not re.search("[\ud800-\udbff][\udc00-\udfff]", text))
        found, stored, _ = verdicts(house, carrier=json.dumps(text, ensure_ascii=escaped))
        hold(found, stored, text_fits(text), "features.carrier")
        for row in stored:
            assert row is None or row.categories == [text]

    law()


def moment_of(text: str) -> datetime | None:
    """The oracle of moments: RFC 3339 with an offset, seconds left out at most, and a date in UTC."""
    parts = re.fullmatch(
        r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(?:([Zz])|([-+])(\d\d):(\d\d))", text, re.A
    )
    if parts is None:
        return None
    year, month, day, hour, minute = (int(parts[place]) for place in range(1, 6))
    try:
        offset = timedelta(hours=int(parts[10] or 0), minutes=int(parts[11] or 0))
        if int(parts[11] or 0) > 59:
            return None
        zone = timezone(-offset if parts[9] == "-" else offset)
        micros = int((parts[7] or "").ljust(6, "0"))
        return datetime(year, month, day, hour, minute, int(parts[6] or 0), micros, zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


FIRST, LAST, LATE = (datetime.fromisoformat(day) for day in ("2025-11-01", "2026-03-01", "9998-01-01"))
clocks = st.datetimes(FIRST, LAST)
written_moments = st.one_of(
    clocks.flatmap(lambda at: st.timezones().map(lambda zone: at.replace(tzinfo=zone).isoformat())),
    st.datetimes(max_value=LATE, timezones=st.timezones()).map(lambda at: at.isoformat()),
    clocks.map(lambda at: at.isoformat()),
    st.builds(
        "{}T{}:{}{}{}".format,
        st.sampled_from(["2026-02-01", "2026-02-30", "2026-1-1", "0000-01-01", "0001-01-01", "20260201"]),
        st.sampled_from(["00", "23", "24", "7"]),
        st.sampled_from(["00", "59", "60", "59:60", "59:59.1234567", "00:00.5", "00:00,5"]),
        st.sampled_from(["", " "]),
        st.sampled_from(["Z", "z", "+02:00", "-23:59", "+24:00", "+02:60", "+0200", "+02", "+02:00:30", "", " 02:00"]),
    ),
    st.text("0123456789-T:+Zz. _", max_size=30),
    st.sampled_from(
        ["1767225600", "1767225600000", "-1", "1.5e9", "now", "", "2026-02-01", "２０２６-02-01T00:00:00Z"]
    ),
)


def test_a_moment_has_one_verdict_and_one_instant_at_every_entrance(house: House) -> None:
    @unhurried
    @given(written_moments)
    @example("2026-01-28T23:59:59.999999-00:00")
    def law(text: str) -> None:
        expected = moment_of(text)
        found, stored, answered = verdicts(house, at=json.dumps(text))
        hold(found, stored, expected is not None, "at")
        for row in stored:
            assert row is None or row.at == expected
        if answered.status_code == 200:
            assert datetime.fromisoformat(answered.json()["at"]) == expected

    law()


@pytest.mark.parametrize(
    "literal", ["1767225600", "1767225600000", "1767225600000000", "-1", "1.5e9", "NaN", "true", "[]"]
)
def test_a_moment_that_is_no_string_is_refused_by_every_body(house: House, literal: str) -> None:
    for method, url, body in (
        ("POST", "/predict?task=flights", '{"rows": [{"at": %s, "features": {"distance": 1, "carrier": "UA"}}]}'),
        ("POST", "/predict?task=flights", '{"features": {"distance": 1, "carrier": "UA"}, "at": [%s]}'),
        ("POST", "/events?task=flights", '{"event_id": "e", "at": %s, "label": "late", "features": {}}'),
        ("PUT", "/events/e?task=flights", '{"at": %s, "label": "late", "features": {}}'),
        ("POST", "/tasks/flights/cycles", '{"as_of": %s}'),
        ("POST", "/tasks/flights/override", '{"valid_until": %s, "reason": "r"}'),
    ):
        answer = house.ask(method, url, (body % literal).encode())
        assert answer.status_code == 422
        assert {"at", "rows[0].at", "at[0]", "as_of", "valid_until"} & {
            fault["field"] for fault in answer.json()["errors"]
        }


def label_verdicts(house: House, task: str, literal: str) -> tuple[list[Verdict], list[Any]]:
    """Verdicts on a label of an event alone, in an array and as a line; and what was stored."""
    found, stored = [], []
    for shape, headers in (("{}", JSON), ("[{}]", JSON), ("{}\n", NDJSON)):
        event_id = f"l{next(house.ids)}"
        event = f'{{"event_id": "{event_id}", "at": {AT}, "features": {{"distance": 1, "carrier": "UA"}}, '
        body = shape.replace("{}", f'{event}"label": {literal}}}').encode("utf-8", "surrogatepass")
        found.append(taken(house.ask("POST", f"/events?task={task}", body, headers)))
        stored.append(house.stored(event_id))
    return found, stored


def test_a_class_has_one_verdict_at_every_entrance_of_events_and_in_a_correction(house: House) -> None:
    @unhurried
    @given(st.one_of(texts, st.sampled_from(["late", "on_time", "Late", "late "])), st.booleans())
    def law(text: str, escaped: bool) -> None:
        literal = json.dumps(text, ensure_ascii=escaped)
        found, stored = label_verdicts(house, "flights", literal)
        hold(found, stored, text in ("late", "on_time"), "label")
        correct(house, "flights", literal, text in ("late", "on_time"))

    law()


def test_a_number_as_a_label_has_one_verdict_and_round_trips_exactly(house: House) -> None:
    @unhurried
    @given(st.one_of(numbers, st.sampled_from(["2147483648", "9223372036854775808", '"1.5"', "null"])))
    def law(literal: str) -> None:
        expected = number_of(literal)
        found, stored = label_verdicts(house, "delays", literal)
        hold(found, stored, expected is not None, "label")
        for row in stored:
            assert row is None or float(row.label) == expected
        correct(house, "delays", literal, expected is not None)

    law()


def correct(house: House, task: str, literal: str, expected: bool) -> None:
    """PUT says the same of a label as POST does."""
    known = json.dumps({"event_id": f"known-{task}", "label": "late" if task == "flights" else 1})[1:-1]
    rest = f'"at": {AT}, "features": {{"distance": 1, "carrier": "UA"}}'
    house.ask("POST", f"/events?task={task}", f"{{{known}, {rest}}}".encode())
    body = f'{{{rest}, "label": {literal}}}'.encode("utf-8", "surrogatepass")
    answer = house.ask("PUT", f"/events/known-{task}?task={task}", body)
    assert (answer.status_code == 200) == expected, answer.text
