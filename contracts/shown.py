"""How sentences show values: how much of one that somebody sent, and a number of things."""

# Characters; what follows them is cut.
MAX_SHOWN = 60


def shorten(text: str) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def say_count(number: int, noun: str) -> str:
    """A number of things in words: `1 row`, `8,767 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
