"""The file of refused rows, each with its reason, to be corrected and imported as well.

It is CSV for a CSV file, written as that one is, and NDJSON for NDJSON and for Parquet, which an editor cannot correct.
A file that a person has edited since is kept under another name, never replaced. To notice an edit, we set the time of
the file: its microseconds follow from its second and the size of the file, and an editor's do not.
"""

import csv
import io
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cli.errors import cannot_write
from cli.file_rows.columns import REASON
from cli.file_rows.formats import COMPRESSED
from cli.file_rows.rows import Row
from cli.reading.tables import CsvTable

UNREADABLE = "_line"
_OWN_NAME = re.compile(r"(.+)\.rejected(?:-(\d{1,9}))?")


def name_rejects(file: Path, folder: Path, *, is_csv: bool) -> Path:
    """The path for the refused rows of a file; those of an earlier file of refused rows are numbered."""
    stem = Path(file.stem).stem if file.suffix.lower() in COMPRESSED else file.stem
    number = ""
    if found := _OWN_NAME.fullmatch(stem):
        stem, number = found[1], f"-{int(found[2] or 1) + 1}"
    return folder / f"{stem}.rejected{number}.{'csv' if is_csv else 'ndjson'}"


def keep_edited(path: Path) -> str | None:
    """Give a file that was edited since it was written the next free number, and say so. Raises Unavailable."""
    try:
        if not path.exists() or path.stat().st_mtime_ns == _find_own_time(path):
            return None
        is_csv, folder = path.suffix == ".csv", path.parent
        kept = name_rejects(path, folder, is_csv=is_csv)
        while kept.exists():
            kept = name_rejects(kept, folder, is_csv=is_csv)
        path.rename(kept)
    except OSError as error:
        raise cannot_write(path, error) from error
    return f"{path} was edited since it was written, and is kept as {kept}."


def cut_rejects(path: Path, num_bytes: int) -> None:
    """Keep this many bytes, because later rows are sent again; with 0 remove the file. Raises Unavailable."""
    try:
        if num_bytes == 0:
            path.unlink(missing_ok=True)
        elif path.exists():
            os.truncate(path, min(num_bytes, path.stat().st_size))
            _set_own_time(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def append_rejects(path: Path, refused: Sequence[tuple[Row, str]]) -> int:
    """Append rows, each with its reason; returns the size of the file, 0 if there is none. Raises Unavailable."""
    try:
        if refused:
            with path.open("ab") as stream:
                stream.writelines(_lines(refused, is_new=stream.tell() == 0))
            _set_own_time(path)
        return path.stat().st_size if path.exists() else 0
    except OSError as error:
        raise cannot_write(path, error) from error


def _find_own_time(path: Path) -> int:
    """The time, in nanoseconds, that we give a file of this size in the second of its last change."""
    status = path.stat()
    second = status.st_mtime_ns // 10**9
    return second * 10**9 + zlib.crc32(f"{second} {status.st_size}".encode()) % 10**6 * 1000


def _set_own_time(path: Path) -> None:
    with suppress(PermissionError):  # the file of another user, which then counts as edited
        os.utime(path, ns=(path.stat().st_atime_ns, _find_own_time(path)))


def _lines(refused: Sequence[tuple[Row, str]], *, is_new: bool) -> Iterator[bytes]:
    for row, reason in refused:
        if row.table is None or row.cells is None:
            # UTF-8 cannot hold a lone surrogate, which is written with JSON's backslash escape.
            yield (_line(row.line, reason) + "\n").encode(errors="backslashreplace")
            continue
        if is_new:
            names = [name for name in row.table.names if name != REASON]
            yield _csv([*names, REASON], row.table, is_first=True)
            is_new = False
        yield _csv([*_cells(row.cells, row.table), reason], row.table)


def _cells(cells: Sequence[str], table: CsvTable) -> list[str]:
    """A row's cells without an earlier reason. A broken line stands in the first cell, and the others are empty."""
    if len(cells) != len(table.names):
        return [*cells, *[""] * (sum(name != REASON for name in table.names) - len(cells))]
    return [cell for name, cell in zip(table.names, cells, strict=True) if name != REASON]


def _csv(cells: Sequence[str], table: CsvTable, *, is_first: bool = False) -> bytes:
    """One line in the dialect of the table. Bytes that could not be decoded are written as they were."""
    dialect = table.dialect
    text = io.StringIO()
    quote = '"' if dialect.quote == "\x00" else dialect.quote
    csv.writer(text, lineterminator="\n", delimiter=dialect.separator, quotechar=quote).writerow(cells)
    encoding = dialect.encoding
    if not is_first:  # the mark stands at the beginning only
        encoding = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(encoding, encoding)
    elif encoding in ("utf-16", "utf-32"):
        return ("\ufeff" + text.getvalue()).encode(f"{encoding}-le", "backslashreplace")
    try:
        return text.getvalue().encode(encoding, "surrogateescape")
    except UnicodeEncodeError:
        return text.getvalue().encode(encoding, "backslashreplace")


def _line(line: bytes, reason: str) -> str:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        event = {UNREADABLE: line.decode(errors="replace")}
    return json.dumps({**event, REASON: reason}, ensure_ascii=False)
