"""What the columns of a file hold: each value with its count, in the first rows of the file."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from cli.file_rows.columns import join_moment
from cli.file_rows.formats import Format
from cli.file_rows.opened_file import find_file_format, guard, open_content
from cli.file_rows.parquet import open_parquet, read_column, read_pieces, refuse_type
from cli.reading.csv_lines import Broken
from cli.reading.options import Options
from cli.reading.sources import Source, open_source
from cli.reading.tables import find_dropped, look_into, read_table, refuse_twice
from contracts.errors import Fault, InvalidInput

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# The names of a date's column and of the column of its time of day.
Split = tuple[str, str]
FindSplit = Callable[["Sequence[Column]"], Split | None]
MAX_ROWS = 100_000
NUM_SAMPLE_ROWS = 500
_ROWS_PER_PIECE = 5000


@dataclass(frozen=True)
class Column:
    """One named column. `counts` are its texts as CSV spells them; `refusal` says why no event can hold its type.

    One that is made of two columns, a date and a time of day, has their names in `parts`.
    """

    name: str
    counts: Counter[str]
    is_row_number: bool = False
    refusal: str | None = None
    parts: tuple[str, ...] = ()

    def num_of(self, missing: frozenset[str]) -> int:
        """The number of rows that hold one of these texts."""
        return sum(self.counts[text] for text in missing)


@dataclass(frozen=True)
class Profile:
    """The columns of a file in their order; `is_cut` if it has more rows than were read. `sample` holds first rows."""

    format: Format
    columns: tuple[Column, ...]
    num_rows: int
    is_cut: bool
    notes: tuple[str, ...]
    sample: tuple[dict[str, str], ...] = ()


def read_profile(file: Path, format: Format | None, options: Options, find_split: FindSplit) -> Profile:
    """The profile of a CSV or Parquet file. Raises InvalidInput as its import would.

    Two columns that `find_split` names, of a date and a time of day, are one column of the profile.
    """
    with open_source(file) as source:
        found = find_file_format(file, source, format)
        if found in ("csv", "parquet"):
            read = _read_csv if found == "csv" else _read_parquet
            profile = guard(source, read, source, options, None)
            split = find_split(profile.columns)
            return profile if split is None else guard(source, read, source, options, split)
    raise InvalidInput(
        [Fault(str(file), "is NDJSON, whose events name their features already: write the task by hand")]
    )


def _read_csv(source: Source, options: Options, split: Split | None) -> Profile:
    table = look_into(source.open, options)
    dropped = find_dropped(table.names, options)
    rows = (
        cells
        for _, cells in read_table(source.open(), table)
        if not isinstance(cells, Broken) and not table.repeats_header(cells)
    )
    found, num_rows = _count(table.names, islice(rows, MAX_ROWS), split)
    sample = tuple(dict(zip(table.names, cells, strict=True)) for cells in table.sample[:NUM_SAMPLE_ROWS])
    columns = tuple(one for one in found if one.name and one.name not in dropped)
    return Profile("csv", columns, num_rows, next(rows, None) is not None, table.notes, sample)


def _read_parquet(source: Source, options: Options, split: Split | None) -> Profile:
    with open_content(source) as content, open_parquet(content) as opened:
        return profile_parquet(opened, options, split)


def profile_parquet(opened: "pq.ParquetFile", options: Options, split: Split | None = None) -> Profile:
    """The profile of an opened Parquet file. Raises InvalidInput as its import would."""
    schema = opened.schema_arrow
    dropped = find_dropped(schema.names, options)
    refuse_twice(schema.names, dropped)
    refusals = {field.name: refuse_type(field.type, "text") for field in schema}
    names = [name for name, refusal in refusals.items() if refusal is None and name not in dropped]

    def rows() -> Iterator[Sequence[str]]:
        for piece in read_pieces(opened, names):
            read = [read_column(piece.column(piece.schema.names.index(name)), "text") for name in names]
            for cells in zip(*read, strict=True):
                yield [cell if isinstance(cell, str) else "" for cell in cells]

    columns, num_rows = _count(names, islice(rows(), MAX_ROWS), split)
    columns += [Column(name, Counter(), refusal=reason) for name, reason in refusals.items() if reason is not None]
    return Profile("parquet", tuple(columns), num_rows, opened.metadata.num_rows > num_rows, ())


def _count(names: Sequence[str], rows: Iterator[Sequence[str]], split: Split | None) -> tuple[list[Column], int]:
    """The columns, and the number of rows. Those of `split` are one, in the place of the first."""
    counters: list[Counter[str]] = [Counter() for _ in names]
    row_numbers = [True for _ in names]
    joined: Counter[str] = Counter()
    places = () if split is None else tuple(map(names.index, split))
    num_rows = 0
    while piece := list(islice(rows, _ROWS_PER_PIECE)):
        for place, cells in enumerate(zip(*piece, strict=True)):
            counters[place].update(cells)
            row_numbers[place] = row_numbers[place] and _continues(cells, num_rows)
        if places:
            joined.update(join_moment(cells, places) for cells in piece)
        num_rows += len(piece)
    columns = [Column(name, counters[place], row_numbers[place] and num_rows > 1) for place, name in enumerate(names)]
    if split is not None:
        columns[places[0]] = Column("+".join(split), joined, parts=split)
        columns = [column for column in columns if column.name != split[1]]
    return columns, num_rows


def _continues(cells: Sequence[str], start: int) -> bool:
    """Whether cells count the rows, from 0 or from 1."""
    return any(all(cell == str(number) for number, cell in enumerate(cells, start=start + one)) for one in (0, 1))
