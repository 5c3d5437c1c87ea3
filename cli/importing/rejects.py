"""The file of rows that the API refused, each with its reason, to be corrected and imported in turn.

It is CSV for a CSV file, and NDJSON for NDJSON and for Parquet, which an editor cannot correct.
"""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path

from cli.importing.rows import REASON, Row

UNREADABLE = "_line"


def name_rejects(file: Path, folder: Path, *, is_csv: bool) -> Path:
    """The path for the rejected rows of a file."""
    return folder / f"{file.stem}.rejected.{'csv' if is_csv else 'ndjson'}"


def cut_rejects(path: Path, num_bytes: int) -> None:
    """Keep this many bytes, because later rows are sent again; with 0 remove the file."""
    if num_bytes == 0:
        path.unlink(missing_ok=True)
    elif path.exists():
        os.truncate(path, min(num_bytes, path.stat().st_size))


def append_rejects(path: Path, refused: Sequence[tuple[Row, str]]) -> int:
    """Append rows, each with its reason; returns the size of the file, 0 if there is none."""
    if refused:
        # UTF-8 cannot hold a lone surrogate, which is written with JSON's backslash escape.
        with path.open("a", encoding="utf-8", errors="backslashreplace", newline="") as stream:
            is_new = stream.tell() == 0
            writer = csv.writer(stream, lineterminator="\n")
            for row, reason in refused:
                if row.cells is None:
                    stream.write(_line(row.line, reason) + "\n")
                    continue
                if is_new:
                    writer.writerow([*row.cells, REASON])
                    is_new = False
                writer.writerow([*row.cells.values(), reason])
    return path.stat().st_size if path.exists() else 0


def _line(line: bytes, reason: str) -> str:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        event = {UNREADABLE: line.decode(errors="replace")}
    return json.dumps({**event, REASON: reason}, ensure_ascii=False)
