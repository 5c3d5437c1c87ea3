"""Commands that mend stored events: single ones by their ids, or a whole import with the file that it read."""

import shlex
from collections.abc import Sequence

from service.advice.import_options import ImportOptions, list_words, spell
from service.validation.names import printable

# Ids that a warning names.
MAX_NAMED = 3


def name_some(ids: Sequence[str], count: int) -> str:
    """The first of these ids, of which there are `count`."""
    return ", ".join(map(printable, ids[:MAX_NAMED])) + (", …" if count > MAX_NAMED else "")


def say_repair(task_name: str, ids: Sequence[str], listed: str | None = None, *, reason: str = "wrong date") -> str:
    """Commands that correct or erase these events; `listed` are options of `morrow events list` that finds them all."""
    one, all_named = shlex.quote(ids[0]), " ".join(map(shlex.quote, ids[:MAX_NAMED]))
    them = "it" if len(ids) == 1 else "them"
    rest = "" if listed is None or len(ids) <= MAX_NAMED else f" (morrow events list {task_name} {listed} lists all)"
    return (
        f"correct {them} with morrow events correct {task_name} event.json, after morrow events show {task_name} {one} "
        f'> event.json, or erase {them} with morrow events erase {task_name} {all_named} --reason "{reason}"{rest}'
    )


def say_reimport(task_name: str, missing: Sequence[str] = ()) -> str:
    """Commands that retract an import and read its file once more, with these cells as missing values."""
    option = f" with {spell(list_words(ImportOptions(missing=tuple(missing))))}" if missing else ""
    return (
        f"retract their import with morrow events retract {task_name} --import ID (morrow events history {task_name} "
        f"lists them), and import the file again{option}"
    )


def say_correction(task_name: str) -> str:
    """Commands that correct any single event."""
    return (
        f"morrow events show {task_name} ID > event.json, then, once it is changed, morrow events correct {task_name} "
        "event.json"
    )
