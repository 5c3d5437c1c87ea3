"""What rivals without a network share: answers in the label's unit, and a fit kept on disk, whole or not at all.

A kept fit is a folder with a body, in whatever form the rival has, and notes beside it that say of which recipe it is,
how rows are encoded for it and what its bytes add up to.
"""

import shutil
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.errors import ArtefactRefused
from contracts.manifest import checksum
from trainer.data.encoder import Encoder

LEAST_SCALE = 0.01


class Notes(msgspec.Struct, frozen=True):
    """What is kept beside a body: all that its answers depend on. `scale` is in standardised labels."""

    recipe: str
    encoder: Encoder
    scale: float
    checksum: str


def in_units_of_labels(encoder: Encoder, means: NDArray[np.float64], scale: float) -> list[NDArray[np.float32]]:
    """[mean (n,), scale (n,)] of standardised means `(n,)` with one scale."""
    unit = encoder.label_unit
    answers = unit.means(means)
    return [answers.astype(np.float32), unit.scales(np.full(len(means), scale), answers).astype(np.float32)]


def keep_body(folder: Path, name: str, body: bytes, *, recipe: str, encoder: Encoder, scale: float) -> None:
    """Write the body under its name, and the notes under `notes_name`, into a folder that appears as a whole."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / name).write_bytes(body)
    notes = Notes(recipe, encoder, scale, checksum(partial / name))
    (partial / notes_name(name)).write_bytes(msgspec.json.encode(notes))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def read_body(folder: Path, name: str, recipe: str) -> tuple[Notes, bytes]:
    """The notes and the body that are kept in `folder`. Raises ArtefactRefused where they are not sound."""
    try:
        notes = msgspec.json.decode((folder / notes_name(name)).read_bytes(), type=Notes)
        if notes.recipe != recipe or checksum(folder / name) != notes.checksum:
            raise ArtefactRefused(f"{name} is not what {notes_name(name)} says.")
        return notes, (folder / name).read_bytes()
    except (OSError, msgspec.MsgspecError) as error:
        raise ArtefactRefused(f"The kept {name} cannot be read: {error}") from error


def notes_name(name: str) -> str:
    """`gbdt.txt` has its notes in `gbdt.json`."""
    return Path(name).with_suffix(".json").name
