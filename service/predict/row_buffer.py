"""Rows of the log that wait to be stored, in a file that is mapped into memory.

What a process has written to such a file outlives it, even if it is killed. So the next process of the same home folder
stores what this one could not. The file is locked while its process lives, and its disk space is reserved at the
beginning: a write to a mapped page without space kills a process. Without a file, rows wait in memory only.
"""

import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from store.predictions.buckets import bucket_of_digits
from store.predictions.rows import FIRST_DIGITS

_SUFFIX = ".rows"
# The first bytes of a file: its form, where its last row ends, and the number of its rows.
_FORM = b"MORROWL1"
_COUNTS = struct.Struct(">QQ")
_BEGIN = len(_FORM) + _COUNTS.size

log = structlog.get_logger(__name__)


class RowBuffer:
    """Rows of this process. It is not safe to share between threads without a lock."""

    def __init__(self, folder: Path, size: int) -> None:
        self.num_rows = 0
        self._begins: set[tuple[int, bytes]] = set()
        self._end = _BEGIN
        self._size = size
        self._file, self._descriptor = _make_file(folder, size)
        self._map = mmap.mmap(-1 if self._descriptor is None else self._descriptor, size)
        self._map[: len(_FORM)] = _FORM

    def add(self, row: bytes, task_id: int) -> bool:
        """Add a row, unless there is no room for it."""
        begin, end = self._end, self._end + len(row)
        if end > self._size:
            return False
        self._map[begin:end] = row
        self._note(end, self.num_rows + 1)
        self._begins.add((task_id, row[FIRST_DIGITS]))
        return True

    @property
    def touched(self) -> set[tuple[int, str]]:
        """The tasks and buckets of the rows."""
        return {(task_id, bucket_of_digits(begin)) for task_id, begin in self._begins}

    def rows(self) -> bytes:
        """All rows, one behind the other."""
        return self._map[_BEGIN : self._end]

    def clear(self) -> None:
        """Forget all rows, which are stored."""
        self._note(_BEGIN, 0)
        self._begins = set()

    def close(self) -> None:
        """Close the file; if it still holds rows, it stays for the next process."""
        self._map.close()
        if self._file is None or self._descriptor is None:
            return
        if self.num_rows == 0:
            self._file.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _note(self, end: int, num_rows: int) -> None:
        """The rows count from now on. A kill before this forgets the last one, and damages no other."""
        _COUNTS.pack_into(self._map, len(_FORM), end, num_rows)
        self._end, self.num_rows = end, num_rows


class LeftRows:
    """The rows in a file of a process that has ended; nobody else reads them meanwhile."""

    def __init__(self, file: Path, descriptor: int) -> None:
        self._file, self._descriptor = file, descriptor
        content = file.read_bytes()
        end, self.num_rows = _COUNTS.unpack_from(content, len(_FORM)) if len(content) >= _BEGIN else (_BEGIN, 0)
        self.rows = content[_BEGIN:end]

    def remove(self) -> None:
        """Remove the file: its rows are stored, or cannot be."""
        self._file.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._descriptor)


def find_left(folder: Path) -> Iterator[LeftRows]:
    """What processes that have ended left behind; close each. Raises OSError."""
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            descriptor = os.open(file, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = LeftRows(file, descriptor)
        except (BlockingIOError, FileNotFoundError):  # its process lives, or another process has just stored it
            os.close(descriptor)
            continue
        yield left


def _make_file(folder: Path, size: int) -> tuple[Path | None, int | None]:
    """A locked file of this size; it gets the name by which others find it once it is locked."""
    name = secrets.token_hex(8)
    unnamed, file = folder / f".{name}", folder / f"{name}{_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(descriptor, 0, size)
            unnamed.rename(file)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        log.warning("prediction_log.in_memory", reason=error.strerror, remedy=f"give {folder} {size:,} bytes")
        with suppress(OSError):
            unnamed.unlink(missing_ok=True)
        return None, None
    return file, descriptor
