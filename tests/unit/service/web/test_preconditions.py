"""Preconditions of writes: which hold for a revision, and which requests are refused for having one."""

from typing import Any

import pytest

from service.errors import Malformed, PreconditionFailed
from service.web.preconditions import read_preconditions, refuse_preconditions


def a_scope(*headers: tuple[str, str]) -> dict[str, Any]:
    return {"headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]}


def holds(revision: int | None, *headers: tuple[str, str]) -> bool:
    try:
        read_preconditions(a_scope(*headers)).check(revision)
    except PreconditionFailed:
        return False
    return True


@pytest.mark.parametrize(
    ("revision", "headers", "expected"),
    [
        (2, [], True),
        (None, [], True),
        (2, [("If-Match", '"2"')], True),
        (2, [("If-Match", '"1", "2"')], True),
        (2, [("If-Match", '"1"'), ("If-Match", '"2"')], True),
        (2, [("If-Match", "*")], True),
        (2, [("If-Match", '"1"')], False),
        (2, [("If-Match", 'W/"2"')], False),  # a weak tag never matches here (RFC 9110, 13.1.1)
        (None, [("If-Match", "*")], False),
        (None, [("If-Match", '"1"')], False),
        (None, [("If-None-Match", "*")], True),
        (2, [("If-None-Match", "*")], False),
        (2, [("If-None-Match", 'W/"2"')], False),
        (2, [("If-None-Match", '"1"')], True),
        (2, [("If-Match", '"2"'), ("If-None-Match", '"2"')], False),
    ],
)
def test_a_precondition_holds_as_http_defines_it(
    revision: int | None, headers: list[tuple[str, str]], expected: bool
) -> None:
    assert holds(revision, *headers) is expected


@pytest.mark.parametrize("value", ["2", '"2', "", '"1" "2"', '*, "1"', "W/2"])
def test_a_tag_that_cannot_be_read_is_malformed(value: str) -> None:
    with pytest.raises(Malformed, match="If-Match must be"):
        read_preconditions(a_scope(("If-Match", value)))


@pytest.mark.parametrize("name", ["If-Unmodified-Since", "If-Modified-Since", "If-Range"])
def test_other_preconditions_are_refused_by_name(name: str) -> None:
    for read in (read_preconditions, refuse_preconditions):
        with pytest.raises(PreconditionFailed, match=f"leave out {name}"):
            read(a_scope((name, "Thu, 01 Jan 2026 00:00:00 GMT")))


@pytest.mark.parametrize("name", ["Range", "Content-Range"])
def test_a_part_of_something_cannot_be_written(name: str) -> None:
    for read in (read_preconditions, refuse_preconditions):
        with pytest.raises(Malformed, match=f"leave out {name}"):
            read(a_scope((name, "bytes 0-1/2")))


def test_a_refusal_names_the_current_tag() -> None:
    with pytest.raises(PreconditionFailed) as caught:
        read_preconditions(a_scope(("If-Match", '"1"'))).check(3)
    assert caught.value.etag == '"3"'
    assert 'the current ETag is "3"' in str(caught.value)


def test_writes_without_revisions_take_no_precondition() -> None:
    refuse_preconditions(a_scope(("Accept", "*/*")))
    for name in ("If-Match", "If-None-Match"):
        with pytest.raises(PreconditionFailed, match=f"leave out {name}"):
            refuse_preconditions(a_scope((name, "*")))
