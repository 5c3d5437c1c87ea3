"""How sentences show values."""

from contracts.clock import count_windows
from contracts.shown import say_count, shorten


def test_one_thing_is_singular_and_thousands_are_grouped() -> None:
    assert [say_count(number, "row") for number in (0, 1, 2, 8767)] == ["0 rows", "1 row", "2 rows", "8,767 rows"]
    assert [count_windows(number) for number in (1, 8767)] == ["1 window", "8,767 windows"]


def test_a_long_text_is_cut() -> None:
    assert shorten("a" * 70) == "a" * 60 + "…"
