"""Integers and booleans at each entrance, and what clients that hold data frames send for them."""

import json
import math
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from contracts.truth import TRUTHS
from service.predict.endpoint import parse_query
from service.validation.lossless_json import decode_json
from service.validation.query_decoder import read_plain
from service.validation.question_decoder import Row
from service.validation.rules import Refusal, RowRules, compile_rules
from store.events.batches import Event
from tests.unit.service.validation.row_rules import AT, read_one, rows_of, unhurried

SPEC: dict[str, Any] = {
    "name": "bikes",
    "window": "P7D",
    "features": [
        {"name": "region", "kind": "category"},
        {"name": "holiday", "kind": "boolean"},
        {"name": "docks", "kind": "integer"},
        {"name": "rain", "kind": "boolean", "optional": True},
        {"name": "stops", "kind": "integer", "optional": True},
    ],
    "target": {"name": "rented", "kind": "classification"},
}
RULES = compile_rules(Task.model_validate(SPEC))
FEATURES: dict[str, Any] = {"region": "north", "holiday": True, "docks": 12}


def event_of(label: Any = "busy", **features: Any) -> Event | Refusal:
    body = {"event_id": "e", "at": AT, "features": FEATURES | features, "label": label}
    return read_one(RULES, json.dumps(body).encode())


def faults_of(**features: Any) -> tuple[Fault, ...]:
    """What events and bodies of /predict say of these features."""
    row = event_of(**features)
    assert isinstance(row, Refusal)
    with pytest.raises(InvalidInput) as caught:
        RULES.read_questions(json.dumps({"features": FEATURES | features, "at": AT}).encode(), 10)
    assert caught.value.faults == row.faults
    return row.faults


def ask(**given: str) -> Row:
    """The row of a query; the fast path reads what the slow one reads."""
    pairs = {"at": AT, "region": "north", "holiday": "true", "docks": "12"} | given
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs.items()).encode()
    plain = read_plain(query)
    found = None if plain is None else RULES.queries.decode_plain(plain)
    row = RULES.read_query(parse_query(query))
    assert found is None or repr(found) == repr(row)
    return row


def test_booleans_and_integers_are_stored_as_numbers() -> None:
    row = event_of(rain=False, stops=3)
    assert isinstance(row, Event)
    assert row.numbers == (1.0, 12.0, 0.0, 3.0)
    absent = event_of(rain=None)
    assert isinstance(absent, Event)
    assert [math.isnan(number) for number in absent.numbers] == [False, False, True, True]


def test_a_question_in_a_body_and_one_in_a_query_are_the_same_row() -> None:
    body = json.dumps({"features": FEATURES | {"rain": False, "stops": 3.0}, "at": AT}).encode()
    (row,) = rows_of(RULES.read_questions(body, 10))
    assert row == ask(rain="false", stops="3")


@pytest.mark.parametrize("spelling", sorted(TRUTHS))
def test_a_boolean_of_a_query_has_any_usual_spelling(spelling: str) -> None:
    assert ask(holiday=spelling).numbers[0] == TRUTHS[spelling]


@pytest.mark.parametrize("spelling", ["maybe", "2", "", "wahr", "tRuE", "1.0"])
def test_a_boolean_of_a_query_with_another_spelling_is_refused(spelling: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ask(holiday=spelling)
    assert [fault.field for fault in caught.value.faults] == ["features.holiday"]


@unhurried
@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_arrives_exactly(value: int) -> None:
    row = event_of(docks=value)
    assert isinstance(row, Event)
    assert row.numbers[1] == value == ask(docks=str(value)).numbers[1]


@pytest.mark.parametrize(
    ("value", "words"),
    [(2.5, "has a fraction"), (2**53 + 1, "beyond ±2^53"), (1e20, "beyond ±2^53"), (-(2.0**60), "beyond ±2^53")],
)
def test_an_integer_that_is_none_is_refused_at_each_entrance(value: float, words: str) -> None:
    (fault,) = faults_of(docks=value)
    assert fault.field == "features.docks"
    assert words in fault.reason
    with pytest.raises(InvalidInput) as caught:
        ask(docks=repr(value))
    assert caught.value.faults == (fault,)


@pytest.mark.parametrize(
    ("features", "field", "words"),
    [
        ({"docks": float("nan")}, "docks", "is NaN, which is no number: send null"),
        ({"docks": float("inf")}, "docks", "is Infinity, which is no number"),
        ({"docks": "NaN"}, "docks", "is a string, not an integer: send null"),
        ({"docks": "<NA>"}, "docks", "send null for a missing value"),
        ({"docks": "12"}, "docks", "write it without quotation marks"),
        ({"docks": "np.int64(12)"}, "docks", ".item()"),
        ({"docks": True}, "docks", 'a feature of kind = "boolean" takes true and false'),
        ({"docks": None}, "docks", "optional = true"),
        ({"holiday": 1}, "holiday", "is a number, not a boolean: write true"),
        ({"holiday": "True"}, "holiday", "write true, without quotation marks"),
        ({"holiday": "nan"}, "holiday", "send null for a missing value"),
        ({"region": 3.5}, "region", 'write "3.5" in quotation marks'),
        ({"region": 3.0}, "region", 'write "3.0" in quotation marks'),
        ({"region": 2**53 + 1}, "region", "in quotation marks"),
        ({"region": float("nan")}, "region", "is NaN, not a string: send null"),
    ],
)
def test_what_libraries_send_for_a_value_is_refused_with_its_remedy(
    features: dict[str, Any], field: str, words: str
) -> None:
    (fault,) = faults_of(**features)
    assert fault.field == f"features.{field}"
    assert words in fault.reason


def test_a_boolean_class_or_category_is_one_text_whether_it_is_sent_as_one_or_as_a_boolean() -> None:
    as_boolean, as_text = event_of(label=True, region=False), event_of(label="true", region="false")
    assert repr(as_boolean) == repr(as_text)
    assert isinstance(as_text, Event)
    assert (as_text.label, as_text.categories) == ("true", ("false",))


@pytest.mark.parametrize("code", [18, 0, 1, -3, 2**53])
def test_a_whole_number_is_one_category_in_events_and_questions_whether_it_is_sent_as_one_or_as_a_text(
    code: int,
) -> None:
    as_number, as_text = event_of(region=code), event_of(region=str(code))
    assert repr(as_number) == repr(as_text)
    assert isinstance(as_text, Event)
    body = json.dumps({"features": {"holiday": True, "docks": 1, "region": code}})
    (asked,) = RULES.read_questions(body.encode(), 10).categories.tolist()
    assert (*asked,) == as_text.categories == ask(region=str(code)).categories == (str(code),)


def test_one_and_true_are_two_categories_in_one_batch() -> None:
    rows = [{"features": {"holiday": True, "docks": 1, "region": one}} for one in (1, True, "1", 0, False)]
    found = RULES.read_questions(json.dumps({"rows": rows}).encode(), 10)
    assert found.categories.ravel().tolist() == ["1", "true", "1", "0", "false"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ('{"at": [], "features": {"holiday": true, "docks": 1, "region": "n"}}', "at", "is an empty list"),
        ('{"rows": []}', "rows", "holds no row"),
        ("{}", "features", "is required"),
        ('{"at": "", "features": {"holiday": true, "docks": 1, "region": "n"}}', "at", "is not an RFC 3339 time"),
        ('{"features": {"holiday": true, "docks": 1, "region": ""}}', "features.region", "is empty"),
        ('{"features": []}', "features", "is not a JSON object"),
        ('{"rows": [{}]}', "rows[0].features", "is required"),
        ('""', "body", "is not a JSON object"),
    ],
)
def test_what_is_empty_is_one_fault(body: str, field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RULES.read_questions(body.encode(), 10)
    (fault,) = caught.value.faults
    assert fault.field == field
    assert words in fault.reason


def test_names_that_are_given_twice_are_found_among_booleans_too() -> None:
    body = (
        f'{{"event_id": "e", "at": "{AT}", "label": true, '
        '"features": {"region": true, "region": false, "holiday": true, "docks": 1}}'
    )
    row = read_one(RULES, body.encode())
    assert isinstance(row, Refusal)
    assert row.faults == (Fault("features.region", "is given more than once"),)


def test_a_label_beyond_the_bounds_of_its_target_is_refused() -> None:
    target = {"name": "rented", "kind": "regression", "minimum": 0}
    rules = compile_rules(Task.model_validate(SPEC | {"target": target}))
    event = {"event_id": "e", "at": AT, "features": FEATURES}
    refused = read_one(rules, json.dumps(event | {"label": -9999}).encode())
    assert isinstance(refused, Refusal)
    assert refused.faults == (Fault("label", "is -9999, beyond the target's minimum 0"),)
    assert isinstance(read_one(rules, json.dumps(event | {"label": 0}).encode()), Event)


@pytest.mark.parametrize("given", [{"at": AT}, {"at": [AT]}, {"at": None}, {}])
def test_a_body_with_one_row_takes_one_moment_many_or_none(given: dict[str, Any]) -> None:
    (row,) = rows_of(RULES.read_questions(json.dumps({"features": FEATURES, **given}).encode(), 10))
    assert (row.at is None) == (not given.get("at"))


def test_a_moment_that_is_none_is_named_as_in_a_query() -> None:
    with pytest.raises(InvalidInput) as caught:
        RULES.read_questions(json.dumps({"features": FEATURES, "at": "noon"}).encode(), 10)
    assert [fault.field for fault in caught.value.faults] == ["at"]


@pytest.mark.parametrize("label", [None, float("nan")])
def test_an_event_without_a_label_is_told_to_wait_for_it(label: Any) -> None:
    row = event_of(label=label)
    assert isinstance(row, Refusal)
    (fault,) = row.faults
    found = "missing" if label is None else "NaN"
    assert fault == Fault("label", f"is {found}; send an event once its label is known, or leave label out")


def test_features_outside_of_features_are_told_their_place() -> None:
    body = {"event_id": "e", "at": AT, "label": "busy", **FEATURES}
    row = read_one(RULES, json.dumps(body).encode())
    assert isinstance(row, Refusal)
    assert Fault("docks", 'belongs in "features": {"docks": …}') in row.faults
    for asked, prefix in (({"at": AT, **FEATURES}, ""), ({"rows": [{"at": AT, **FEATURES}]}, "rows[0].")):
        with pytest.raises(InvalidInput) as caught:
            RULES.read_questions(json.dumps(asked).encode(), 10)
        assert Fault(f"{prefix}docks", 'belongs in "features": {"docks": …}') in caught.value.faults


BOUNDED = compile_rules(
    Task.model_validate(SPEC | {"target": {"name": "rented", "kind": "regression", "minimum": 0, "maximum": 9.5}})
)
LISTED = compile_rules(
    Task.model_validate(SPEC | {"target": {"name": "rented", "kind": "classification", "classes": ["true", "no"]}})
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(-3, 12),
    st.sampled_from([2**53, 2**53 + 1, -(2.0**53), 1e300, 3.0, "true", "True", "no", "NaN", "1", "", "a\x00"]),
    st.text(max_size=3),
)
any_features = st.fixed_dictionaries(
    {"region": values, "holiday": values, "docks": values}, optional={"rain": values, "stops": values}
) | st.fixed_dictionaries(
    {"region": st.booleans() | st.just("a"), "holiday": st.booleans(), "docks": st.integers(0, 9) | st.just(2.0)},
    optional={"rain": st.booleans() | st.none(), "stops": st.integers(0, 9) | st.none()},
)


@unhurried
@given(any_features, values, st.sampled_from([RULES, BOUNDED, LISTED]))
def test_a_row_of_all_kinds_is_accepted_exactly_if_no_fault_is_found(
    features: dict[str, Any], label: Any, rules: RowRules
) -> None:
    event = json.dumps({"event_id": "e", "at": AT, "features": features, "label": label})
    assert (rules.events.decode(event.encode()) is None) == bool(rules.explainer.explain_event(decode_json(event)))
    question = json.dumps({"at": AT, "features": features})
    faults = rules.explainer.explain_questions(decode_json(question))
    assert (rules.questions.decode(question.encode()) is None) == bool(faults)


texts = st.sampled_from([*sorted(TRUTHS), "3", "3.0", "2.5", "1e3", "-0", "1e20", "nan", "", "north", "maybe", " 1"])


@unhurried
@given(
    st.fixed_dictionaries({"region": texts, "holiday": texts, "docks": texts}, optional={"rain": texts, "stops": texts})
)
def test_a_query_of_all_kinds_is_accepted_exactly_if_no_fault_is_found(given: dict[str, str]) -> None:
    pairs = [*given.items()]
    row, faults = RULES.queries.decode(pairs), RULES.explainer.explain_query(pairs)
    assert (row is None) == bool(faults)
    plain = read_plain("&".join(f"{name}={quote(value)}" for name, value in pairs).encode())
    fast = None if plain is None else RULES.queries.decode_plain(plain)
    assert repr(fast) in (repr(row), "None")


MARK = b"\xef\xbb\xbf"


def test_a_byte_order_mark_before_a_body_or_a_line_is_passed_over() -> None:
    event = json.dumps({"event_id": "e", "at": AT, "features": FEATURES, "label": "busy"}).encode()
    questions = json.dumps({"features": FEATURES, "at": AT}).encode()
    assert isinstance(read_one(RULES, MARK + event), Event)
    assert isinstance(read_one(RULES, MARK + b"[" + event + b"]"), Event)
    assert len(RULES.read_lines([MARK + event, event])) == 2
    assert isinstance(RULES.read_correction(MARK + event, "e"), Event)
    assert len(RULES.read_questions(MARK + questions, 10)) == 1
