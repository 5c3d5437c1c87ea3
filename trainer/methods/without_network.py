"""What rivals without a network share: answers in the label's unit, and fits that are kept on disk.

A kept fit is a folder that appears whole or not at all. It holds a body in the rival's own format, and notes: the
recipe, the encoder of rows, and the checksum of the body.
"""

import shutil
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.errors import ArtefactRefused
from contracts.manifest import checksum
from contracts.task import Task
from trainer.data.encoder import Encoder

# The smallest scale of a regression, in standardised labels.
LEAST_STANDARD_SCALE = 0.01


class Notes(msgspec.Struct, frozen=True):
    """The notes on a body: all else that its answers depend on. `scale` is in standardised labels."""

    recipe: str
    encoder: Encoder
    scale: float
    checksum: str


def without_views(task: Task, **changes: object) -> Task:
    """The task for a fit that reads numbers alone; only networks have members that read different views."""
    return task.with_training(task.training.model_copy(update={"views": ("plain",), **changes}))


def in_units_of_labels(encoder: Encoder, means: NDArray[np.float64], scale: float) -> list[NDArray[np.float32]]:
    """[mean (n,), scale (n,)] in the label's unit, from standardised means `(n,)` and one scale."""
    unit = encoder.label_unit
    answers = unit.means(means)
    return [answers.astype(np.float32), unit.scales(np.full(len(means), scale), answers).astype(np.float32)]


def keep_body(folder: Path, name: str, body: bytes, *, recipe: str, encoder: Encoder, scale: float) -> None:
    """Write the body under its name and the notes under `notes_name`; the folder appears whole or not at all."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / name).write_bytes(body)
    notes = Notes(recipe, encoder, scale, checksum(partial / name))
    (partial / notes_name(name)).write_bytes(msgspec.json.encode(notes))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def read_body(folder: Path, name: str, recipe: str) -> tuple[Notes, bytes]:
    """The notes and the body that are kept in `folder`. Raises ArtefactRefused if they are damaged."""
    try:
        notes = msgspec.json.decode((folder / notes_name(name)).read_bytes(), type=Notes)
        if notes.recipe != recipe or checksum(folder / name) != notes.checksum:
            raise ArtefactRefused(f"{name} does not match its notes in {notes_name(name)}.")
        return notes, (folder / name).read_bytes()
    except (OSError, msgspec.MsgspecError) as error:
        raise ArtefactRefused(f"The kept {name} cannot be read: {error}") from error


def notes_name(name: str) -> str:
    """The file of the notes: `gbdt.json` for `gbdt.txt`."""
    return Path(name).with_suffix(".json").name
