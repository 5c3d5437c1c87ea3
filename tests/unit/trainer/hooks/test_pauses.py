"""Pauses between attempts grow, and a receiver may ask for a longer one, within a limit."""

from datetime import timedelta

from trainer.hooks.deliveries import LONGEST_PAUSE, find_pause


def test_each_pause_is_three_times_as_long_up_to_the_longest_one() -> None:
    pauses = [find_pause(attempt, 10, None).total_seconds() for attempt in range(1, 11)]
    assert pauses[:4] == [10, 30, 90, 270]
    assert pauses[-2:] == [LONGEST_PAUSE.total_seconds()] * 2
    assert 14 < sum(pauses[:-1]) / 3600 < 16


def test_a_receiver_gets_the_pause_that_it_asks_for_but_no_endless_one() -> None:
    assert find_pause(1, 10, 60) == timedelta(seconds=60)
    assert find_pause(3, 10, 60) == timedelta(seconds=90)
    assert find_pause(1, 10, 999_999) == LONGEST_PAUSE
