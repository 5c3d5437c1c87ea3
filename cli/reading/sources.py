"""Files and pipes as they are opened: compressed or not, and refused by name if they hold something else.

A pipe is copied to a temporary file first. So it is read like any file, whose encoding and separators are found by
looking into all of it.
"""

import bz2
import gzip
import io
import lzma
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, BinaryIO, cast

from contracts.errors import Fault, InvalidInput, NotFound
from contracts.shown import say_count

STDIN = Path("-")
_DEVICES = ("/dev/", "/proc/")
_COMPRESSED = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
)
_PARQUET = b"PAR1"
# A tar archive says what it is behind the name and the owner of its first file.
_TAR, _TAR_PLACE = b"ustar", 257
# What begins like this is no text, and is refused by name.
_FOREIGN = (
    (b"\xd0\xcf\x11\xe0", "a workbook of Excel 97: save the sheet as CSV"),
    (b"ARROW1", "Arrow IPC (Feather): save it as Parquet"),
    (b"ORC", "ORC: save it as Parquet"),
    (b"Obj\x01", "Avro: save it as Parquet or NDJSON"),
    (b"SQLite format 3", "a database of SQLite: export the table as CSV"),
    (b"\x04\x22\x4d\x18", "compressed with lz4: decompress it first"),
    (b"\x1f\x9d", "compressed with compress (.Z): decompress it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: extract the file first"),
    (b"Rar!", "a RAR archive: extract the file first"),
    (b"%PDF", "PDF: export the table as CSV"),
    (b"\x89HDF", "HDF5: save the table as Parquet or CSV"),
)
# What reading a damaged file raises.
DAMAGES = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Source:
    """An open file. Each call of `open` begins again; `raw` is the file as it is stored, `length` bytes."""

    name: str
    raw: BinaryIO
    length: int
    compression: str | None
    is_pipe: bool

    def open(self) -> BinaryIO:
        """The content from its beginning, decompressed. Raises InvalidInput."""
        self.raw.seek(0)
        return _decompress(self.raw, self.compression, self.name)

    def digest(self) -> str | None:
        """A digest of the decompressed content; None if the file is damaged. Rows are read on as before."""
        place, found = self.raw.tell(), blake2b(digest_size=16)
        try:
            content = self.open()
            while piece := content.read(2**20):
                found.update(piece)
        except DAMAGES:
            return None
        finally:
            self.raw.seek(place)
        return found.hexdigest()

    def tell(self, _num_rows: int) -> int:
        """How far the stored file is read, in bytes."""
        return self.raw.tell()

    @property
    def content_name(self) -> Path:
        """The name of the file inside a ZIP archive; otherwise that of the file."""
        if self.compression != "zip":
            return Path(self.name)
        self.raw.seek(0)
        return Path(_list_members(zipfile.ZipFile(self.raw))[0])

    @property
    def is_parquet(self) -> bool:
        """Whether the content begins as Parquet does."""
        return _read_head(self).startswith(_PARQUET)


def is_pipe(file: Path) -> bool:
    """Whether a file can be read only once, and so cannot be resumed."""
    return file == STDIN or str(file).startswith(_DEVICES) or not file.is_file()


def name_of(file: Path) -> str:
    """The file's name, for files that are written next to it; `stdin` for a pipe."""
    return "stdin" if file == STDIN or str(file).startswith(_DEVICES) else file.name


def folder_of(file: Path) -> Path:
    """The folder for what is written next to the file: the present one for a pipe."""
    return Path() if file == STDIN or str(file).startswith(_DEVICES) else file.parent


@contextmanager
def open_source(file: Path) -> Iterator[Source]:
    """A file or a pipe (`-`). Raises InvalidInput if it cannot be read, or holds what is neither text nor Parquet."""
    name = "standard input" if name_of(file) == "stdin" else str(file)
    with _open_raw(file, name) as raw:
        head = raw.read(16)
        compression = next((kind for magic, kind in _COMPRESSED if head.startswith(magic)), None)
        length = raw.seek(0, io.SEEK_END)
        source = Source(name, raw, length, compression, is_pipe(file))
        start = _read_head(source)
        for magic, what in _FOREIGN:
            if start.startswith(magic):
                raise InvalidInput([Fault(name, f"is {what}")])
        if start[_TAR_PLACE:].startswith(_TAR):
            raise InvalidInput([Fault(name, f"is a tar archive: extract the file first (tar -xf {name})")])
        inner = next((kind for magic, kind in _COMPRESSED if start.startswith(magic)), None)
        if compression is not None and inner is not None:
            raise InvalidInput([Fault(name, f"is {inner} inside {compression}: decompress it once, and try again")])
        yield source


@contextmanager
def _open_raw(file: Path, name: str) -> Iterator[BinaryIO]:
    if file == STDIN and sys.stdin is None:
        raise InvalidInput([Fault(name, "is closed: name a file, or pipe the rows in")])
    try:
        stream: IO[bytes] = sys.stdin.buffer if file == STDIN else file.open("rb")
    except OSError as error:
        raise InvalidInput([Fault(name, f"cannot be read: {error.strerror}")]) from error
    with stream:
        if not is_pipe(file):
            yield cast(BinaryIO, stream)
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(stream, copy, 2**20)
            copy.seek(0)
            yield cast(BinaryIO, copy)


def copy_to_file(source: Source) -> IO[bytes]:
    """The decompressed content in a temporary file. Raises InvalidInput if the file is damaged."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 the caller closes it
    try:
        shutil.copyfileobj(source.open(), copy, 2**20)
    except DAMAGES as error:
        copy.close()
        raise damage(source, error) from error
    copy.seek(0)
    return copy


def damage(source: Source, error: Exception, place: str = "") -> InvalidInput:
    """The refusal of a file that cannot be read to its end."""
    words = str(error).strip().splitlines()
    kind = f"{source.compression} " if source.compression else ""
    reason = f"is damaged {kind}or ends too early{place}: {words[0] if words else repr(error)}"
    return InvalidInput([Fault(source.name, reason)])


def _read_head(source: Source) -> bytes:
    try:
        return source.open().read(_TAR_PLACE + len(_TAR))
    except DAMAGES as error:
        raise damage(source, error) from error


def _decompress(raw: BinaryIO, compression: str | None, name: str) -> BinaryIO:
    match compression:
        case "gzip":
            return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        case "bzip2":
            return cast(BinaryIO, bz2.BZ2File(raw))
        case "xz":
            return cast(BinaryIO, lzma.LZMAFile(raw))
        case "zstd":
            return _open_zstd(raw)
        case "zip":
            return _open_zip(raw, name)
    return raw


def _open_zstd(raw: BinaryIO) -> BinaryIO:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise NotFound("zstd needs pyarrow: pip install 'morrow[trainer]', or decompress the file.") from error
    unclosed = pa.PythonFile(_Unclosed(raw), mode="r")
    return cast(BinaryIO, io.BufferedReader(pa.CompressedInputStream(unclosed, "zstd")))


class _Unclosed(io.RawIOBase):
    """A view of a file that stays open when the view is closed."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(size)


def _open_zip(raw: BinaryIO, name: str) -> BinaryIO:
    try:
        archive = zipfile.ZipFile(raw)
    except zipfile.BadZipFile as error:
        raise InvalidInput([Fault(name, f"is a damaged ZIP archive: {error}")]) from error
    names = _list_members(archive)
    if "xl/workbook.xml" in names:
        raise InvalidInput([Fault(name, "is an Excel workbook: save the sheet as CSV")])
    if "content.xml" in names:
        raise InvalidInput([Fault(name, "is an OpenDocument file: save the sheet as CSV")])
    if len(names) != 1:
        raise InvalidInput(
            [Fault(name, f"is a ZIP archive of {say_count(len(names), 'file')}: extract the one to read")]
        )
    try:
        return cast(BinaryIO, archive.open(names[0]))
    except (RuntimeError, NotImplementedError) as error:
        raise InvalidInput([Fault(name, f"is a ZIP archive that cannot be opened: {error}")]) from error


def _list_members(archive: zipfile.ZipFile) -> list[str]:
    """The files of an archive, without folders, hidden files and what macOS adds."""
    return [
        one.filename
        for one in archive.infolist()
        if not one.is_dir() and not one.filename.startswith("__MACOSX") and not Path(one.filename).name.startswith(".")
    ]
