"""How far the answers to a file have come, so that the same command goes on instead of asking again."""

from pathlib import Path

import msgspec

from cli.file_rows.bookmarks import load_bookmark, save_bookmark
from cli.file_rows.reasons import Reason


class Asked(msgspec.Struct, frozen=True):
    """What is asked, and where. A bookmark of anything else is not used."""

    url: str
    task: str
    digest: str | None
    columns: list[str]
    options: str
    at: str | None
    coverage: float | None


class Bookmark(msgspec.Struct, frozen=True):
    """The first `num_rows` rows are done; `num_bytes` of answers and `rejects_bytes` of rejects belong to them.

    `num_unpromised` answers have no expected error; `trained_until` is that of the newest answer. `unseen` counts the
    answers to categories that a version's fit has hardly seen, by feature.
    """

    asked: Asked
    num_rows: int = 0
    num_answered: int = 0
    num_bytes: int = 0
    rejects_bytes: int = 0
    versions: tuple[str, ...] = ()
    num_unpromised: int = 0
    trained_until: str | None = None
    unseen: dict[str, int] = {}
    reasons: dict[str, Reason] = {}


def name_bookmark(answers: Path) -> Path:
    """The path of the bookmark, which exists until all rows are answered."""
    return answers.with_name(f"{answers.name}.bookmark")


def read_bookmark(path: Path, asked: Asked) -> Bookmark:
    """The bookmark of an earlier command that asked the same, else one at the beginning."""
    found = load_bookmark(path, Bookmark)
    if found is None or found.asked != asked or asked.digest is None:
        return Bookmark(asked)
    return found


def write_bookmark(path: Path, bookmark: Bookmark) -> None:
    """Replace the bookmark in one step. Raises Unavailable if the folder cannot be written to."""
    save_bookmark(path, bookmark, option="--out")
