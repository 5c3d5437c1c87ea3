"""Bytes that are no request are refused with what is wrong and what to write instead."""

import httptools
import pytest

from service.server.broken_requests import explain_broken_request


class Nothing:
    """What the parser calls: nothing."""


def explain(line: bytes) -> str:
    request = line + b"\r\nHost: a\r\n\r\n"
    with pytest.raises(httptools.HttpParserError) as caught:
        httptools.HttpRequestParser(Nothing()).feed_data(request)
    return explain_broken_request(request[:14], request, caught.value)


@pytest.mark.parametrize(
    ("target", "shown", "remedy"),
    [
        (
            "/predict?task=a&city=Zürich&x=1".encode(),
            "'ü'",
            "as %C3%BC: with curl, use --get --data-urlencode 'city=Z",
        ),
        (b"/predict?city=Z\xfcrich", "'ü'", "as %C3%BC: with curl, use --get --data-urlencode 'city=Zürich'."),
        (b"/predict?city=New York", "a blank", "as %20: with curl, use --get --data-urlencode 'city=New York'."),
        (b"/predict?city=a\tb", r"'\t'", "as %09: with curl, use --get --data-urlencode 'city=Z"),
        (b"/predict?city=a\x00b", r"'\x00'", "as %00"),
        (b"/predict?city=a\x7fb", r"'\x7f'", "as %7F"),
        ("/tasks/größe".encode(), "'ö'", "as %C3%B6."),
        (b"/tasks/no name", "a blank", "as %20."),
        ("/predict?city=日本".encode(), "'日'", "as %E6%97%A5"),
    ],
)
def test_a_character_that_an_address_cannot_hold_is_named_with_its_code(target: bytes, shown: str, remedy: str) -> None:
    said = explain(b"GET " + target + b" HTTP/1.1")
    assert said.startswith(f"The address of the request holds {shown}, which must be percent-encoded {remedy[:6]}")
    assert remedy in said


def test_a_parameter_that_no_feature_can_be_named_after_gets_a_name_that_one_can() -> None:
    said = explain("GET /predict?task=a&Gerät=Trockner HTTP/1.1".encode())
    assert "No parameter or feature has the name 'Gerät', for names are ASCII: is it Gerat?" in said
    assert "--data-urlencode" not in said


def test_a_character_whose_line_came_in_pieces_is_explained_too() -> None:
    parser = httptools.HttpRequestParser(Nothing())
    parser.feed_data(b"GET /predict?ci")
    with pytest.raises(httptools.HttpParserError) as caught:
        parser.feed_data(b"ty=\xff HTTP/1.1\r\n")
    said = explain_broken_request(b"GET /predict?c", b"ty=\xff HTTP/1.1\r\n", caught.value)
    assert "must be percent-encoded: with curl, use --get --data-urlencode" in said


def test_other_noise_is_said_to_be_none_of_http() -> None:
    assert explain(b"hello") == "This is not a request of HTTP/1.1."
    assert explain("GET / HTTP/1.1\r\nÜ: 1".encode()) == "This is not a request of HTTP/1.1."
