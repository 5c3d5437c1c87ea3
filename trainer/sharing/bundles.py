"""The folder of a kept fit as one object and back: the same files always give the same bytes."""

import shutil
from pathlib import Path
from uuid import uuid4

import msgspec

from contracts.errors import ArtefactRefused
from contracts.manifest import EXPERTS_FILE, MANIFEST_FILE

# Says which store has the fit of a folder, as which object. Without it the fit was made here and is not shared yet.
MARKER_FILE = ".digest"


class _Listed(msgspec.Struct):
    checksums: dict[str, str]


def pack(folder: Path) -> bytes:
    """The files of a fit: for a network the manifest, the files that it lists and its experts, but no pictures.

    Raises ArtefactRefused if they cannot be read.
    """
    try:
        if (manifest := folder / MANIFEST_FILE).is_file():
            listed = msgspec.json.decode(manifest.read_bytes(), type=_Listed).checksums
            files = [manifest, *(folder / Path(name).name for name in listed)]
            files += [experts] if (experts := folder / EXPERTS_FILE).is_file() else []
        else:
            files = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
        content = {file.name: file.read_bytes() for file in files}
    except (OSError, msgspec.MsgspecError) as error:
        raise ArtefactRefused(f"The kept fit in {folder} cannot be read: {error}") from error
    return msgspec.msgpack.encode(content, order="sorted")


def unpack(content: bytes, folder: Path, held: tuple[str, str] | None = None) -> None:
    """Write the files of a packed fit into `folder`, which appears whole or not at all. Raises ArtefactRefused.

    `held` names the object that it is: the store's identity and the digest.
    """
    try:
        files = msgspec.msgpack.decode(content, type=dict[str, bytes])
    except msgspec.MsgspecError as error:
        raise ArtefactRefused(f"{_name(held)} is no kept fit: {error}") from error
    if any(Path(name).name != name or name == MARKER_FILE for name in files):
        raise ArtefactRefused(f"{_name(held)} holds a file whose name is no plain name.")
    partial = folder.with_name(f"{folder.name}.{uuid4().hex}.partial")
    partial.mkdir(parents=True)
    for name, file in files.items():
        (partial / name).write_bytes(file)
    if held is not None:
        mark(partial, *held)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        partial.rename(folder)
    except OSError:  # another process of this home has fetched it meanwhile
        shutil.rmtree(partial, ignore_errors=True)


def read_marker(folder: Path, store: str) -> str | None:
    """The digest of the object that a folder holds; None if this store does not have it yet."""
    try:
        named, _, digest = (folder / MARKER_FILE).read_text().partition(" ")
    except OSError:
        return None
    return digest if named == store else None


def mark(folder: Path, store: str, digest: str) -> None:
    """Note which object of a store a folder holds."""
    (folder / MARKER_FILE).write_text(f"{store} {digest}")


def unmark(folder: Path) -> None:
    """Note that the files of a folder are not in the store yet."""
    (folder / MARKER_FILE).unlink(missing_ok=True)


def is_whole(folder: Path) -> bool:
    """Whether a folder holds a fit, rather than the pictures of one or nothing."""
    try:
        return any(file.is_file() and file.name != MARKER_FILE for file in folder.iterdir())
    except OSError:
        return False


def _name(held: tuple[str, str] | None) -> str:
    return "What was received" if held is None else f"The object {held[1]}"
