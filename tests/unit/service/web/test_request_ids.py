"""The trace of a request, as W3C Trace Context names it."""

import pytest

from service.web.request_ids import RequestIds, trace_id_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def traced(*values: str) -> str | None:
    return trace_id_of({"headers": [(b"traceparent", value.encode()) for value in values]})


@pytest.mark.parametrize(
    "value", [f"00-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-00", f"cc-{TRACE}-{PARENT}-01-more"]
)
def test_a_trace_is_named_by_its_parent(value: str) -> None:
    assert traced(value) == TRACE


@pytest.mark.parametrize(
    "value",
    [
        "",
        TRACE,
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01\n",
    ],
)
def test_a_broken_parent_names_none(value: str) -> None:
    assert traced(value) is None


def test_two_parents_name_none() -> None:
    assert traced(f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01") is None
    assert traced() is None


def test_the_first_sane_id_of_a_request_is_taken() -> None:
    ids = RequestIds()
    given = [(b"x-request-id", b"a b"), (b"x-request-id", b"second"), (b"x-request-id", b"third")]
    assert ids.choose(given) == "second"
    assert ids.choose([]) != ids.make()
