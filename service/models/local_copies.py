"""Local copies of released versions, `<home>/models/<task>/<version>/`, and which of them is current.

A restart serves the same version with the same bounds if neither registry nor database answers. Each file's content
is on disk before its name, so a kill at any moment leaves the old state or the new one.

Several workers share the copies of a home. A worker locks a task's folder while it changes the folder or loads from
it. So one worker downloads a version and the others load its copy, and no copy is removed while another worker loads
it. The lock ends with its process, so a killed worker leaves none behind.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from contracts.calibration import Calibration
from service.atomic_file import TEMPORARY_PREFIX, replace_file, sync
from store.releases import Overlay

CURRENT_FILE = "current.json"
# Next to a version's own files: when the registry made it.
_MADE_FILE = "made_at"
LOCK_SECONDS = 2.0


class Current(msgspec.Struct, frozen=True):
    """The version that answers, the previous one, and the overlay of each from `releases` (microseconds).

    `task_id` tells the task from a later one of the same name; None in copies of older releases. `former_names` are
    names that the task had before, and that manifests of older versions have.
    """

    version: str
    valid_until: int
    previous: str | None = None
    calibration: Calibration | None = None
    previous_overlay: Overlay | None = None
    task_id: int | None = None
    former_names: tuple[str, ...] = ()

    @property
    def overlays(self) -> dict[str, Overlay]:
        """The versions that may answer, with overlays, best first; the previous one only if its bound is known."""
        found = {self.version: Overlay(self.valid_until, self.calibration)}
        if self.previous is not None and self.previous_overlay is not None:
            found[self.previous] = self.previous_overlay
        return found


def update_overlay(current: Current, version: str, overlay: Overlay) -> Current:
    """A copy of `current` with a newer overlay of one of its versions."""
    if version == current.version:
        return replace(current, valid_until=overlay.valid_until, calibration=overlay.calibration)
    return replace(current, previous_overlay=overlay) if version == current.previous else current


def next_current(
    former: Current | None,
    answering: tuple[str, Overlay] | None,
    version: str,
    overlay: Overlay,
    *,
    task_id: int | None = None,
    former_names: tuple[str, ...] = (),
) -> Current:
    """The state after `version` answers; the previous version is the one that has answered so far, if any."""
    previous, before = None, None
    if former is not None and former.version == version and former.previous is not None:
        # Another worker has already written this state, or this version was damaged and is back.
        previous, before = former.previous, former.previous_overlay
    elif answering is not None and answering[0] != version:
        previous, before = answering
    elif former is not None and former.version != version:
        previous, before = former.version, former.overlays[former.version]
    if task_id is None and former is not None:
        task_id = former.task_id
    return Current(version, overlay.valid_until, previous, overlay.calibration, before, task_id, former_names)


@contextmanager
def lock_folder(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[bool]:
    """Lock a task's folder against the other workers of the home; False if the lock is not free within `seconds`.

    Raises OSError if the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _lock(handle, time.monotonic() + seconds)
    finally:
        os.close(handle)


def list_copies(models: Path) -> dict[str, Current]:
    """The current version of each task that has one."""
    found = {}
    for file in sorted(models.glob(f"*/{CURRENT_FILE}")):
        if (current := read_current(file.parent)) is not None:
            found[file.parent.name] = current
    return found


def read_current(folder: Path) -> Current | None:
    """The current state in a task's folder; None if there is none, or if it cannot be read."""
    try:
        return msgspec.json.decode((folder / CURRENT_FILE).read_bytes(), type=Current)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_current(folder: Path, version: str) -> bool:
    """Whether a restart finds this version as the current one."""
    current = read_current(folder)
    return current is not None and current.version == version and (folder / version).is_dir()


def write_current(folder: Path, current: Current) -> None:
    """Replace the current state of a task's folder in one step. Raises OSError."""
    replace_file(folder / CURRENT_FILE, msgspec.json.encode(current))


def save_overlay(folder: Path, version: str, overlay: Overlay) -> bool:
    """Save a version's overlay for a restart; False if the folder is locked for too long. Raises OSError."""
    with lock_folder(folder) as is_held:
        current = read_current(folder)
        if is_held and current is not None and (renewed := update_overlay(current, version, overlay)) != current:
            write_current(folder, renewed)
        return is_held


def fill_copy(folder: Path, version: str, fill: Callable[[Path], None], *, made_at: int | None = None) -> Path:
    """Write a version's files to a temporary folder with `fill`, then move the folder into place whole.

    `made_at` is when the registry made the version (milliseconds since the epoch), if the registry says so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / version
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=TEMPORARY_PREFIX))
    try:
        fill(temporary)
        if made_at is not None:
            (temporary / _MADE_FILE).write_text(str(made_at))
        for file in temporary.iterdir():
            sync(file)
        sync(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.replace(target)
        sync(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def read_made_at(folder: Path) -> int | None:
    """When the registry made the version of this folder; None if that is not known."""
    try:
        return int((folder / _MADE_FILE).read_text())
    except (OSError, ValueError):
        return None


def rename_folder(models: Path, name: str, new_name: str, former_names: tuple[str, ...]) -> None:
    """Keep a task's copies under its present name, unless another worker has done so. Raises OSError."""
    with lock_folder(models / name):
        current = read_current(models / name)
        if current is not None and not (models / new_name).exists():
            write_current(models / name, replace(current, former_names=former_names))
            (models / name).rename(models / new_name)
        else:
            shutil.rmtree(models / name, ignore_errors=True)
    sync(models)


def remove_folder(folder: Path) -> None:
    """Remove all copies of a task that is served no longer. Raises OSError."""
    if folder.is_dir():
        with lock_folder(folder):
            shutil.rmtree(folder, ignore_errors=True)


def remove_copies(folder: Path, current: Current) -> None:
    """Remove all that is neither current nor previous, including leftovers of a kill."""
    kept = {current.version, current.previous, CURRENT_FILE}
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _lock(handle: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True
