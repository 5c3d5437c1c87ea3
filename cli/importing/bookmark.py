"""How far an import has come, so that the same command resumes a broken one instead of sending a million rows again.

Losing a bookmark does no harm: an event that is stored already, by its `event_id`, counts as a duplicate.
"""

from pathlib import Path

import msgspec

from cli.file_rows.bookmarks import load_bookmark, save_bookmark
from cli.file_rows.reasons import Reason


class Source(msgspec.Struct, frozen=True):
    """The file, task and API of an import. A bookmark of any other source is not used."""

    url: str
    task: str
    size: int
    modified_ns: int


class Bookmark(msgspec.Struct, frozen=True):
    """The first `num_rows` rows are sent and answered; the first `rejects_bytes` of the rejects belong to them.

    All rows of a file belong to one import, whose id stays when it is resumed. `began_at` tells it from an import of
    the same id in another database.
    """

    source: Source
    num_rows: int = 0
    counts: dict[str, int] = {}
    rejects_bytes: int = 0
    reasons: dict[str, Reason] = {}
    import_id: int | None = None
    began_at: str | None = None


def describe_source(url: str, task: str, file: Path) -> Source:
    """The source with the file's present size and time."""
    status = file.stat()
    return Source(url, task, status.st_size, status.st_mtime_ns)


def name_bookmark(file: Path, folder: Path) -> Path:
    """The path of a file's bookmark, which exists until its import has ended."""
    return folder / f"{file.name}.bookmark"


def read_bookmark(path: Path, source: Source) -> Bookmark:
    """The bookmark of an earlier import of the same source, else one at the beginning."""
    found = load_bookmark(path, Bookmark)
    return found if found is not None and found.source == source else Bookmark(source)


def write_bookmark(path: Path, bookmark: Bookmark) -> None:
    """Replace the bookmark in one step. Raises Unavailable if the folder cannot be written to."""
    save_bookmark(path, bookmark, option="--folder")
