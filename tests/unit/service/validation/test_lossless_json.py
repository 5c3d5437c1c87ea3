"""A body or a query as a whole: its shape, its size, names given twice, and the quick way through it."""

import json
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Fault, InvalidInput
from service.errors import Malformed, TooLarge
from service.predict.endpoint import parse_query
from service.validation.lossless_json import limit_values
from service.validation.rules import Refusal, list_rows
from tests.unit.service.validation.row_rules import AT, RULES, an_event, event_values, read_one, rows_of, unhurried

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


@unhurried
@given(st.lists(event_values, max_size=5), st.lists(st.sampled_from([b"", b"{", b"[]", b"7", b"\xff"]), max_size=2))
def test_lines_are_judged_as_if_each_came_alone(rows: list[dict[str, Any]], broken: list[bytes]) -> None:
    lines = [*(json.dumps(row).encode() for row in rows), *broken, json.dumps(an_event()).encode()]
    for order in (lines, lines[::-1]):
        alone = [repr(row) for line in order for row in list_rows(RULES.read_lines([line]))]
        assert [repr(row) for row in list_rows(RULES.read_lines(order))] == alone


def test_one_row_meets_many_moments() -> None:
    body: dict[str, Any] = {"features": {"carrier": "UA", "distance": 5}, "at": [AT, "2026-02-01T00:00:00+01:00"]}
    questions = RULES.read_questions(json.dumps(body).encode(), 10)
    rows = rows_of(questions)
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
        with pytest.raises(TooLarge):
            read((body % ("0," * 10_001)).encode(), 10)


def test_one_event_of_an_array_may_hold_the_values_of_all_and_keeps_its_id() -> None:
    strange = an_event() | {"event_id": "strange", "odd": [0] * 20_000}
    _, refused = list_rows(RULES.read_events(json.dumps([an_event(), strange]).encode(), 10_000))
    assert isinstance(refused, Refusal)
    assert (refused.event_id, [fault.field for fault in refused.faults]) == ("strange", ["odd"])


def test_a_line_of_more_values_than_one_event_could_hold_is_refused_undecoded() -> None:
    strange = an_event() | {"event_id": "strange", "odd": [0] * 20_000}
    (refused,) = list_rows(RULES.read_lines([json.dumps(strange).encode()]))
    assert isinstance(refused, Refusal)
    assert (refused.event_id, [fault.field for fault in refused.faults]) == (None, ["event"])


def test_commas_inside_of_texts_are_no_values() -> None:
    text = json.dumps("," * 250 + '\\"')
    body = f'{{"rows": [{{"features": {{"carrier": {text}, "distance": 1}}}}]}}'
    questions = RULES.read_questions(body.encode(), 1)
    assert questions.at_field == "rows[{}].at"
    (row,) = rows_of(questions)
    assert row.categories[0] == json.loads(text)
    limit_values(json.dumps(["," * 100] * 3).encode(), 2)
    with pytest.raises(TooLarge):
        limit_values(json.dumps(["," * 100] * 4).encode(), 2)


def test_a_body_of_far_too_many_sound_events_is_refused_undecoded() -> None:
    event = {"event_id": "e1", "at": AT, "features": {"distance": 1, "carrier": "UA"}, "label": "late"}
    body = json.dumps([event] * 50_000).encode()
    tracemalloc.start()
    with pytest.raises(TooLarge):
        RULES.read_events(body, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(body)


@given(st.lists(st.text(alphabet=',"\\aé'), max_size=8))
def test_only_commas_that_part_values_are_counted(texts: list[str]) -> None:
    body = json.dumps(texts, ensure_ascii=False).encode()
    limit_values(body, max(0, len(texts) - 1))
    if len(texts) > 1:
        with pytest.raises(TooLarge):
            limit_values(body, len(texts) - 2)


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 2**20 + b",,", b"\\" * 2**20 + b",,", b'"\\,,' * 2**18])
def test_counting_values_takes_a_moment_whatever_the_body(body: bytes) -> None:
    began = time.process_time()
    with suppress(TooLarge):
        limit_values(body, 1)
    assert time.process_time() - began < 2


def test_a_fault_in_a_batch_names_its_row() -> None:
    rows = [{"features": {"carrier": "UA", "distance": 1}}] * 3 + [{"features": {"carrier": "UA", "distance": "x"}}]
    with pytest.raises(InvalidInput) as caught:
        RULES.read_questions(json.dumps({"rows": rows}).encode(), 10)
    assert caught.value.faults == (Fault("rows[3].features.distance", "is a string, not a number"),)


@pytest.mark.parametrize("query", [b"x=%zz", b"x=%ff", b"x", b"x=1&", "x=é".encode(), b"&".join([b"x=1"] * 2000)])
def test_a_query_that_cannot_be_read_is_malformed(query: bytes) -> None:
    with pytest.raises(Malformed):
        parse_query(query)
