"""One validation for all three entrances: the same value gets the same verdict from GET, POST /predict and /events."""

import json
import math
import time
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from contracts.batches import Event, EventBatch
from contracts.errors import Fault, InvalidInput
from contracts.task import Task
from service.bodies import decode_rows, limit_values
from service.predict import parse_query
from service.rows import Refusal, RowRules, compile_rules
from service.structs import Row

unhurried = settings(deadline=None)
AT = "2026-01-31T12:00:00Z"


def a_task(target: dict[str, Any] | None = None) -> Task:
    return Task.model_validate(
        {
            "name": "flights",
            "features": [
                {"name": "carrier", "kind": "category"},
                {"name": "distance", "kind": "number"},
                {"name": "class", "kind": "category", "optional": True},
                {"name": "wind", "kind": "number", "optional": True},
            ],
            "target": target or {"name": "outcome", "kind": "classification"},
            "window": "P7D",
        }
    )


RULES = compile_rules(a_task())
VALUES = {"at": f'"{AT}"', "carrier": '"UA"', "distance": "1400"}


def get_verdict(**literals: str) -> Row | tuple[Fault, ...]:
    """What GET /predict makes of these JSON literals, strings without their quotation marks."""
    plain = {name: json.loads(text) if text.startswith('"') else text for name, text in (VALUES | literals).items()}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in plain.items())
    try:
        return RULES.read_query(parse_query(query.encode()))
    except InvalidInput as error:
        return error.faults


def post_verdict(**literals: str) -> Row | tuple[Fault, ...]:
    """What POST /predict makes of the same literals in the one row of a body."""
    given = VALUES | literals
    features = ", ".join(f'"{name}": {text}' for name, text in given.items() if name != "at")
    body = f'{{"rows": [{{"at": {given["at"]}, "features": {{{features}}}}}]}}'
    try:
        return RULES.read_questions(body.encode("utf-8", "surrogatepass"), 10).rows[0]
    except InvalidInput as error:
        return tuple(Fault(fault.field.removeprefix("rows[0]."), fault.reason) for fault in error.faults)


def event_verdict(**literals: str) -> Row | tuple[Fault, ...]:
    """What POST /events makes of the same literals in an event that has nothing else wrong."""
    given = VALUES | literals
    features = ", ".join(f'"{name}": {text}' for name, text in given.items() if name != "at")
    body = f'{{"event_id": "e", "at": {given["at"]}, "label": "late", "features": {{{features}}}}}'
    row = read_one(RULES, body.encode("utf-8", "surrogatepass"))
    return row.faults if isinstance(row, Refusal) else Row(row.at, row.numbers, row.categories)


def verdicts(**literals: str) -> list[Any]:
    """The three verdicts, rows by their repr, so that NaN equals NaN; refusals by field and reason."""
    return [
        repr(verdict) if isinstance(verdict, Row) else verdict
        for verdict in (get_verdict(**literals), post_verdict(**literals), event_verdict(**literals))
    ]


def only_verdict(**literals: str) -> Any:
    """The one verdict of all three entrances."""
    found = verdicts(**literals)
    assert found[0] == found[1] == found[2]
    return found[0]


numerals = st.one_of(
    st.floats().map(json.dumps),
    st.integers().map(str),
    st.integers(2**53 - 3, 2**53 + 3).flatmap(lambda value: st.sampled_from([str(value), str(-value), f"{value}.0"])),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?\Z"),
)


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
        ("NaN", "is not a finite decimal number, such as -1.5 or 2e3"),
        ("Infinity", "is not a finite decimal number, such as -1.5 or 2e3"),
        ("-Infinity", "is not a finite decimal number, such as -1.5 or 2e3"),
        ("1e400", "is outside the range of a 64-bit float"),
        ("-1e400", "is outside the range of a 64-bit float"),
        ("9007199254740993", "is an integer beyond ±2^53, which a 64-bit float does not hold exactly"),
        ("1" * 4301, "is outside the range of a 64-bit float"),
        ("1" * 23, "is an integer beyond ±2^53, which a 64-bit float does not hold exactly"),
    ],
)
def test_a_number_that_no_float_holds_is_refused_with_its_field(literal: str, reason: str) -> None:
    for name in ("distance", "wind"):
        assert only_verdict(**{name: literal}) == (Fault(f"features.{name}", reason),)


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


@pytest.mark.parametrize("literal", ["1", "true", "[]", '"\\ud800"', '"a\\u0000"', '""'])
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


def test_a_misspelled_feature_is_named_beside_the_missing_one() -> None:
    pairs = [("at", AT), ("carrier", "UA"), ("Distance", "1400")]
    with pytest.raises(InvalidInput) as caught:
        RULES.read_query(pairs)
    assert caught.value.faults == (
        Fault("features.Distance", "is not one of this task's features"),
        Fault("features.distance", "is required"),
    )


def test_all_faults_of_a_row_are_reported_at_once() -> None:
    body = b'{"event_id": "", "at": 5, "features": {"carrier": 1, "z": 2}, "label": null, "extra": 1, "extra": 2}'
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


names = st.sampled_from(["event_id", "at", "label", "known_at"])


@unhurried
@given(st.text(max_size=20), names, st.booleans())
def test_a_name_that_is_given_twice_in_a_body_is_refused(text: str, name: str, escaped: bool) -> None:
    event = an_event(event_id=text)
    body = json.dumps(event, ensure_ascii=escaped)
    doubled = (
        f"{body[:-1]}, {json.dumps(name)}: {json.dumps(event.get(name, AT))}, {json.dumps(name)}: {json.dumps(AT)}}}"
    )
    row = read_one(RULES, doubled.encode())
    assert isinstance(row, Refusal)
    assert name in {fault.field for fault in row.faults if fault.reason == "is given more than once"}


def an_event(**changes: Any) -> dict[str, Any]:
    features = {"carrier": "UA", "distance": 1400}
    return {"event_id": "e", "at": AT, "features": features, "label": "late"} | changes


event_values = st.fixed_dictionaries(
    {
        "event_id": st.text(min_size=0, max_size=5),
        "at": st.sampled_from([AT, "2026-01-31T12:00:00", 5, "9999-12-31T23:59:59Z"]),
        "features": st.fixed_dictionaries(
            {},
            optional={
                "carrier": st.text(max_size=4) | st.none(),
                "distance": st.floats() | st.integers() | st.booleans(),
                "class": st.text(max_size=4) | st.none(),
                "wind": st.floats() | st.none(),
                "odd": st.none(),
            },
        ),
        "label": st.text(max_size=3) | st.floats(),
    },
    optional={"known_at": st.sampled_from([AT, None, "2020-01-01T00:00:00Z", ""])},
)


@unhurried
@given(st.lists(event_values, max_size=4), st.sampled_from(["classification", "listed", "regression"]), st.booleans())
def test_the_quick_way_accepts_only_what_the_judge_accepts(
    rows: list[dict[str, Any]], target: str, escaped: bool
) -> None:
    targets: dict[str, dict[str, Any]] = {
        "classification": {"name": "y", "kind": "classification"},
        "listed": {"name": "y", "kind": "classification", "classes": ["a", "b", "0"]},
        "regression": {"name": "y", "kind": "regression"},
    }
    rules = compile_rules(a_task(targets[target]))
    body = json.dumps(rows, ensure_ascii=escaped)
    judged = judge_all(rules, body)
    quick = rules.events.accept_body(body.encode())
    if quick is not None:
        assert [repr(event) for event in quick.rows()] == [repr(row) for row in judged]
    else:
        assert not rows or any(isinstance(row, Refusal) or is_large(row) for row in judged)


def read_one(rules: RowRules, body: bytes) -> Event | Refusal:
    """What becomes of the first row of a body, or the only one."""
    rows = rules.read_events(body, 10)
    return rows.row(0) if isinstance(rows, EventBatch) else rows[0]


def judge_all(rules: RowRules, body: str) -> list[Event | Refusal]:
    return [rules._judge_event(value, payload) for value, payload in decode_rows(body)]


def is_large(event: Event) -> bool:
    """Numbers of this size may have been integers, so the quick way leaves them to the judge."""
    numbers = [*event.numbers, *([float(event.label)] if "e" in event.label or "." in event.label else [])]
    return any(abs(number) >= 2**53 for number in numbers)


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


def test_one_row_meets_many_moments() -> None:
    body: dict[str, Any] = {"features": {"carrier": "UA", "distance": 5}, "at": [AT, "2026-02-01T00:00:00+01:00"]}
    questions = RULES.read_questions(json.dumps(body).encode(), 10)
    rows = questions.rows
    assert questions.at_field == "at[{}]"
    assert [row.at for row in rows] == [1769860800000000, 1769900400000000]
    assert rows[0].numbers[0] == 5
    body["at"] = [AT, None, 5]
    with pytest.raises(InvalidInput) as caught:
        RULES.read_questions(json.dumps(body).encode(), 10)
    assert [fault.field for fault in caught.value.faults] == ["at[1]", "at[2]"]


@pytest.mark.parametrize(
    "body", ["[]", "{}", '{"rows": []}', '{"rows": {}}', '{"rows": [5]}', '{"rows": [], "at": []}']
)
def test_a_body_of_another_shape_is_refused(body: str) -> None:
    with pytest.raises(InvalidInput):
        RULES.read_questions(body.encode(), 10)


@pytest.mark.parametrize("body", ['{"rows": [%s0]}', "[%s0]", '{"at": [%s0]}', '{"features": {"x": [%s0]}}'])
def test_a_body_of_more_values_than_rows_could_hold_is_refused_undecoded(body: str) -> None:
    for read in (RULES.read_questions, RULES.read_events):
        with pytest.raises(HTTPException) as caught:
            read((body % ("0," * 10_001)).encode(), 10)
        assert caught.value.status_code == 413


def test_commas_inside_of_texts_are_no_values() -> None:
    text = json.dumps("," * 250 + '\\"')
    body = f'{{"rows": [{{"features": {{"carrier": {text}, "distance": 1}}}}]}}'
    questions = RULES.read_questions(body.encode(), 1)
    assert questions.at_field == "rows[{}].at"
    (row,) = questions.rows
    assert row.categories[0] == json.loads(text)
    limit_values(json.dumps(["," * 100] * 3).encode(), 2)
    with pytest.raises(HTTPException):
        limit_values(json.dumps(["," * 100] * 4).encode(), 2)


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 2**20 + b",,", b"\\" * 2**20 + b",,", b'"\\,,' * 2**18])
def test_counting_values_takes_a_moment_whatever_the_body(body: bytes) -> None:
    began = time.perf_counter()
    with suppress(HTTPException):
        limit_values(body, 1)
    assert time.perf_counter() - began < 2


def test_a_fault_in_a_batch_names_its_row() -> None:
    rows = [{"features": {"carrier": "UA", "distance": 1}}] * 3 + [{"features": {"carrier": "UA", "distance": "x"}}]
    with pytest.raises(InvalidInput) as caught:
        RULES.read_questions(json.dumps({"rows": rows}).encode(), 10)
    assert caught.value.faults == (Fault("rows[3].features.distance", "is a string, not a number"),)


@pytest.mark.parametrize("query", [b"x=%zz", b"x=%ff", b"x", b"x=1&", "x=é".encode(), b"&".join([b"x=1"] * 2000)])
def test_a_query_that_cannot_be_read_is_malformed(query: bytes) -> None:
    with pytest.raises(HTTPException) as caught:
        parse_query(query)
    assert caught.value.status_code == 400
