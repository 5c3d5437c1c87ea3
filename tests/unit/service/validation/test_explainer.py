"""Decoders accept, the explainer explains: whatever a decoder refuses has a fault, and what it accepts has none."""

import json
import math
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contracts.clock import parse_moment
from contracts.errors import Fault, InvalidInput
from service.errors import UnreadableRequest
from service.predict.endpoint import parse_query
from service.validation.lossless_json import decode_json, decode_text, without_mark
from service.validation.rules import Refusal, RowRules, compile_rules, list_rows
from store.events.batches import Event
from tests.unit.service.validation.row_rules import AT, RULES, a_task, an_event, event_values, unhurried

TARGETS: dict[str, dict[str, Any]] = {
    "classification": {"name": "y", "kind": "classification"},
    "listed": {"name": "y", "kind": "classification", "classes": ["a", "b", "0"]},
    "regression": {"name": "y", "kind": "regression"},
}
DELAYED = {
    target: compile_rules(a_task(given).model_copy(update={"label_delay": a_task().window}))
    for target, given in TARGETS.items()
}
WEEK = 7 * 86_400_000_000


def a_number(value: float | None) -> float:
    return math.nan if value is None else float(value) + 0.0


def expect_event(row: dict[str, Any], target: str) -> Event:
    """An accepted row as it should arrive, written without the service's own code."""
    features, at = row["features"], parse_moment(row["at"])
    numbers = a_number(features["distance"]), a_number(features.get("wind"))
    categories = features["carrier"], features.get("class") or ""
    label = repr(row["label"] + 0.0) if target == "regression" else row["label"]
    says_known_at = row.get("known_at") is not None
    known_at = parse_moment(row["known_at"]) if says_known_at else at + WEEK
    return Event(row["event_id"], at, known_at, numbers, categories, label, says_known_at)


def explain(rules: RowRules, body: str) -> list[Fault]:
    return rules.explainer.explain_event(decode_json(body))


@unhurried
@given(event_values, st.sampled_from([*TARGETS]), st.booleans())
@example(an_event(features={"carrier": "UA", "distance": 1e300}), "classification", False)
@example(an_event(features={"carrier": "UA", "distance": 2**53}), "classification", False)
@example(an_event(features={"carrier": "UA", "distance": 2**53 + 1}), "classification", False)
@example(an_event(label=-(2**53)), "regression", False)
@example(an_event(label=-(2**53) - 1), "regression", False)
@example(an_event(label=2.0**70), "regression", False)
@example(an_event(label=10**400), "regression", False)
def test_an_event_is_accepted_exactly_if_no_fault_is_found(row: dict[str, Any], target: str, escaped: bool) -> None:
    rules = DELAYED[target]
    body = json.dumps(row, ensure_ascii=escaped)
    batch = rules.events.decode(body.encode())
    if batch is None:
        assert explain(rules, body)
    else:
        assert explain(rules, body) == []
        assert repr(batch.row(0)) == repr(expect_event(row, target))


@unhurried
@given(st.lists(event_values | st.just(an_event()), max_size=40), st.sampled_from([*TARGETS]))
def test_a_row_of_many_is_read_as_if_it_came_alone(rows: list[dict[str, Any]], target: str) -> None:
    rules = DELAYED[target]
    alone = [list_rows(rules.read_events(json.dumps(row).encode(), 1))[0] for row in rows]
    assert repr([*list_rows(rules.read_events(json.dumps(rows).encode(), 40))]) == repr(alone)


def test_good_rows_among_bad_ones_are_accepted_and_each_bad_one_is_explained() -> None:
    rows = [an_event(event_id=str(place)) for place in range(100)]
    for place in (3, 40, 41, 99):
        rows[place]["label"] = place
    read = list_rows(RULES.read_events(json.dumps(rows).encode(), 100))
    assert {place for place, row in enumerate(read) if isinstance(row, Refusal)} == {3, 40, 41, 99}
    assert [row.event_id for row in read] == [str(place) for place in range(100)]
    refused = read[40]
    assert isinstance(refused, Refusal)
    assert refused.faults == (Fault("label", "is a number, not a string"),)
    assert json.loads(refused.payload) == rows[40]


question_rows = st.fixed_dictionaries(
    {"features": event_values.map(lambda row: row["features"]) | st.just({"carrier": "UA", "distance": 1})},
    optional={"at": st.sampled_from([AT, None, "noon", 5])},
)
questions = st.one_of(
    st.fixed_dictionaries({"rows": st.lists(question_rows, min_size=1, max_size=3)}, optional={"at": st.none()}),
    st.fixed_dictionaries(
        {"at": st.lists(st.sampled_from([AT, "noon", None, 5]), min_size=1, max_size=2)},
        optional={"features": st.just({"carrier": "UA", "distance": 1}) | st.none(), "task": st.none()},
    ),
    st.sampled_from([[], 5, {}, {"rows": 5}, {"rows": [[]]}, {"features": {}}, {"features": {}, "at": AT}]),
)


@unhurried
@given(questions)
def test_a_body_of_questions_is_accepted_exactly_if_no_fault_is_found(given: Any) -> None:
    body = json.dumps(given)
    faults = RULES.explainer.explain_questions(decode_json(body))
    assert (RULES.questions.decode(body.encode()) is None) == bool(faults)


literals = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.integers(2**53 - 3, 2**53 + 3).map(str),
    st.text('0123456789.,-+eE []nulNaif\t\u2003&=%"\\é', max_size=8),
)
names = st.sampled_from(["distance", "carrier", "wind", "class", "at", "odd"])


@unhurried
@given(st.lists(st.tuples(names, literals | st.just(AT)), max_size=3))
@example([("wind", str(2**60))])
@example([("wind", "1e300")])
@example([("carrier", 'a&b="c\\d"')])
def test_a_query_is_accepted_exactly_if_no_fault_is_found(more: list[tuple[str, str]]) -> None:
    given = {"distance": "1400", "carrier": "UA"}
    pairs = [*given.items(), *more]
    for asked in (pairs, [*(given | dict(more)).items()]):
        read = parse_query("&".join(f"{name}={quote(value)}" for name, value in asked).encode())
        assert read == asked
        row = RULES.queries.decode(asked)
        assert (row is None) == bool(RULES.explainer.explain_query(asked))
        if row is not None:
            values = given | dict(more)
            assert row.numbers[0] == float(values["distance"])
            assert row.categories == (values["carrier"], values.get("class", ""))


values = [b"NaN", b"-Infinity", b"1e400", b"-", b'"\\ud800"', b"{}", b"1" * 4301]
names_and_values = [b'"label": "late",', b'"wind": 1,', b'"carrier": "\\u0022",', b'"odd": [[1]],']
marks = [b"[", b",", b'"', b"\\", b"\x00", b"\xff", b"\n", b"\xef\xbb\xbf"]
pieces = st.sampled_from([*values, *names_and_values, *marks]) | st.binary(max_size=3)


@unhurried
@given(pieces, st.integers(0, 200), st.integers(0, 3), st.booleans())
def test_a_body_with_anything_in_any_place_is_accepted_or_explained(
    piece: bytes, place: int, num_cut: int, in_array: bool
) -> None:
    sound = json.dumps(an_event()).encode()
    place %= len(sound)
    broken = sound[:place] + piece + sound[place + num_cut :]
    with suppress(UnreadableRequest):
        rows = list_rows(RULES.read_events(b"[" + sound + b"," + broken + b"]" if in_array else broken, 10))
        assert all(row.faults for row in rows if isinstance(row, Refusal))
    (row,) = list_rows(RULES.read_lines([broken]))
    assert isinstance(row, Event) or row.faults
    with suppress(UnreadableRequest, InvalidInput):
        corrected = RULES.read_correction(broken, "e")
        assert isinstance(corrected, Event) or corrected.faults


def is_json(body: bytes) -> bool:
    """Whether a body is JSON in Python's sense, in which NaN is a number and half of a pair a character."""
    with suppress(UnreadableRequest):
        decode_json(decode_text(body))
        return True
    return False


@unhurried
@given(pieces, st.integers(0, 100), st.integers(0, 3))
def test_a_question_with_anything_in_any_place_is_accepted_or_explained(piece: bytes, place: int, num_cut: int) -> None:
    sound = b'{"rows": [{"at": "%s", "features": {"distance": 1, "carrier": "UA"}}]}' % AT.encode()
    place %= len(sound)
    body = sound[:place] + piece + sound[place + num_cut :]
    if RULES.questions.decode(without_mark(body)) is None:
        with pytest.raises(InvalidInput, match=": ") if is_json(body) else pytest.raises(UnreadableRequest):
            RULES.read_questions(body, 10)


def test_a_correction_may_leave_out_its_id_and_have_no_other() -> None:
    given = an_event(features={"carrier": "UA", "distance": 2.0**60})
    corrected = RULES.read_correction(json.dumps(given).encode(), "e")
    assert isinstance(corrected, Event)
    del given["event_id"]
    assert RULES.read_correction(json.dumps(given).encode(), "e") == corrected or math.isnan(corrected.numbers[1])
    assert repr(RULES.read_correction(json.dumps(given).encode(), "e")) == repr(corrected)
    with pytest.raises(InvalidInput, match="differs from the id in the path"):
        RULES.read_correction(json.dumps(given | {"event_id": "f"}).encode(), "e")
    refused = RULES.read_correction(json.dumps(given).encode(), "a\x00")
    assert isinstance(refused, Refusal)
    assert [fault.field for fault in refused.faults] == ["event_id"]


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"[]", 'body: is not a JSON object: write {"rows": [{"at": …, "features": {…}}]}'),
        (b'{"rows": {}}', 'rows: is not an array: write [{"at": …, "features": {…}}]'),
        (b'{"rows": [7]}', 'rows[0]: is not a JSON object: write {"at": …, "features": {…}}'),
        (b'{"features": []}', 'features: is not a JSON object: write {"'),
    ],
)
def test_a_question_of_another_form_is_told_its_form(body: bytes, form: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RULES.read_questions(body, 10)
    assert form in str(refused.value)


def test_an_event_of_another_form_is_told_its_form() -> None:
    (fault,) = explain(RULES, "[7]")
    assert fault.reason == 'is not a JSON object: write {"event_id": …, "at": …, "label": …, "features": {…}}'
