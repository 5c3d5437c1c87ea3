"""A task file for a file of rows, checked as an import would check it."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from cli.file_rows.batches import batch_rows
from cli.file_rows.checks import check_rows
from cli.file_rows.columns import normalise
from cli.file_rows.formats import COMPRESSED, Format
from cli.file_rows.opened_file import open_rows
from cli.file_rows.reasons import Reason, add_reasons, find_refused_rows
from cli.inferring.guess import FEWEST_ROWS, ROW_NUMBER, Guessed, Said, guess_task
from cli.inferring.kinds import Judged
from cli.inferring.profile import MAX_ROWS, Column, Split, read_profile
from cli.inferring.split_moments import find_split
from cli.inferring.task_file import write_task_file
from cli.reading.options import Options, name_options
from cli.reading.sources import is_pipe, name_of
from contracts.shown import say_count
from contracts.spec.spec_values import suggest_name
from contracts.task import Task
from service.advice.import_options import spell_import

_NUM_REASONS_SHOWN = 5
_CODE = re.compile(r"(?=.*\d)[\w./#:-]{1,64}")
# Share of the rows with a code of their own: a file may hold some rows twice.
_LEAST_DIFFERENT = 0.9


@dataclass(frozen=True)
class Inferred:
    """The text of a task file, and the command that imports the rows."""

    name: str
    text: str
    import_command: str
    summary: str
    notes: tuple[str, ...]
    has_valid_rows: bool = True


def infer(
    file: Path,
    *,
    format: Format | None,
    name: str | None,
    said: Said,
    options: Options,
    now: datetime,
) -> Inferred:
    """The task file for a file. Raises InvalidInput if the file cannot be read, or has no moments or no label."""
    taken = {normalise(column) for column in (said.label, *(column for column, _ in said.kinds)) if column is not None}

    def find(columns: Sequence[Column]) -> Split | None:
        return find_split([one for one in columns if normalise(one.name) not in taken], said.at, options)

    profile = read_profile(file, format, options, find)
    named = name or suggest_name(_stem(file)).lower()
    guessed = guess_task(profile, named, said=said, options=options, now=now)
    task = Task.model_validate(tomllib.loads(write_task_file(guessed, profile, file.name, "")))
    guessed = _compose_ids(file, format, guessed, task)
    command = spell_import(named, name_options(guessed.options, format), str(file))
    text = write_task_file(guessed, profile, file.name, command)
    kind = f"classification into {len(guessed.classes)} classes" if guessed.classes else task.target.kind
    summary = (
        f"{kind} of {task.target.name} by {say_count(len(task.features), 'feature')}, in windows of {guessed.window}"
    )
    num_valid, notes = (1, []) if is_pipe(file) else _check(file, format, task, guessed.options)
    label = [] if said.label is not None else [f"the label is {guessed.label.name}, {guessed.label_why}"]
    remarks = [f"Note: {note}." for note in (*label, *guessed.notes)]
    return Inferred(named, text, command, summary, (*notes, *remarks), has_valid_rows=num_valid > 0)


def _stem(file: Path) -> str:
    path = Path(name_of(file))
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem


def _compose_ids(file: Path, format: Format | None, guessed: Guessed, task: Task) -> Guessed:
    """With ids of a column that names rows, or of a number, such as a customer's, and the moment.

    No two different rows may share an id.
    """
    if guessed.ids is not None or guessed.options.id_from or is_pipe(file):
        return guessed
    for one in guessed.left_out:
        options = replace(guessed.options, id_from=(one.name,))
        if _may_name_rows(one) and _tells_apart(file, format, task, options):
            return replace(guessed, options=options)
    times = guessed.at.column.parts or (guessed.at.name,)
    for one in guessed.left_out:
        options = replace(guessed.options, id_from=(one.name, *times))
        is_plain = not any("," in name for name in options.id_from)
        if ROW_NUMBER.search(one.key) and is_plain and _tells_apart(file, format, task, options):
            return replace(guessed, options=options)
    return guessed


def _may_name_rows(one: Judged) -> bool:
    """Whether nearly every row has a code of its own, such as TK-000123. A number of the row may change."""
    return (
        one.kind == "none"
        and bool(one.counts)
        and not one.num_missing
        and not one.column.is_row_number
        and "," not in one.name
        and len(one.counts) >= _LEAST_DIFFERENT * one.counts.total()
        and all(map(_CODE.fullmatch, one.counts))
    )


def _tells_apart(file: Path, format: Format | None, task: Task, options: Options) -> bool:
    """Whether each row has an id, and rows that share one are equal. Rows without another fault count only."""
    found: dict[str, bytes] = {}
    with open_rows(file, format, task, options, lambda: None) as opened:
        for row in islice(opened.rows, MAX_ROWS):
            if any(fault.field == "event_id" for fault in row.faults):
                return False
            if row.is_sent and not row.faults and found.setdefault(_id_of(row.line), row.line) != row.line:
                return False
    return len(found) >= FEWEST_ROWS


def _id_of(line: bytes) -> str:
    event_id: str = json.loads(line)["event_id"]
    return event_id


def _check(file: Path, format: Format | None, task: Task, options: Options) -> tuple[int, list[str]]:
    """How many of the first rows are valid, and what an import of them would say."""
    counts: Counter[str] = Counter()
    reasons: dict[str, Reason] = {}
    with open_rows(file, format, task, options, lambda: None) as opened:
        for batch in batch_rows(opened.rows):
            refused = find_refused_rows(batch, check_rows(batch, task))
            reasons = add_reasons(reasons, refused)
            counts.update({"valid": len(batch) - len(refused), "refused": len(refused)})
            if counts.total() >= MAX_ROWS:
                break
    worst = sorted(reasons.values(), key=lambda reason: -reason.count)[:_NUM_REASONS_SHOWN]
    rows, are = say_count(counts.total(), "row"), "is" if counts["valid"] == 1 else "are"
    num_others = len(reasons) - len(worst)
    others = (
        [f"  … and {'1 other reason' if num_others == 1 else f'{num_others:,} other reasons'}."] if num_others else []
    )
    return counts["valid"], [
        f"Of {rows} {counts['valid']:,} {are} valid and {counts['refused']:,} would be refused.",
        *(f"  {reason.describe()}" for reason in worst),
        *others,
    ]
