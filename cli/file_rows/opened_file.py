"""A file opened as events of a task: its format, how it is read, and its rows, which are read lazily."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, ParamSpec, TypeVar

from cli.file_rows.columns import EVENT, match_columns
from cli.file_rows.flat_rows import NUM_SAMPLE_LINES, find_flat_names, read_flat
from cli.file_rows.formats import Format, choose_format, find_format
from cli.file_rows.parquet import match_parquet, open_parquet, read_events
from cli.file_rows.rows import Row, make_reader, read_ndjson, read_rows
from cli.reading.dialects import find_encoding, open_text
from cli.reading.options import Options
from cli.reading.sources import DAMAGES, Source, copy_to_file, damage, open_source
from cli.reading.tables import look_into
from contracts.errors import Fault, InvalidInput
from contracts.task import Task

if TYPE_CHECKING:
    import pyarrow.parquet as pq

P = ParamSpec("P")
T = TypeVar("T")


def _no_digest() -> str | None:
    return None


@dataclass(frozen=True)
class OpenedFile:
    """Rows of a file as events of `task`. `position` turns a number of rows into the progress, up to `length`.

    `digest` is one of the content, made when it is asked for; None if the file is damaged. `has_row_ids` says whether
    ids are digests of whole rows; `columns` are the names of a CSV file's columns.
    """

    format: Format
    task: Task
    rows: Iterator[Row]
    notes: tuple[str, ...]
    length: int
    position: Callable[[int], int]
    num_equal: Callable[[], int]
    digest: Callable[[], str | None] = _no_digest
    has_row_ids: bool = False
    columns: tuple[str, ...] | None = None


@contextmanager
def open_rows(
    file: Path,
    format: Format | None,
    task: Task,
    options: Options,
    find_earlier: Callable[[], Task | None],
    *,
    needed_values: Sequence[str] = EVENT,
) -> Iterator[OpenedFile]:
    """A file of rows that hold `needed_values` besides features.

    If it lacks a feature, it is read in the form of `find_earlier`, if it has all of that. Raises InvalidInput, as the
    readers of `cli.file_rows.rows` and `cli.file_rows.parquet` do.
    """
    with open_source(file) as source:
        found = find_file_format(file, source, format)
        if found == "parquet":
            with open_content(source) as content, open_parquet(content) as parquet:
                opened = _open_parquet(parquet, task, options, find_earlier, needed_values)
                yield replace(opened, notes=(*_note_compression(source), *opened.notes), digest=source.digest)
        else:
            opened = (
                _open_csv(source, task, options, find_earlier, needed_values)
                if found == "csv"
                else _open_ndjson(source, task, options, needed_values)
            )
            yield replace(opened, notes=(*_note_compression(source), *opened.notes), digest=source.digest)


def _note_compression(source: Source) -> tuple[str, ...]:
    return (f"Decompressed from {source.compression}.",) if source.compression else ()


def _open_parquet(
    parquet: "pq.ParquetFile",
    task: Task,
    options: Options,
    find_earlier: Callable[[], Task | None],
    needed_values: Sequence[str],
) -> OpenedFile:
    num_rows = parquet.metadata.num_rows
    try:
        columns = match_parquet(parquet, task, options, needed_values)
    except InvalidInput as error:
        task = _earlier_or_raise(find_earlier, error)
        columns = match_parquet(parquet, task, options, needed_values)
    rows = read_events(parquet, columns, task, options)
    notes = (f"Parquet of {num_rows:,} rows.", *columns.notes)
    found = OpenedFile("parquet", task, rows, notes, num_rows, _unchanged, _none_equal)
    return replace(found, has_row_ids=columns.has_row_ids)


def _open_csv(
    source: Source,
    task: Task,
    options: Options,
    find_earlier: Callable[[], Task | None],
    needed_values: Sequence[str],
) -> OpenedFile:
    table = guard(source, look_into, source.open, options)
    try:
        reader = make_reader(table, task, options, needed_values)
    except InvalidInput as error:
        task = _earlier_or_raise(find_earlier, error)
        reader = make_reader(table, task, options, needed_values)
    rows = _guard_rows(source, read_rows(source.open(), table, reader))
    notes = (*table.notes, *reader.notes)
    found = OpenedFile("csv", task, rows, notes, source.length, source.tell, lambda: reader.num_equal)
    return replace(found, has_row_ids=reader.columns.has_row_ids, columns=tuple(table.names))


def _open_ndjson(source: Source, task: Task, options: Options, needed_values: Sequence[str]) -> OpenedFile:
    encoding = options.encoding
    names = guard(source, find_flat_names, _as_utf8(source, encoding), task)
    has_row_ids = False
    if names is None:
        _refuse_columns(options)
        notes: tuple[str, ...] = ()
        needs_label = "label" in needed_values and not options.unlabelled
        found = read_ndjson(_as_utf8(source, encoding), needs_label=needs_label)
    else:
        columns = match_columns(names, task, options, needed_values)
        has_row_ids = columns.has_row_ids
        notes = ("Lines hold rows without features: their keys are read as columns.", *columns.notes)
        sample = guard(source, lambda: list(islice(_as_utf8(source, encoding), NUM_SAMPLE_LINES)))
        lines = _as_utf8(source, encoding)
        found = read_flat(lines, sample, names, columns=columns, task=task, options=options)
    opened = OpenedFile("ndjson", task, _guard_rows(source, found), notes, source.length, source.tell, _none_equal)
    return replace(opened, has_row_ids=has_row_ids)


def _refuse_columns(options: Options) -> None:
    """Raises InvalidInput if options name columns or cells, which lines of events do not have."""
    given = {
        "--map": options.columns,
        "--id-from": options.id_from,
        "--drop": options.dropped,
        "--missing": options.missing,
    }
    faults = [
        Fault(option, "is for files with columns, and each line of this one is an event: leave it out")
        for option, values in given.items()
        if values
    ]
    if faults:
        raise InvalidInput(faults)


def find_file_format(file: Path, source: Source, given: Format | None) -> Format:
    """The given format, else that of the suffix, else that of a pipe's content. Raises InvalidInput."""
    found = given or find_format(file) or find_format(source.content_name)
    if source.is_parquet:
        if given not in (None, "parquet"):
            raise InvalidInput([Fault(source.name, f"is Parquet, not {given}: leave out --format")])
        return "parquet" if found is not None or source.is_pipe else choose_format(file, given)
    if found is not None or not source.is_pipe:
        return found or choose_format(file, given)
    head = guard(source, lambda: source.open().read(2**16))
    return "ndjson" if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") else "csv"


def _earlier_or_raise(find_earlier: Callable[[], Task | None], error: InvalidInput) -> Task:
    """The task in the form of an earlier revision. Raises the error if there is none."""
    earlier = find_earlier()
    if earlier is None:
        raise error
    return earlier


@contextmanager
def open_content(source: Source) -> Iterator[IO[bytes]]:
    """The content as a file in which a reader can jump."""
    if source.compression is None:
        yield source.open()
        return
    with copy_to_file(source) as copy:
        yield copy


def _as_utf8(source: Source, encoding: str | None) -> Iterable[bytes]:
    """The lines of a file as UTF-8."""
    head = guard(source, lambda: source.open().read(2**20))
    found = find_encoding(io.BytesIO(head), encoding)
    ends_in_returns = b"\r" in head and b"\n" not in head  # as on old Macs
    if ends_in_returns and found == "cp1252" and encoding is None:
        found = "utf-8"
    if not ends_in_returns and (found.startswith("utf-8") or (found == "cp1252" and encoding is None)):
        return source.open()  # the API refuses broken lines
    return _encode_lines(source, found)


def _encode_lines(source: Source, encoding: str) -> Iterator[bytes]:
    text = open_text(source.open(), encoding)
    try:
        for line in text:
            yield line.encode(errors="surrogateescape")
    finally:
        with suppress(ValueError):  # the caller has closed the stream
            text.detach()


def _guard_rows(source: Source, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows. Raises InvalidInput if the file is damaged."""
    num_rows = 0
    try:
        for row in rows:
            yield row
            num_rows += 1
    except DAMAGES as error:
        raise damage(source, error, f" after row {num_rows}") from error


def guard(source: Source, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """What `work` returns. Raises InvalidInput if the file is damaged."""
    try:
        return work(*given, **named)
    except DAMAGES as error:
        raise damage(source, error) from error


def _unchanged(num_rows: int) -> int:
    return num_rows


def _none_equal() -> int:
    return 0
