"""Which moments and labels count as far from all others, and which do not."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.clock import to_micros
from contracts.quality.far_values import Gap, count_far_off, find_far_labels, find_gaps, part_by_gaps

DAY = 86_400_000_000
START = to_micros(datetime(2020, 1, 1, tzinfo=UTC))
YEAR_ONE = to_micros(datetime(1, 1, 1, tzinfo=UTC))
MANY = 10**6


def days(count: int = 400) -> list[int]:
    return [START + k * DAY for k in range(count)]


def far_off(at: list[int], most_newest: int = 99) -> tuple[int, int]:
    return count_far_off(np.sort(np.array(at, np.int64)), DAY, most_newest)


@pytest.mark.parametrize("odd", [YEAR_ONE, 0, 1, START - 20 * 365 * DAY, START - 300 * DAY])
def test_a_moment_long_before_the_others_is_far_off(odd: int) -> None:
    assert far_off([odd, *days()]) == (1, 0)
    assert far_off([odd] * 20 + days()) == (20, 0)
    assert far_off([YEAR_ONE, odd, *days()]) == (2, 0)


def test_a_moment_long_after_the_others_is_far_off_unless_a_stream_has_begun_again() -> None:
    late = START + 20 * 365 * DAY
    assert far_off([*days(), late]) == (0, 1)
    assert far_off([0, *days(), late]) == (1, 1)
    assert far_off([*days(1000), *(late + k * DAY for k in range(30))], most_newest=99) == (0, 30)
    assert far_off([*days(1000), *(late + k * DAY for k in range(30))], most_newest=29) == (0, 0)


@pytest.mark.parametrize(
    "at",
    [
        [],
        [0],
        [0, *days(15)],
        days(),
        [day + hour for day in days(300) for hour in (0, DAY // 3)],
        # A first tenth, long before the rest; a short gap; a pause of a season.
        [*(START - 5000 * DAY + k * DAY for k in range(45)), *days()],
        [START - 26 * DAY, *days()],
        [day for day in days(1000) if (day - START) // DAY % 365 < 120],
    ],
)
def test_a_stream_with_pauses_has_nothing_far_off(at: list[int]) -> None:
    assert far_off(at) == (0, 0)


@given(st.lists(st.integers(-(10**17), 10**17), max_size=200), st.integers(1, DAY * 400))
def test_at_most_one_in_twenty_is_far_off_at_either_end(at: list[int], window: int) -> None:
    before, after = count_far_off(np.sort(np.array(at, np.int64)), window, MANY)
    assert 0 <= before <= len(at) // 20
    assert 0 <= after <= len(at) // 20


def gaps(at: list[int]) -> tuple[Gap, ...]:
    return find_gaps(np.sort(np.array(at, np.int64)), DAY)


def test_a_long_gap_is_found_however_many_moments_are_beyond_it() -> None:
    end, later = START + 20 * DAY, START + 900 * DAY
    seconds_as_milliseconds = [at // 1000 for at in days(21)]
    for few in (1, 10, 200):
        early = (seconds_as_milliseconds * few)[: 21 * few]
        assert gaps([*early, *days(21)]) == (Gap(max(early), START),)
    assert gaps([YEAR_ONE] * 40 + [0] * 160 + days(21)) == (Gap(YEAR_ONE, 0), Gap(0, START))
    assert gaps([0] * 160 + days(21) + [later] * 90) == (Gap(0, START), Gap(end, later))


@pytest.mark.parametrize(
    "at",
    [
        [],
        [0],
        [0, 26 * DAY],
        days(),
        # Seasons, and a hole of a year in four.
        [day for day in days(1000) if (day - START) // DAY % 365 < 120],
        [*days(1000), *(START + (1365 + k) * DAY for k in range(400))],
    ],
)
def test_a_pause_that_is_short_compared_with_the_stream_is_no_gap(at: list[int]) -> None:
    assert gaps(at) == ()


@given(st.lists(st.integers(-(10**17), 10**17), max_size=200), st.integers(1, DAY * 400))
def test_gaps_are_in_order_and_hold_no_moment(at: list[int], window: int) -> None:
    found = find_gaps(np.sort(np.array(at, np.int64)), window)
    bounds = [bound for gap in found for bound in (gap.last, gap.first)]
    assert bounds == sorted(bounds)
    assert len(found) <= 3
    assert all(
        not gap.last < moment < gap.first and gap.first - gap.last > 26 * window for gap in found for moment in at
    )


@pytest.mark.parametrize(
    ("length", "older", "newer", "paused"),
    [
        (270, 90, 90, True),  # two seasons of a shop
        (365, 140, 180, True),  # weeks with a hole of a year
        (700, 365, 400, True),
        (1100, 365, 365, False),
        (270, 2, 90, False),  # too short a beginning for a stream
        (56 * 365, 0, 21, False),
        (2000 * 365, 700, 700, False),  # a year of two digits
    ],
)
def test_a_stream_has_paused_if_both_sides_last_and_the_gap_is_no_longer(
    length: int, older: int, newer: int, *, paused: bool
) -> None:
    for first, second in ((older, newer), (newer, older)):
        gap = Gap(first * DAY, (first + length) * DAY)
        groups = part_by_gaps(0, gap.first + second * DAY, [gap])
        assert len(groups) == (1 if paused else 2)
        assert (groups[0][0], groups[-1][1]) == (0, gap.first + second * DAY)


def usual(kind: str, count: int = 4000, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    draws: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {
        "normal": rng.normal(100, 10, count),
        "prices": np.exp(rng.normal(3, 1, count)).round(2),
        "heavy": np.exp(2.236 * rng.normal(0, 1, count)) * np.where(rng.random(count) < 0.05, -1, 1),
        "counts": rng.poisson(50, count).astype(np.float64),
        "zeros": np.where(rng.random(count) < 0.9, 0.0, np.exp(rng.normal(5, 1, count))),
        "zeros_apart": np.where(rng.random(count) < 0.1, 0.0, rng.normal(500, 10, count)),
        "limited": np.minimum(rng.exponential(50, count), 100.0),
        "binary": (rng.random(count) < 0.3).astype(np.float64),
        "one": np.full(count, 7.0),
    }
    return draws[kind]


KINDS = ["normal", "prices", "heavy", "counts", "zeros", "zeros_apart", "limited", "binary", "one"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_no_usual_label_is_far_outside(kind: str, seed: int) -> None:
    assert find_far_labels(usual(kind, seed=seed)) is None


@pytest.mark.parametrize("share", [0.002, 0.02, 0.1, 0.2])
@pytest.mark.parametrize("sentinel", [-9999.0, 999999.0, -1e30, 1e300, 65535.0])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "one"])
def test_a_repeated_label_far_from_the_others_is_far_outside(kind: str, sentinel: float, share: float) -> None:
    labels = usual(kind)
    labels[: round(share * len(labels))] = sentinel
    rest = labels[round(share * len(labels)) :]
    far = find_far_labels(labels)
    assert far is not None
    assert (far.num_far, far.num_labels, far.values) == (round(share * len(labels)), len(labels), (sentinel,))
    if sentinel < 0:
        assert (far.low, far.high) == (rest.min(), rest.max())


def test_two_sentinels_are_both_counted_and_the_more_frequent_comes_first() -> None:
    labels = np.concatenate([usual("normal"), [-9999.0] * 10, [-8888.0] * 30, [999999.0] * 20])
    far = find_far_labels(labels)
    assert far is not None
    assert (far.num_far, far.values) == (60, (-8888.0, 999999.0, -9999.0))


def test_a_single_absurd_label_and_a_half_of_all_labels_are_not_far_outside() -> None:
    assert find_far_labels(np.append(usual("normal"), [1e9, -1e9])) is None
    assert find_far_labels(np.concatenate([usual("normal"), np.full(4000, -9999.0)])) is None
    assert find_far_labels(np.array([1.0, 2.0, np.nan] + [-9999.0] * 3)) is None
