"""How far a command has come with a file of rows, kept in a file so that the same command goes on."""

from pathlib import Path
from typing import TypeVar

import msgspec

from contracts.errors import Unavailable

T = TypeVar("T", bound=msgspec.Struct)


def load_bookmark(path: Path, kind: type[T]) -> T | None:
    """The bookmark of an earlier command; None if there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def save_bookmark(path: Path, bookmark: msgspec.Struct, *, option: str) -> None:
    """Replace the bookmark in one step. Raises Unavailable with the option that names another folder."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(msgspec.json.encode(bookmark))
        new.replace(path)
    except OSError as error:
        raise Unavailable(
            f"{path.parent} cannot be written to ({error.strerror}): choose another folder with {option}."
        ) from error
