"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of arbitrary texts: bars are escaped, line breaks become spaces."""
    lines = [_line(head), _line(["---"] * len(head)), *(_line([_cell(cell) for cell in row]) for row in rows)]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """The text as code; an empty text stays empty."""
    return f"`{text}`" if text else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
