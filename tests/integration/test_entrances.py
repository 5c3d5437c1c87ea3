"""One oracle for all entrances over HTTP: what one of them takes all take, as the same value; what one refuses, all do.

The oracles here are written apart from the service's own laws. Every answer is held to more: it is never a 500, and no
200 holds a number that is not finite. That the rules of rows agree with each other is `tests/unit/test_rows.py`.
"""

import json
import math
import re
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from contracts.catalog import define_task
from contracts.database import events
from contracts.task import Task
from tests.integration.artefacts import place_version
from tests.integration.serving import TASK, service_settings, serving

NOW = datetime(2026, 2, 1, tzinfo=UTC)
AT = '"2026-02-01T00:00:00Z"'
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
unhurried = settings(deadline=None, max_examples=60)


@dataclass
class House:
    """A client of a running app, called from outside of its event loop."""

    portal: BlockingPortal
    client: httpx.AsyncClient
    engine: Engine
    ids: Iterator[int] = field(default_factory=count)

    def ask(self, method: str, url: str, body: bytes | None = None, headers: dict[str, str] = JSON) -> httpx.Response:
        """The answer, which is no 500 and holds finite numbers only."""

        async def send() -> httpx.Response:
            return await self.client.request(method, url, content=body, headers=headers)

        answer = self.portal.call(send)
        assert answer.status_code < 500, (method, url, body, answer.text)
        if answer.status_code == 200:
            json.loads(answer.content, parse_constant=_refuse, parse_float=_finite)
        return answer

    def stored(self, event_id: str) -> Any:
        """The one event of an id, or None."""
        with self.engine.connect() as connection:
            return connection.execute(select(events).where(events.c.event_id == event_id)).one_or_none()


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} in an answer")


def _finite(literal: str) -> float:
    assert math.isfinite(float(literal)), literal
    return float(literal)


@pytest.fixture
def house(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[House]:
    """An app with a task, a version that answers, and a second task of numbers."""
    with engine.begin() as connection:
        define_task(connection, Task.model_validate({**TASK, "name": "flights"}), NOW)
        numbers = {"target": {"name": "delay", "kind": "regression"}, "name": "delays"}
        define_task(connection, Task.model_validate(TASK | numbers), NOW)
    place_version(tmp_path)

    @asynccontextmanager
    async def open_house() -> Any:
        async with serving(service_settings(database_url, tmp_path)) as client:
            yield client

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(open_house()) as client:
        yield House(portal, client, engine)


Verdict = tuple[bool, frozenset[str]]


def fields_of(answer: httpx.Response) -> frozenset[str]:
    """The fields that a refusal names, without their row's place; none where the text itself cannot be read."""
    faults = answer.json().get("errors", [])
    return frozenset(re.sub(r"^(rows|events)\[0\]\.", "", fault["field"]) for fault in faults)


def asked(answer: httpx.Response) -> Verdict:
    """What /predict says of a question; a moment beyond the horizon was understood."""
    understood = answer.status_code == 200 or answer.json()["type"] == "/problems/outside-horizon"
    assert understood or answer.status_code in (400, 422), answer.text
    return understood, frozenset() if understood else fields_of(answer)


def taken(answer: httpx.Response) -> Verdict:
    """What /events says of one event, however it was sent."""
    assert answer.status_code in (200, 400, 422), answer.text
    if answer.status_code != 200:
        return False, fields_of(answer)
    body = answer.json()
    if "results" not in body or not body["results"] or body["results"][0]["status"] != "rejected":
        return True, frozenset()
    return False, frozenset(fault["field"] for fault in body["results"][0]["errors"])


def verdicts(house: House, **literals: str) -> tuple[list[Verdict], list[Any], httpx.Response]:
    """Verdicts of GET, POST /predict and of events sent alone, in an array and as a line, on these JSON literals.

    A string is sent in a query without its quotation marks. Also what was stored, and what GET answered.
    """
    given = {"at": AT, "distance": "1400", "carrier": '"UA"'} | literals
    plain = {name: json.loads(text) if text.startswith('"') else text for name, text in given.items()}
    query = "&".join(f"{name}={quote(text, safe='', errors='surrogatepass')}" for name, text in plain.items())
    features = ", ".join(f'"{name}": {text}' for name, text in given.items() if name != "at")
    row = f'"at": {given["at"]}, "features": {{{features}}}'
    answered = house.ask("GET", f"/predict?task=flights&{query}")
    question = f'{{"rows": [{{{row}}}]}}'.encode("utf-8", "surrogatepass")
    found = [asked(answered), asked(house.ask("POST", "/predict?task=flights", question))]
    stored = []
    for shape, headers in (("{}", JSON), ("[{}]", JSON), ("{}\n", NDJSON)):
        event_id = f"e{next(house.ids)}"
        event = f'{{"event_id": "{event_id}", "label": "late", {row}}}'
        body = shape.replace("{}", event).encode("utf-8", "surrogatepass")
        found.append(taken(house.ask("POST", "/events?task=flights", body, headers)))
        stored.append(house.stored(event_id))
    return found, stored, answered


def hold(found: list[Verdict], stored: list[Any], expected: bool, name: str) -> None:
    """All entrances agree with the oracle, a refusal names the field or calls the text unreadable, and only what was
    taken is stored."""
    assert {verdict for verdict, _ in found} == {expected}, found
    assert all(fields <= {name, "event"} for _, fields in found), found
    assert all((row is not None) == expected for row in stored)


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


skeletons = st.sampled_from(
    [
        b'{"rows": [{"at": "2026-02-01T00:00:00Z", "features": {"distance": 1400, "carrier": "UA"}}]}',
        b'{"features": {"distance": 1400, "carrier": "UA"}, "at": ["2026-02-01T00:00:00Z"]}',
        b'{"event_id": "x", "at": "2026-02-01T00:00:00Z", "label": "late", "features": {"distance": 1}}',
        b'[{"event_id": "x", "at": "2026-02-01T00:00:00Z", "label": "late", "features": {"distance": 1}}]',
        b'{"reason": "r", "version": "3", "cycle": 17, "valid_until": null, "as_of": "2026-02-01T00:00:00Z"}',
    ]
)
tokens = st.sampled_from(
    [
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"NaN",
        b"1e400",
        b'"\\ud800"',
        b"{}",
        b"[",
        b",",
        b"\n",
        b'"',
        b"\\",
        b"1" * 5000,
    ]
)


def test_no_body_is_a_500_at_any_entrance(house: House) -> None:
    """Bodies that once were right, cut and pasted together with what breaks parsers."""

    @unhurried
    @given(
        st.one_of(
            st.binary(max_size=64),
            st.builds(
                lambda body, token, start, length: (
                    body[: start % len(body)] + token + body[start % len(body) + length :]
                ),
                skeletons,
                st.one_of(tokens, st.binary(max_size=4)),
                st.integers(0, 200),
                st.integers(0, 20),
            ),
        )
    )
    def law(body: bytes) -> None:
        for method, url in (
            ("POST", "/predict?task=flights"),
            ("POST", "/events?task=flights"),
            ("PUT", "/events/x?task=flights"),
            ("PUT", "/tasks/other"),
            ("POST", "/tasks/flights/cycles"),
            ("POST", "/tasks/flights/override"),
        ):
            assert house.ask(method, url, body).status_code < 500
        house.ask("POST", "/events?task=flights", body, NDJSON)

    law()


def test_no_query_string_is_a_500_at_any_entrance(house: House) -> None:
    pieces = st.sampled_from(
        ["at", "task", "distance", "carrier", "rate", "coverage", "=", "&", "%", "%00", "+", ";", "é"]
    )

    @unhurried
    @given(st.lists(st.one_of(pieces, st.text(max_size=5)), max_size=12).map("".join))
    def law(query: str) -> None:
        quoted = quote(query, safe="=&%+;", errors="surrogatepass")
        house.ask("GET", f"/predict?{quoted}")
        house.ask("POST", f"/predict?{quoted}", b"{}")
        house.ask("POST", f"/events?{quoted}", b"{}")
        house.ask("GET", f"/tasks?{quoted}")

    law()
