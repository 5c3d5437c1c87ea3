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
from msgspec.structs import replace

from contracts.calibration import Calibration
from contracts.releases import Overlay

CURRENT_FILE = "current.json"
_TEMPORARY = ".incoming-"


class Current(msgspec.Struct, frozen=True):
    """The version that answers, the one before it, and what `releases` says of either (microseconds)."""

    version: str
    valid_until: int
    previous: str | None = None
    calibration: Calibration | None = None
    previous_overlay: Overlay | None = None

    @property
    def overlays(self) -> dict[str, Overlay]:
        """The versions that may answer with their overlays, best first: the previous one, where its bound is known."""
        found = {self.version: Overlay(self.valid_until, self.calibration)}
        if self.previous is not None and self.previous_overlay is not None:
            found[self.previous] = self.previous_overlay
        return found


def renew(current: Current, version: str, overlay: Overlay) -> Current:
    """The same with a newer overlay of one of its versions."""
    if version == current.version:
        return replace(current, valid_until=overlay.valid_until, calibration=overlay.calibration)
    return replace(current, previous_overlay=overlay) if version == current.previous else current


def succeed(former: Current | None, answering: tuple[str, Overlay] | None, version: str, overlay: Overlay) -> Current:
    """What is current once `version` answers; the previous one is what has answered so far, if anything has."""
    previous, before = None, None
    if answering is not None and answering[0] != version:
        previous, before = answering
    elif former is not None and former.version != version:
        previous, before = former.version, former.overlays[former.version]
    elif former is not None:
        previous, before = former.previous, former.previous_overlay
    return Current(version, overlay.valid_until, previous, overlay.calibration, before)


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
