"""Lines of CSV split into cells, so that a broken line harms no other.

A reader of whole files loses everything behind a quotation mark that is never closed. Here a record may go over several
lines only if it ends in time and has the right number of cells; otherwise its first line alone is refused.
"""

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cli.reading.dialects import Dialect, unescape

_MAX_LINES = 2000
_MAX_CHARACTERS = 2**20
_BLANK = " \t\r\n\x1a\ufeff\x00"


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is no record, and why."""

    text: str
    reason: str


# The number of a record's first line, with its cells.
Record = tuple[int, list[str] | Broken]


def read_records(  # noqa: PLR0912 one loop, which every line passes
    lines: Iterable[str], dialect: Dialect, width: int | None = None, least: int | None = None
) -> Iterator[Record]:
    """The records of lines. Each has `width` cells, or as many as the first; blank ones are passed over.

    Empty cells behind the last column do not count. If columns behind the first `least` have no name, as at a separator
    that only the header ends in, their cells may be absent; by default the first record says so.
    """
    source = map(unescape, lines) if dialect.is_escaped else iter(lines)
    separator, quote, skips_spaces = dialect.separator, dialect.quote, dialect.skips_spaces
    waiting: deque[str] = deque()
    number = 0
    while True:
        line = waiting.popleft() if waiting else next(source, None)
        if line is None:
            return
        number += 1
        if quote not in line and not skips_spaces:
            cells = line.rstrip("\r\n").split(separator)
            if len(cells) == width:
                if not cells[0].strip() and not any(map(str.strip, cells)):
                    continue
                if line[-1] == "\x1a":
                    cells[-1] = cells[-1].rstrip("\x1a")
                yield number, cells
                continue
        if not line.strip(_BLANK):
            continue
        first = number
        text = line
        found = _split(line, dialect)
        if found is None:
            text, found, num_more = _read_on(line, source, waiting, dialect, width)
            number += num_more
        if isinstance(found, Broken):
            yield first, found
            continue
        if not any(map(str.strip, found)):
            continue
        if width is None:
            width = len(found)
            least = next((place for place in range(width, 0, -1) if found[place - 1].strip()), width)
        if len(found) > width and not any(map(str.strip, found[width:])):
            found = found[:width]
        if least is not None and least <= len(found) < width:
            found = [*found, *[""] * (width - len(found))]
        if len(found) != width:
            yield first, Broken(text, f"has {_count(len(found), 'cell')}, and the header has {_count(width, 'column')}")
        else:
            yield first, found


def _split(text: str, dialect: Dialect) -> list[str] | Broken | None:
    """The cells of a record; None if a quotation mark is not closed in it."""
    reader = csv.reader(
        [text],
        delimiter=dialect.separator,
        quotechar=dialect.quote,
        skipinitialspace=dialect.skips_spaces,
        strict=True,
    )
    try:
        cells = next(reader, [])
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            return None
        return Broken(text, f"has a quotation mark {dialect.quote} in the wrong place")
    if cells and cells[-1].endswith("\x1a"):
        cells[-1] = cells[-1].rstrip("\x1a")
    return cells


def _read_on(
    line: str, source: Iterator[str], waiting: deque[str], dialect: Dialect, width: int | None
) -> tuple[str, list[str] | Broken, int]:
    """The text and the cells of a record whose first line leaves a quotation mark open, and its number of more lines.

    If it has no good end, the first line is broken, and the lines behind it are read again.
    """
    parts = [line]
    size, num_quotes = len(line), line.count(dialect.quote)
    while len(parts) < _MAX_LINES and size < _MAX_CHARACTERS:
        more = waiting.popleft() if waiting else next(source, None)
        if more is None:
            break
        parts.append(more)
        size += len(more)
        num_quotes += more.count(dialect.quote)
        if num_quotes % 2 or dialect.quote not in more:
            continue
        text = "".join(parts)
        cells = _split(text, dialect)
        if isinstance(cells, list) and (width is None or len(cells) == width):
            return text, cells, len(parts) - 1
        break
    waiting.extendleft(reversed(parts[1:]))
    return line, Broken(line, f"has a quotation mark {dialect.quote} that is not closed"), 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
