"""Local copies of released versions, `<home>/models/<task>/<version>/`, and which of them is current.

A restart serves the same version with the same bounds when neither registry nor database answers. Every file is on
the disk before its name is: a kill at any moment leaves the former state or the new one.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

CURRENT_FILE = "current.json"
_TEMPORARY = ".incoming-"


class Current(msgspec.Struct, frozen=True):
    """The version that answers, the one before it, and until when the former is valid (microseconds)."""

    version: str
    valid_until: int
    previous: str | None = None


def list_copies(models: Path) -> dict[str, Current]:
    """The current version of each task that has one."""
    found = {}
    for file in sorted(models.glob(f"*/{CURRENT_FILE}")):
        if (current := read_current(file.parent)) is not None:
            found[file.parent.name] = current
    return found


def read_current(folder: Path) -> Current | None:
    """What a task's folder says is current; None where it says nothing that can be read."""
    try:
        return msgspec.json.decode((folder / CURRENT_FILE).read_bytes(), type=Current)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_current(folder: Path, current: Current) -> None:
    """Replace it in one step."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_TEMPORARY, delete=False) as file:
        file.write(msgspec.json.encode(current))
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(folder / CURRENT_FILE)
    _sync(folder)


def fill_copy(folder: Path, version: str, fill: Callable[[Path], None]) -> Path:
    """The folder of a version, put in place whole after `fill` has written its files to a temporary one."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / version
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=_TEMPORARY))
    try:
        fill(temporary)
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.replace(target)
        _sync(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def remove_copies(folder: Path, current: Current) -> None:
    """Remove what is neither current nor previous, leftovers of a kill included."""
    kept = {current.version, current.previous, CURRENT_FILE}
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
