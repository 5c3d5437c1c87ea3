"""A plain query is decoded at once only as it is decoded pair by pair: the same row, or none and the pairs decide."""

from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from service.errors import UnreadableRequest
from service.predict.endpoint import parse_query
from service.validation.options import PLAIN as PLAIN_OPTIONS
from service.validation.options import take_options
from service.validation.query_decoder import find_task, read_plain
from service.validation.question_decoder import Row
from service.validation.rules import compile_rules

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


def decode_at_once(query: bytes) -> Row | None:
    """The row of a plain query that is decoded at once; None if it is not plain, or not accepted."""
    plain = read_plain(query)
    return None if plain is None else RULES.queries.decode_plain(plain)


def decode_pairs(query: bytes) -> Row | None:
    """The row of a query that is decoded pair by pair; None if it is refused, or asks for more than a plain answer."""
    faults: list[Fault] = []
    try:
        _, options, pairs = take_options(parse_query(query), faults)
        row = RULES.read_query(pairs, faults)
    except (InvalidInput, UnreadableRequest):
        return None
    return row if options == PLAIN_OPTIONS else None


def require_same(query: bytes) -> Row | None:
    """The row that is decoded at once, which must be that of the pairs; -0.0 and NaN count as they print."""
    row = decode_at_once(query)
    if row is not None:
        assert repr(row) == repr(decode_pairs(query))
    return row


def write(given: dict[str, str]) -> bytes:
    """Names and values as a client escapes them; a lone surrogate, which no client can send, as its bytes."""
    return "&".join(f"{quote(name)}={quote(value, errors='surrogatepass')}" for name, value in given.items()).encode()


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
def test_numbers_are_decoded_as_pair_by_pair(distance: str, wind: str | None, seats: str) -> None:
    require_same(write(PLAIN | {"distance": distance, "seats": seats} | ({} if wind is None else {"wind": wind})))


@unhurried
@given(
    carrier=st.text(max_size=300), gate=st.text(max_size=3) | st.none(), at=st.sampled_from(["2026-01-31", "now", ""])
)
@example(carrier="U\nA", gate=None, at="")
@example(carrier="", gate="A1", at="")
@example(carrier="UA", gate="", at="")
def test_texts_and_moments_are_decoded_as_pair_by_pair(carrier: str, gate: str | None, at: str) -> None:
    given = PLAIN | {"carrier": carrier} | ({} if gate is None else {"gate": gate})
    require_same(write(given))
    assert require_same(write(given | {"at": at})) is None


@pytest.mark.parametrize(
    "changes",
    [{}, {"wind": "3.5"}, {"gate": "A1"}, {"wind": "1e3", "gate": "Ä 1"}, {"seats": "1e300", "wind": str(2**53)}],
)
def test_a_plain_query_is_decoded_at_once(changes: dict[str, str]) -> None:
    assert require_same(write(PLAIN | changes)) is not None


def test_without_at_the_row_is_for_now() -> None:
    row = require_same(write({name: value for name, value in PLAIN.items() if name != "at"}))
    assert row is not None
    assert row.at is None


@pytest.mark.parametrize("changes", [{"color": "red"}, {"wind": "null"}, {"seats": "1e400"}, {"seats": str(2**53 + 1)}])
def test_a_query_that_breaks_a_rule_is_refused(changes: dict[str, str]) -> None:
    assert require_same(write(PLAIN | changes)) is None


@pytest.mark.parametrize("name", ["distance", "carrier", "seats"])
def test_a_query_that_lacks_something_is_refused(name: str) -> None:
    assert require_same(write({other: value for other, value in PLAIN.items() if other != name})) is None


PIECES = [
    "a",
    "=",
    "&",
    "%",
    "%41",
    "%3D",
    "%26",
    "%2b",
    "+",
    "%C3%A4",
    "%ff",
    "ä",
    "%25",
    '"',
    "%22",
    "\\",
    "%5C",
    ",",
]
PIECES += [":", "%3A", "%3a", "%00", "%7f", "\n", "at=", "seats=1", "&seats=1", "&task=flights", "&task=", "&rate=true"]


@unhurried
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), st.data())
def test_a_query_with_anything_in_any_place_is_decoded_as_pair_by_pair(pieces: list[str], data: st.DataObject) -> None:
    query = write(PLAIN).decode()
    place = data.draw(st.integers(0, len(query)))
    require_same(f"{query[:place]}{''.join(pieces)}{query[place:]}".encode())


@unhurried
@given(st.text(min_size=1, max_size=20))
def test_a_printable_text_that_a_client_escapes_is_decoded_at_once(carrier: str) -> None:
    row = require_same(write(PLAIN | {"carrier": carrier}))
    assert (row is None) == (bool(set('&="\\') & set(carrier)) or not carrier.isprintable())


@pytest.mark.parametrize(
    ("query", "task"),
    [("a=1", None), ("task=flights&a=1", "flights"), ("a=1&task=x", "x"), ("subtask=x", None), ("a=1&task=", "")],
)
def test_the_task_is_found_wherever_a_query_names_it(query: str, task: str | None) -> None:
    assert find_task(query) == task


def test_the_name_of_the_task_is_no_feature_of_it() -> None:
    assert require_same(b"task=flights&" + write(PLAIN)) == decode_at_once(write(PLAIN))


@pytest.mark.parametrize("name", ["at", "task", "distance", "wind"])
def test_a_query_that_gives_a_name_twice_is_refused(name: str) -> None:
    once = write(PLAIN | {"task": "flights", "wind": "1"})
    assert require_same(once) is not None
    assert require_same(once + b"&" + write({name: (PLAIN | {"task": "flights", "wind": "1"})[name]})) is None
