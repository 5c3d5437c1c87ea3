"""A CSV file as a table: its dialect, the names of its columns, and a sample of its rows."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO

from cli.reading.csv_lines import Broken, Record, read_records
from cli.reading.dialects import Dialect, find_dialect, find_encoding, is_broken, name_encoding, open_text
from cli.reading.options import Options
from contracts.errors import Fault, InvalidInput
from contracts.spec.spec_values import find_near, suggest_name

# The rows that show how a column writes its values.
NUM_SAMPLE_ROWS = 5000
_SHOWN = 3
# Columns that a sentence names.
_NUM_SHOWN = 12
# A line break in a cell of the header, as spreadsheets have them.
_BREAK = re.compile(r"\s*[\r\n\t\v\f]\s*")


@dataclass(frozen=True)
class CsvTable:
    """The columns of a CSV file; a column without a name is "". `sample` holds its first rows without broken ones."""

    dialect: Dialect
    names: tuple[str, ...]
    sample: tuple[Sequence[str], ...]
    notes: tuple[str, ...]

    def repeats_header(self, cells: Sequence[str]) -> bool:
        """Whether a row has the names of the columns for values, as where files were put together."""
        return cells[0].strip() == self.names[0] and tuple(cell.strip() for cell in cells) == self.names

    def column(self, place: int) -> list[str]:
        """The sampled cells of a column."""
        return [cells[place] for cells in self.sample]


def look_into(open_: Callable[[], BinaryIO], options: Options) -> CsvTable:
    """The table of a file, which is opened a few times from its beginning. Raises InvalidInput if it has no header."""
    encoding = find_encoding(open_(), options.encoding)
    text = open_text(open_(), encoding)
    try:
        dialect = find_dialect(text, encoding, options)
    except UnicodeError as error:
        raise _undecodable(encoding, error) from error
    finally:
        text.detach()
    found = _read_all(open_(), dialect)
    first = next(found, None)
    if first is None:
        raise InvalidInput([Fault("file", "is empty: its first line must name the columns")])
    header = first[1]
    if (header.text if isinstance(header, Broken) else header[0]).lstrip("\ufeff ").startswith(("{", "[{")):
        raise InvalidInput([Fault("file", "is JSON, not CSV: with an event on each line, name --format ndjson")])
    if isinstance(header, Broken) and header.text.strip().isprintable():
        raise InvalidInput([Fault(f"line {first[0]}", f"names the columns, and {header.reason}")])
    if isinstance(header, Broken) or is_broken("".join(header)):
        raise InvalidInput(
            [Fault(f"line {first[0]}", f"names no columns in {name_encoding(encoding)}: give its --encoding")]
        )
    names = tuple(_BREAK.sub(" ", name.strip().lstrip("\ufeff")) for name in header)
    if any(not name.isprintable() for name in names):
        raise InvalidInput(
            [Fault("line 1", "holds control characters, so the file is no text, or in another encoding")]
        )
    refuse_twice(names, find_dropped(names, options))
    table = CsvTable(dialect, names, (), (dialect.describe(),))
    rows = [cells for _, cells in islice(found, NUM_SAMPLE_ROWS) if not isinstance(cells, Broken)]
    sample = tuple(cells for cells in rows if len(cells) != len(names) or not table.repeats_header(cells))
    return replace(table, sample=sample, notes=(*table.notes, *_name_nameless(names, sample)))


def read_table(stream: BinaryIO, table: CsvTable) -> Iterator[Record]:
    """The records behind the header."""
    least = next((place for place in range(len(table.names), 0, -1) if table.names[place - 1]), None)
    return islice(_read_all(stream, table.dialect, len(table.names), least), 1, None)


def _read_all(
    stream: BinaryIO, dialect: Dialect, width: int | None = None, least: int | None = None
) -> Iterator[Record]:
    """All records, the header included."""
    text = open_text(stream, dialect.encoding)
    try:
        skipped = dialect.num_above
        for number, cells in read_records(islice(text, skipped, None), dialect, width, least):
            yield number + skipped, cells
    except UnicodeError as error:
        raise _undecodable(dialect.encoding, error) from error
    finally:
        with suppress(ValueError):  # the caller has closed the stream
            text.detach()


def find_dropped(names: Sequence[str], options: Options) -> frozenset[str]:
    """The columns of a file that `--drop` names, in any spelling. Raises InvalidInput for absent ones."""
    return frozenset(_find_name("--drop", given, names) for given in options.dropped)


def _find_name(option: str, given: str, names: Sequence[str]) -> str:
    if given in names:
        return given
    spelled = suggest_name(given).casefold()
    alike = [name for name in names if name and suggest_name(name).casefold() == spelled]
    if len(alike) == 1:
        return alike[0]
    raise InvalidInput([absent_column(option, given, names)])


def absent_column(option: str, column: str, names: Sequence[str]) -> Fault:
    """The fault of a column that an option names and the file does not have."""
    near = find_near(column, tuple(name for name in names if name))
    meant = "" if near is None else f": write {near!r}"
    return Fault(option, f"{column!r} is not a column of the file ({list_columns(names)}){meant}")


def list_columns(names: Sequence[str | None]) -> str:
    """The columns of a file, for people."""
    named = [name for name in names if name]
    return f"its columns: {shorten(named)}" if named else "it names none"


def shorten(names: Sequence[str]) -> str:
    """The first of many names."""
    rest = len(names) - _NUM_SHOWN
    return ", ".join(names[:_NUM_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def refuse_twice(names: Sequence[str], dropped: Collection[str] = ()) -> None:
    """Raises InvalidInput if two columns have the same name."""
    twice = [name for name, number in Counter(names).items() if number > 1 and name and name not in dropped]
    if twice:
        raise InvalidInput(
            [
                Fault(name, f"names columns {_list(places_of(name, names))}: rename one, or leave out both by --drop")
                for name in twice
            ]
        )


def places_of(name: str, names: Sequence[str]) -> list[int]:
    """The columns of this name, counted from 1."""
    return [place for place, one in enumerate(names, start=1) if one == name]


def _list(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))


def _name_nameless(names: Sequence[str], sample: Sequence[Sequence[str]]) -> list[str]:
    """What to say about columns that have values and no name."""
    notes = []
    for place, name in enumerate(names):
        held = [] if name else [cells[place] for cells in sample if cells[place].strip()][:_SHOWN]
        if held:
            notes.append(
                f"Column {place + 1} has no name and is not read (it holds {', '.join(held)}). "
                "To use it, name it in the header."
            )
    return notes


def _undecodable(encoding: str, error: UnicodeError) -> InvalidInput:
    return InvalidInput([Fault("file", f"is not CSV in {name_encoding(encoding)} ({error}): give its --encoding")])
