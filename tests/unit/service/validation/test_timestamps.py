"""Many moments are read at once only as they would be one by one."""

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contracts.clock import parse_moment, to_micros
from service.validation import timestamps as moments
from service.validation.timestamps import parse_moments

unhurried = settings(deadline=None, max_examples=300)


def verdict(read: Callable[[], Sequence[int]]) -> list[int] | None:
    try:
        return list(read())
    except ValueError:
        return None


def one_by_one(texts: Sequence[str]) -> list[int] | None:
    return verdict(lambda: [parse_moment(text) for text in texts])


def at_once(texts: Sequence[str]) -> list[int] | None:
    """So many times over that they are not few."""
    many = [*texts] * (moments._FEW + 1)
    found = verdict(lambda: parse_moments(many).tolist())
    assert found is None or found == found[: len(texts)] * (moments._FEW + 1)
    return None if found is None else found[: len(texts)]


dates = st.datetimes().map(lambda moment: moment.isoformat(timespec="microseconds"))
offsets = st.sampled_from(
    ["Z", "+00:00", "-00:00", "+02:00", "-05:30", "+14:00", "+23:59", "+24:00", "+00:60", "z", ""]
)
cuts = st.sampled_from([16, 19, 21, 23, 26])


@unhurried
@given(st.lists(st.tuples(dates, offsets), max_size=4), cuts)
@example([("0001-01-01T00:00:00.000000", "+00:01")], 26)
@example([("9999-12-31T23:59:59.999999", "-00:01")], 26)
@example([("2026-01-01T00:00:00.000000", "+02:00"), ("2026-01-01T00:00:00.000000", "-02:00")], 19)
def test_moments_are_read_as_one_by_one(given: list[tuple[str, str]], cut: int) -> None:
    texts = [date[:cut] + offset for date, offset in given]
    assert at_once(texts) == one_by_one(texts)


characters = st.text("0123456789-:TZ+. tz\u0661é", max_size=27)


@unhurried
@given(st.lists(st.tuples(st.integers(0, 24), characters), min_size=1, max_size=3))
@example([(0, "0000")])
@example([(5, "00")])
@example([(5, "13")])
@example([(8, "31"), (8, "00")])
@example([(11, "24")])
@example([(17, "60")])
@example([(0, "\u0661")])
def test_what_is_not_a_moment_is_never_read(patches: list[tuple[int, str]]) -> None:
    texts = ["2026-02-03T04:05:06+01:00"]
    for place, patch in patches:
        texts.append(texts[0][:place] + patch + texts[0][place + len(patch) :])
    assert at_once(texts) == one_by_one(texts)


@pytest.mark.parametrize("texts", [["2026-01-01T00:00:00Z", ""], ["2026-01-01T00:00:00", "Z"], [""], []])
def test_texts_whose_lengths_only_add_up_are_not_taken_for_moments(texts: list[str]) -> None:
    assert at_once(texts) == one_by_one(texts)


@pytest.mark.parametrize("written", ["2026-01-01T00:00Z", "2026-01-01T00:00:00.5+01:00", "2026-06-30T23:59:59-11:30"])
def test_what_is_written_alike_is_read_at_once(written: str) -> None:
    laid_out = moments._lay_out([written] * 3)
    assert laid_out is not None
    assert moments._read(laid_out).tolist() == [to_micros(datetime.fromisoformat(written))] * 3
