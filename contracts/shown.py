"""How much of a value that somebody sent a sentence shows."""

# Characters; what follows them is cut.
MAX_SHOWN = 60


def shorten(text: str) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
