"""How far a moment is from now, in words."""

import pytest

from service.web.html import say_distance, say_length

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        (0, "just now"),
        (-59_999_999, "just now"),
        (1, "in a moment"),
        (MINUTE, "in 1 minute"),
        (-2 * MINUTE, "2 minutes ago"),
        (119 * MINUTE, "in 119 minutes"),
        (-2 * HOUR, "2 hours ago"),
        (47 * HOUR, "in 47 hours"),
        (102 * DAY, "in 102 days"),
        (-4000 * DAY, "11 years ago"),
        (-44.8 * DAY, "45 days ago"),
        (2.8 * DAY, "in 3 days"),
        (47.9 * HOUR, "in 2 days"),
        (730 * DAY, "in 730 days"),
        (-6.8 * 365.25 * DAY, "7 years ago"),
    ],
)
def test_a_distance_is_said_in_its_largest_unit_and_rounded(distance: float, words: str) -> None:
    assert say_distance(5000 * DAY + int(distance), 5000 * DAY) == words


def test_a_moment_may_be_written_as_in_an_answer() -> None:
    assert say_distance("1970-01-04T00:00:00Z", 0) == "in 3 days"


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (100.66 * DAY, "100 days"),
        (47.99 * HOUR, "47 hours"),
        (48 * HOUR, "2 days"),
        (2.9 * DAY, "2 days"),
        (119.9 * MINUTE, "119 minutes"),
        (1.9 * MINUTE, "1 minute"),
    ],
)
def test_time_that_is_left_is_never_said_to_be_longer_than_it_is(left: float, words: str) -> None:
    assert say_length(int(left), at_most=True) == words
