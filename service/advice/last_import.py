"""The newest import of a task: a file that comes later is best read with the same options."""

from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from service.advice.import_options import ImportOptions, spell_import, spell_predict
from store.events.imports import Import, find_last_import


@dataclass(frozen=True)
class LastImport:
    """The options of the newest import; None if its client did not say them.

    A retracted import counts only if all are. Its options may have been the mistake.
    """

    options: ImportOptions | None
    is_retracted: bool = False


@dataclass(frozen=True)
class FileCommands:
    """The commands that read files for a task, and what a person must know of their options."""

    events: str
    questions: str
    remark: str


def read_last_import(connection: Connection, task_id: int) -> LastImport | None:
    """The newest import of a task; None if there is none."""
    found = find_last_import(connection, task_id)
    return None if found is None else LastImport(read_options(found), found.retracted_at is not None)


def read_options(found: Import) -> ImportOptions | None:
    """The options of an import; None if its client did not say them, or if the column was written by hand."""
    try:
        return None if found.options is None else msgspec.convert(found.options, ImportOptions)
    except msgspec.ValidationError:
        return None


def spell_commands(task: str, last: LastImport | None) -> FileCommands:
    """The commands with the options of the newest import, as far as they are known."""
    options = ImportOptions() if last is None or last.options is None else last.options
    remark = ""
    if last is None or last.options is None:
        remark = "For an import, use the options of the last one, such as --map or --timezone."
    elif last.is_retracted and options != ImportOptions():
        remark = "Check the options: they are those of an import that was retracted."
    return FileCommands(spell_import(task, options), spell_predict(task, options), remark)
