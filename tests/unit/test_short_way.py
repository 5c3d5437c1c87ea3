"""The short way takes a question only as the long one would: the same row, or none and the long one decides."""

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from contracts.errors import InvalidInput
from contracts.task import Task
from service.predict import parse_query, read_plain
from service.rows import compile_rules
from service.structs import Row

unhurried = settings(deadline=None, max_examples=300)
RULES = compile_rules(
    Task.model_validate(
        {
            "name": "flights",
            "features": [
                {"name": "distance", "kind": "number"},
                {"name": "carrier", "kind": "category"},
                {"name": "wind", "kind": "number", "optional": True},
                {"name": "gate", "kind": "category", "optional": True},
                {"name": "seats", "kind": "number"},
            ],
            "target": {"name": "outcome", "kind": "classification"},
            "window": "P7D",
        }
    )
)
PLAIN = {"at": "2026-01-31T12:00:00Z", "distance": "1400", "carrier": "UA", "seats": "-0.0"}


def judge(given: dict[str, str]) -> Row | None:
    """The row that the long way takes; None where it refuses."""
    try:
        return RULES.read_query(given.items())
    except InvalidInput:
        return None


def require_same(given: dict[str, str]) -> Row | None:
    """What the short way takes, which must be what the long one takes; -0.0 and NaN count as they print."""
    row = RULES.structs.accept_query(given)
    if row is not None:
        assert repr(row) == repr(judge(given))
    return row


numbers = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.integers(2**53 - 3, 2**53 + 3).map(str),
    st.text("0123456789.,-+eE []nulNaif\t\u2003", max_size=8),
)


@unhurried
@given(distance=numbers, wind=numbers | st.none(), seats=numbers)
@example(distance="1,2", wind=None, seats="")
@example(distance="1,2", wind=None, seats="3")
@example(distance="", wind="1,2", seats="3")
@example(distance=" 1", wind=None, seats="2")
@example(distance="null", wind=None, seats="2")
@example(distance="[1]", wind=None, seats="2")
@example(distance="1]", wind=None, seats="[2")
def test_numbers_are_taken_as_the_long_way_takes_them(distance: str, wind: str | None, seats: str) -> None:
    require_same(PLAIN | {"distance": distance, "seats": seats} | ({} if wind is None else {"wind": wind}))


@unhurried
@given(
    carrier=st.text(max_size=300), gate=st.text(max_size=3) | st.none(), at=st.sampled_from(["2026-01-31", "now", ""])
)
@example(carrier="U\nA", gate=None, at="")
@example(carrier="", gate="A1", at="")
@example(carrier="UA", gate="", at="")
def test_texts_and_moments_are_taken_as_the_long_way_takes_them(carrier: str, gate: str | None, at: str) -> None:
    given = PLAIN | {"carrier": carrier} | ({} if gate is None else {"gate": gate})
    require_same(given)
    assert require_same(given | {"at": at}) is None


@pytest.mark.parametrize("changes", [{}, {"wind": "3.5"}, {"gate": "A1"}, {"wind": "1e3", "gate": "Ä 1"}])
def test_a_plain_question_is_taken(changes: dict[str, str]) -> None:
    assert require_same(PLAIN | changes) is not None


def test_without_at_the_row_is_for_now() -> None:
    row = require_same({name: value for name, value in PLAIN.items() if name != "at"})
    assert row is not None
    assert row.at is None


@pytest.mark.parametrize("changes", [{"color": "red"}, {"wind": "null"}, {"seats": "1e400"}, {"seats": str(2**53 + 1)}])
def test_whatever_is_doubtful_is_not_taken(changes: dict[str, str]) -> None:
    assert require_same(PLAIN | changes) is None


@pytest.mark.parametrize("name", ["distance", "carrier", "seats"])
def test_a_question_that_lacks_something_is_not_taken(name: str) -> None:
    assert require_same({other: value for other, value in PLAIN.items() if other != name}) is None


def parsed(query: bytes) -> Any:
    """The pairs of the long way; None where it cannot read them."""
    try:
        return parse_query(query)
    except HTTPException:
        return None


@unhurried
@given(
    st.lists(st.sampled_from(["a", "b", "=", "&", "%", "%41", "%3D", "%26", "%2b", "+", "%C3%A4", "%ff", "ä", "%25"]))
)
def test_a_query_is_read_as_the_long_way_reads_it(pieces: list[str]) -> None:
    query = "".join(pieces).encode()
    given = read_plain(query)
    if given is not None:
        assert list(given.items()) == parsed(query)


@unhurried
@given(st.dictionaries(st.text("abc", min_size=1), st.text(), min_size=1))
def test_a_query_that_a_client_escapes_is_read_without_loss(pairs: dict[str, str]) -> None:
    try:
        query = "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs.items()).encode()
    except UnicodeEncodeError:
        return
    given = read_plain(query)
    is_plain = not any(set("&=") & set(value) for value in pairs.values())
    assert given == (pairs if is_plain else None)
