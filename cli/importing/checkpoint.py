"""How far an import has come, so that a broken one goes on where it ended instead of sending a million rows again.

Forgetting it does no harm: events are known by their `event_id`, and those that are stored already count as duplicates.
"""

from pathlib import Path

import msgspec

from contracts.errors import Unavailable


class Source(msgspec.Struct, frozen=True):
    """What is imported where to: with any other file, task or API an import begins anew."""

    url: str
    task: str
    size: int
    modified_ns: int


class Bookmark(msgspec.Struct, frozen=True):
    """The first `num_rows` rows are answered for; so many bytes of the rejects tell of them."""

    source: Source
    num_rows: int = 0
    counts: dict[str, int] = {}
    rejects_bytes: int = 0


def describe_source(url: str, task: str, file: Path) -> Source:
    """A file as it is now."""
    status = file.stat()
    return Source(url, task, status.st_size, status.st_mtime_ns)


def name_bookmark(file: Path, folder: Path) -> Path:
    """Where the bookmark of a file lies while its import has not come to the end."""
    return folder / f"{file.name}.bookmark"


def read_bookmark(path: Path, source: Source) -> Bookmark:
    """Where a former import of the very same ended, else the beginning."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Bookmark)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Bookmark(source)
    return found if found.source == source else Bookmark(source)


def write_bookmark(path: Path, bookmark: Bookmark) -> None:
    """Replace it in one step. Raises Unavailable where the folder cannot be written to."""
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_bytes(msgspec.json.encode(bookmark))
        beside.replace(path)
    except OSError as error:
        raise Unavailable(
            f"{path.parent} cannot be written to ({error.strerror}): name another by --folder."
        ) from error
