"""One validation for all three entrances: the same value gets the same verdict from GET, POST /predict and /events."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Fault, InvalidInput
from contracts.spec.spec_values import say_no_task
from service.validation.question_decoder import Row
from service.validation.rules import Refusal, compile_rules
from store.events.batches import Event
from tests.unit.service.validation.row_rules import (
    AT,
    RULES,
    a_task,
    an_event,
    event_verdict,
    get_verdict,
    only_verdict,
    post_verdict,
    read_one,
    unhurried,
)

numerals = st.one_of(
    st.floats().map(json.dumps),
    st.integers().map(str),
    st.integers(2**53 - 3, 2**53 + 3).flatmap(lambda value: st.sampled_from([str(value), str(-value), f"{value}.0"])),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?\Z"),
)


_MISSING = "send null for a missing value, or leave it out; the feature needs optional = true"


@unhurried
@given(numerals)
def test_a_number_gets_one_verdict_from_all_entrances(literal: str) -> None:
    verdict = only_verdict(distance=literal)
    if not isinstance(verdict, str):
        assert [fault.field for fault in verdict] == ["features.distance"]


@unhurried
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_finite_float_arrives_bit_for_bit(value: float) -> None:
    for verdict in (get_verdict, post_verdict, event_verdict):
        row = verdict(distance=repr(value))
        assert isinstance(row, Row)
        assert row.numbers[0] == value
        assert math.copysign(1, row.numbers[0]) == 1 or value != 0


@unhurried
@given(st.text(max_size=300), st.booleans())
def test_a_category_gets_one_verdict_from_all_entrances(text: str, escaped: bool) -> None:
    verdict = only_verdict(carrier=json.dumps(text, ensure_ascii=escaped).replace("\x7f", "\\u007f"))
    fits = 1 <= len(text) <= 256 and not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)
    assert isinstance(verdict, str) == fits


@unhurried
@given(
    st.one_of(
        st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()),
        st.datetimes().map(lambda moment: moment.isoformat()),
        st.text("0123456789-T:+Zz. ", max_size=30),
    )
)
def test_a_moment_gets_one_verdict_from_all_entrances(text: str) -> None:
    only_verdict(at=json.dumps(text))


@pytest.mark.parametrize(
    ("literal", "reason"),
    [
        ("NaN", f"is NaN, which is no number: {_MISSING}"),
        ("Infinity", f"is Infinity, which is no number: {_MISSING}"),
        ("-Infinity", f"is -Infinity, which is no number: {_MISSING}"),
        ("1e400", "is outside the range of a 64-bit float"),
        ("-1e400", "is outside the range of a 64-bit float"),
        ("9007199254740993", "is an integer beyond ±2^53, which a 64-bit float does not hold exactly"),
        ("1" * 4301, "is outside the range of a 64-bit float"),
        ("1" * 23, "is an integer beyond ±2^53, which a 64-bit float does not hold exactly"),
    ],
)
def test_a_number_that_no_float_holds_is_refused_with_its_field(literal: str, reason: str) -> None:
    assert only_verdict(distance=literal) == (Fault("features.distance", reason),)
    without_remedy = reason.removesuffix("; the feature needs optional = true")
    assert only_verdict(wind=literal) == (Fault("features.wind", without_remedy),), "wind is optional already"


@pytest.mark.parametrize(
    "text", ["1_000", " 1", "1 ", "+1", "0x10", "01", "1.", ".5", "nan", "inf", "١", "", "1,5", "true"]
)
def test_a_loose_number_is_refused_in_a_query(text: str) -> None:
    verdict = get_verdict(distance=json.dumps(text))
    assert isinstance(verdict, tuple)
    assert [fault.field for fault in verdict] == ["features.distance"]


@pytest.mark.parametrize("literal", ["true", '"1.5"', "[]", "{}", '"NaN"', "null"])
def test_what_is_no_number_is_refused_in_a_body(literal: str) -> None:
    verdict = post_verdict(distance=literal)
    assert verdict == event_verdict(distance=literal)
    assert isinstance(verdict, tuple)
    assert [fault.field for fault in verdict] == ["features.distance"]


@pytest.mark.parametrize("literal", ["1.5", "[]", '"\\ud800"', '"a\\u0000"', '""'])
def test_what_is_no_text_is_refused_in_a_body(literal: str) -> None:
    verdict = post_verdict(carrier=literal)
    assert verdict == event_verdict(carrier=literal)
    assert isinstance(verdict, tuple)
    assert [fault.field for fault in verdict] == ["features.carrier"]


def test_only_an_optional_feature_may_be_absent_or_null_and_both_mean_missing() -> None:
    absent = only_verdict()
    for verdict in (post_verdict, event_verdict):
        assert repr(verdict(wind="null")) == absent
        assert repr(verdict(**{"class": "null"})) == absent
    assert get_verdict(wind='""') == (Fault("features.wind", "is empty"),)
    assert only_verdict(**{"class": '""'}) == (Fault("features.class", "is empty"),)


def test_a_misspelled_feature_is_one_fault_and_a_missing_one_another() -> None:
    pairs = [("at", AT), ("Distance", "1400")]
    with pytest.raises(InvalidInput) as caught:
        RULES.read_query(pairs)
    assert caught.value.faults == (
        Fault("features.Distance", "is not one of this task's features: write distance"),
        Fault("features.carrier", "is required"),
    )
    refusal = read_one(RULES, b'{"event_id": "a", "At": "2026-01-01T00:00:00Z", "features": {}, "label": "late"}')
    assert isinstance(refusal, Refusal)
    assert [fault.field for fault in refusal.faults] == ["At", "features.carrier", "features.distance"]


def test_an_unknown_feature_is_told_the_near_one_or_all() -> None:
    for name, remedy in (("Cárrier", "write carrier"), ("zzzz", "carrier, distance, ")):
        with pytest.raises(InvalidInput) as caught:
            RULES.read_query([("at", AT), ("carrier", "UA"), ("distance", "1400"), (name, "1")])
        (fault,) = caught.value.faults
        assert fault.field == f"features.{name}"
        assert fault.reason.startswith(f"is not one of this task's features: {remedy}")


def test_every_feature_in_the_spelling_of_a_file_is_told_its_name() -> None:
    given = ("Cárrier", "DISTANCE ", "x", "zzzz", "CLASS", "Wínd?")
    with pytest.raises(InvalidInput) as caught:
        RULES.read_query([("at", AT), *((name, "1") for name in given)])
    reasons = {fault.field: fault.reason for fault in caught.value.faults}
    assert "write carrier" in reasons["features.Cárrier"]
    assert "write distance" in reasons["features.DISTANCE "]
    assert "write class" in reasons["features.CLASS"]
    assert "write wind" in reasons["features.Wínd?"]
    assert reasons["features.zzzz"] == "is not one of this task's features"


def test_a_decimal_comma_gets_a_point() -> None:
    with pytest.raises(InvalidInput) as caught:
        RULES.read_query([("at", AT), ("carrier", "UA"), ("distance", "3,5")])
    assert caught.value.faults == (Fault("features.distance", "is 3,5, with a comma: write a point, as in 3.5"),)


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("1.210,00", "with marks between thousands: write 1210.00"),
        ("1,210.00", "with marks between thousands: write 1210.00"),
        ("-12.345.678", "with marks between thousands: write -12345678"),
        ("12,345,678.5", "with marks between thousands: write 12345678.5"),
        ("1,210", "with a comma: write 1.210 if it is a decimal mark, 1210 if not"),
        ("1210,5", "with a comma: write a point, as in 1210.5"),
    ],
)
def test_a_number_as_people_write_it_is_told_its_plain_form(written: str, remedy: str) -> None:
    assert get_verdict(distance=written) == (Fault("features.distance", f"is {written}, {remedy}"),)
    for verdict in (post_verdict, event_verdict):
        told = f"is a string, not a number: it is {written}, {remedy}"
        assert verdict(distance=json.dumps(written)) == (Fault("features.distance", told),)


def test_all_faults_of_a_row_are_reported_at_once() -> None:
    body = b'{"event_id": "", "at": 5, "features": {"carrier": 1.5, "z": 2}, "label": null, "extra": 1, "extra": 2}'
    refusal = read_one(RULES, body)
    assert isinstance(refusal, Refusal)
    assert [fault.field for fault in refusal.faults] == [
        "extra",
        "extra",
        "event_id",
        "at",
        "label",
        "features.z",
        "features.carrier",
        "features.distance",
    ]
    assert refusal.payload.encode() == body


def test_a_parameter_that_is_given_twice_is_refused_even_with_the_same_value() -> None:
    for repeated in (("carrier", "UA"), ("at", AT)):
        with pytest.raises(InvalidInput, match="more than once"):
            RULES.read_query([("at", AT), ("carrier", "UA"), ("distance", "1"), repeated])


def test_known_at_is_not_before_at_and_else_follows_by_the_label_delay() -> None:
    rules = compile_rules(a_task().model_copy(update={"label_delay": a_task().window}))
    late = read_one(rules, json.dumps(an_event(known_at="2026-01-31T11:59:59Z")).encode())
    assert isinstance(late, Refusal)
    assert late.faults == (Fault("known_at", "is before at"),)
    event = read_one(rules, json.dumps(an_event()).encode())
    assert isinstance(event, Event)
    assert event.known_at - event.at == 7 * 86_400_000_000
    beyond = read_one(rules, json.dumps(an_event(at="9999-12-31T00:00:00Z")).encode())
    assert isinstance(beyond, Refusal)
    assert [fault.field for fault in beyond.faults] == ["at"]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_without_a_date_in_utc_is_refused(at: str) -> None:
    assert [fault.field for fault in only_verdict(at=json.dumps(at))] == ["at"]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-01-01T00:00:00", "offset"),
        ("2026-01-01", "offset"),
        ("2026-01-01T00:00:00 02:00", "%2B"),
        ("2026-01-01T24:00:00Z", "RFC 3339"),
        ("2026-01-01T23:59:60Z", "calendar"),
        ("1767225600", "RFC 3339"),
    ],
)
def test_a_moment_that_could_be_guessed_at_is_refused_in_words(at: str, words: str) -> None:
    (fault,) = only_verdict(at=json.dumps(at))
    assert fault.field == "at"
    assert words in fault.reason


def test_a_regression_label_is_stored_as_the_number_it_is() -> None:
    rules = compile_rules(a_task({"name": "delay", "kind": "regression"}))
    for sent, stored in [(3, "3.0"), (-0.0, "0.0"), (0.1, "0.1"), (1e300, "1e+300")]:
        event = read_one(rules, json.dumps(an_event(label=sent)).encode())
        assert isinstance(event, Event)
        assert event.label == stored
    for wrong in (True, "3", None):
        refusal = read_one(rules, json.dumps(an_event(label=wrong)).encode())
        assert isinstance(refusal, Refusal)
        assert [fault.field for fault in refusal.faults] == ["label"]


def test_an_unknown_field_of_an_event_is_told_the_near_one_or_all() -> None:
    event = {"event_id": "a", "at": AT, "label": "late", "features": {}}
    for name, remedy in (("labl", "write label"), ("zzzz", "event_id, at, features, label, known_at")):
        row = read_one(RULES, json.dumps({**event, name: 1}).encode())
        assert isinstance(row, Refusal)
        assert row.faults[0] == Fault(name, f"is not one of the fields of an event: {remedy}")


def test_near_names_of_tasks_are_told_or_all_if_they_are_few() -> None:
    assert say_no_task("Flight", ["flights", "rentals"]) == (
        "There is no task named 'Flight': the nearest name is 'flights'."
    )
    assert say_no_task("zzz", ["flights", "rentals"]).endswith("The tasks are flights, rentals.")
    assert "`morrow task list` or GET /tasks lists all 1,000" in say_no_task("zzz", [f"t{k}" for k in range(1000)])
    assert "`morrow task apply FILE`" in say_no_task("zzz", [])
