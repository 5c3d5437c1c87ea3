"""Ids of predictions sort by time, are never the same, and cannot be guessed from others."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.clock import to_micros
from store.predictions.ids import PredictionIds, first_id, format_id, moment_of, read_id

NOW = datetime(2026, 11, 30, 12, 0, 0, 123_456, tzinfo=UTC)


def test_an_id_is_a_uuid_of_version_7_that_names_its_millisecond() -> None:
    made = PredictionIds().make(to_micros(NOW))
    found = UUID(bytes=made)
    assert (found.version, found.variant) == (7, RFC_4122)
    assert moment_of(found) == NOW.replace(microsecond=123_000)
    assert read_id(format_id(made).decode()) == found


def test_later_ids_are_greater_and_all_differ() -> None:
    ids = PredictionIds()
    made = [ids.make(to_micros(NOW) + 1000 * place) for place in range(1000)]
    assert all(one < other for one, other in pairwise(made))
    assert len({one[6:] for one in made}) == 1000


def test_threads_that_share_a_source_get_different_ids() -> None:
    ids = PredictionIds()
    with ThreadPoolExecutor(4) as pool:
        made = [one for part in pool.map(lambda _: [ids.make(0) for _ in range(2000)], range(8)) for one in part]
    assert len({*made}) == 16_000


def test_each_of_the_74_bits_is_drawn() -> None:
    ids = PredictionIds()
    made = [int.from_bytes(ids.make(0)) for _ in range(512)]
    drawn = sum(len({one >> bit & 1 for one in made}) == 2 for bit in range(128))
    assert drawn == 74


@given(st.integers(0, 2**47), st.integers(0, 2**47))
def test_the_first_id_of_a_moment_parts_earlier_answers_from_later_ones(one: int, other: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(one, 10**14))
    made = UUID(bytes=PredictionIds().make(min(other, 10**14) * 1000))
    assert (made >= first_id(moment)) == (min(other, 10**14) >= min(one, 10**14))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "e1",
        "00000000-0000-0000-0000-000000000000",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",  # of version 4
        "{01932b2e-1c00-7000-8000-000000000000}",
        "01932b2e1c0070008000000000000000",
        "01932b2e-1c00-7000-8000-00000000000\x00",
    ],
)
def test_other_texts_are_ids_of_no_prediction(text: str) -> None:
    assert read_id(text) is None
