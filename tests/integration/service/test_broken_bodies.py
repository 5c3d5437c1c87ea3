"""Nothing that is sent to any entrance is answered with a 500."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from tests.integration.entrances import NDJSON, House, open_house, unhurried


@pytest.fixture
def house(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[House]:
    with open_house(database_url, engine, tmp_path) as house:
        yield house


skeletons = st.sampled_from(
    [
        b'{"rows": [{"at": "2026-02-01T00:00:00Z", "features": {"distance": 1400, "carrier": "UA"}}]}',
        b'{"features": {"distance": 1400, "carrier": "UA"}, "at": ["2026-02-01T00:00:00Z"]}',
        b'{"event_id": "x", "at": "2026-02-01T00:00:00Z", "label": "late", "features": {"distance": 1}}',
        b'[{"event_id": "x", "at": "2026-02-01T00:00:00Z", "label": "late", "features": {"distance": 1}}]',
        b'{"reason": "r", "version": "3", "cycle": 17, "valid_until": null, "as_of": "2026-02-01T00:00:00Z"}',
    ]
)
tokens = st.sampled_from(
    [
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"NaN",
        b"1e400",
        b'"\\ud800"',
        b"{}",
        b"[",
        b",",
        b"\n",
        b'"',
        b"\\",
        b"1" * 5000,
    ]
)


def test_no_body_is_a_500_at_any_entrance(house: House) -> None:
    """Bodies that once were right, cut and pasted together with what breaks parsers."""

    @unhurried
    @given(
        st.one_of(
            st.binary(max_size=64),
            st.builds(
                lambda body, token, start, length: (
                    body[: start % len(body)] + token + body[start % len(body) + length :]
                ),
                skeletons,
                st.one_of(tokens, st.binary(max_size=4)),
                st.integers(0, 200),
                st.integers(0, 20),
            ),
        )
    )
    def law(body: bytes) -> None:
        for method, url in (
            ("POST", "/predict?task=flights"),
            ("POST", "/events?task=flights"),
            ("PUT", "/events/x?task=flights"),
            ("PUT", "/tasks/other"),
            ("POST", "/tasks/flights/cycles"),
            ("POST", "/tasks/flights/override"),
        ):
            assert house.ask(method, url, body).status_code < 500
        house.ask("POST", "/events?task=flights", body, NDJSON)

    law()


def test_no_query_string_is_a_500_at_any_entrance(house: House) -> None:
    pieces = st.sampled_from(
        ["at", "task", "distance", "carrier", "rate", "coverage", "=", "&", "%", "%00", "+", ";", "é"]
    )

    @unhurried
    @given(st.lists(st.one_of(pieces, st.text(max_size=5)), max_size=12).map("".join))
    def law(query: str) -> None:
        quoted = quote(query, safe="=&%+;", errors="surrogatepass")
        house.ask("GET", f"/predict?{quoted}")
        house.ask("POST", f"/predict?{quoted}", b"{}")
        house.ask("POST", f"/events?{quoted}", b"{}")
        house.ask("GET", f"/tasks?{quoted}")

    law()
