"""Warnings about stored rows that look as if their task, or their producer, means something else."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from contracts.clock import format_moment
from contracts.missing import INFINITE, PLACEHOLDERS
from contracts.task import Feature, Target, Task
from service.advice.repairs import MAX_NAMED, name_some, say_correction, say_reimport, say_repair
from service.validation.names import printable
from store.errors import SealedRowsUnreadable
from store.events.far_rows import FarRows, FutureEvents, find_far_rows, find_future
from store.events.sample import Sample, read_sample
from store.events.sealed.manifest import read_totals
from store.tasks.catalog import Schema

# Fewer rows say little about the values that a feature has.
MIN_ROWS = 100
# A number with no more whole values than these is likely a code or a boolean.
MAX_CODES = 12
MAX_SHOWN = 6
# Of texts that are alike, the groups that a warning names, and the spellings of each.
_MAX_GROUPS = _MAX_SPELLINGS = 3


@dataclass(frozen=True)
class RowWarnings:
    """Warnings about stored rows: likely mistakes of the task or its producers, and rows far from all others.

    `future` are the events that are dated more than a window ahead.
    """

    mistakes: Sequence[str] = ()
    far: Sequence[str] = ()
    future: FutureEvents | None = None


def read_row_warnings(connection: Connection, schema: Schema, now: datetime) -> RowWarnings:
    """Every warning about the rows of a task. It reads a bounded number of them."""
    troubles = read_totals(connection, schema.task_id).troubles
    try:
        sample = read_sample(connection, schema)
        far = find_far_rows(connection, schema, sample.labels, now)
    except SealedRowsUnreadable as error:
        return RowWarnings(troubles or [str(error)])
    future = find_future(connection, schema.task_id, now + schema.task.window)
    mistakes = [*troubles, *warn_of_rows(schema.task, sample)]
    return RowWarnings(mistakes, warn_of_far_rows(schema.task, far), future)


def warn_of_rows(task: Task, sample: Sample) -> list[str]:
    """Every warning about the values of a task's newest rows."""
    if task.is_classification:
        warnings = warn_of_classes(task, sample.labels)
    else:
        warnings = _warn_of_odd_labels(task, sample)
        warnings += _warn_of_counts(task.target, [float(label) for label in sample.labels])
    warnings += _warn_of_misfits(task, sample)
    for place, feature in enumerate(task.categories):
        texts = {row[place] for row in sample.categories}
        warnings += _warn_of_alike(task.name, "categories", f"feature {feature.name}", texts)
        warnings += _warn_of_placeholders(task.name, feature, texts)
    for place, feature in enumerate(task.numbers):
        if feature.kind == "number":
            warnings += _warn_of_codes(feature.name, [row[place] for row in sample.numbers])
    return warnings


def warn_of_far_rows(task: Task, far: FarRows) -> list[str]:
    """Warn of events dated far from all others, which no fit reads, and of labels far outside the others."""
    warnings = []
    for events, side, end in ((far.before, "before", "begin"), (far.after, "after", "end")):
        if events is not None:
            count = "1 event is" if events.count == 1 else f"{events.count:,} events are"
            ids = name_some(events.ids, events.count)
            bound = f"--{'until' if side == 'before' else 'from'} {format_moment(events.others)}"
            repair = say_repair(task.name, events.ids, bound)
            warnings.append(
                f"{count} dated far {side} the others, the outermost at {format_moment(events.outermost)} ({ids}): no "
                f"fit reads them, and the others {end} at {format_moment(events.others)}; {repair}"
            )
    for group in far.apart:
        ids = name_some(group.ids, len(group.ids))
        repair = say_repair(
            task.name, group.ids, f"--from {format_moment(group.begin)} --until {format_moment(group.end)}"
        )
        side, end = ("before", "begin") if group.is_older else ("after", "end")
        warnings.append(
            f"{'' if group.is_counted else 'at least '}{group.count:,} events ({ids}) are dated from "
            f"{format_moment(group.begin)} to {format_moment(group.end)}, long {side} the others, which {end} at "
            f"{format_moment(group.others)}. They are too many to be left out: fits read them, and no version answers "
            f"for moments between. If they are dated wrongly, such as in seconds taken for milliseconds, {repair}, or "
            f"retract their import with morrow events retract {task.name} --import ID"
        )
    if (labels := far.labels) is not None:
        some = [f"{value:.6g}" for value in labels.values[:MAX_NAMED]]
        warnings.append(
            f"{labels.num_far:,} of the newest {labels.num_labels:,} labels lie far outside the others, which are from "
            f"{labels.low:.6g} to {labels.high:.6g}: {', '.join(some)}. Unless a feature predicts them, fits and "
            f"scores count them as the nearest end of that range. If they stand for missing labels, "
            f"{say_reimport(task.name, some)}"
        )
    return warnings


def warn_of_classes(task: Task, labels: Collection[str] = ()) -> list[str]:
    """Warn of classes, listed ones and these labels, that are written in two ways."""
    texts = {*(task.target.classes or ()), *labels}
    alike = _warn_of_alike(task.name, "classes", f"target {task.target.name}", texts)
    return alike + _warn_of_placeholders(task.name, task.target, texts)


def _warn_of_odd_labels(task: Task, sample: Sample) -> list[str]:
    """Warn of labels of a regression that are no numbers: only a client that writes past the API can store them."""
    if not sample.num_odd:
        return []
    count = "1 event has a label that is" if sample.num_odd == 1 else f"{sample.num_odd:,} events have labels that are"
    some = ", ".join(f"{printable(event_id)} ({printable(label)!r})" for event_id, label in sample.odd)
    more = ", …" if sample.num_odd > len(sample.odd) else ""
    return [
        f"{count} no finite number: {some}{more}. They were written past the API, and count in no fit and no score: "
        f"{say_repair(task.name, [event_id for event_id, _ in sample.odd], reason='wrong label')}"
    ]


def _warn_of_misfits(task: Task, sample: Sample) -> list[str]:
    """Warn of rows of another width than the task's: only a client that writes past the API can store them."""
    if not sample.misfits:
        return []
    count = len(sample.misfits)
    have = "1 event has" if count == 1 else f"{count:,} events have"
    return [
        f"{have} more or fewer values than {task.name} has features: {name_some(sample.misfits, count)}. Written past "
        "the API, a value that is not there counts as missing, and one too many for nothing; "
        f"{say_repair(task.name, sample.misfits, reason='wrong features')}"
    ]


def _warn_of_counts(target: Target, labels: Sequence[float]) -> list[str]:
    """Warn of labels that are counts, if nothing says that predictions and intervals begin at 0."""
    if len(labels) < MIN_ROWS or target.has_bounds or min(labels) < 0 or not all(map(float.is_integer, labels)):
        return []
    return [
        f"target {target.name} holds whole numbers from {min(labels):.0f} on, yet predictions and intervals may be "
        "negative: set minimum = 0 under [target] if it counts something"
    ]


def _warn_of_alike(task_name: str, what: str, where: str, texts: Collection[str]) -> list[str]:
    """Warn of texts that differ in case or blanks only."""
    found: dict[str, list[str]] = {}
    for text in sorted(texts):
        found.setdefault("".join(text.split()).casefold(), []).append(text)
    alike = [group for group in found.values() if len(group) > 1]
    if not alike:
        return []
    more = len(alike) - _MAX_GROUPS
    shown = "; ".join(map(_name_spellings, alike[:_MAX_GROUPS]))
    shown += f"; and {more:,} more such group{'s' if more > 1 else ''}" if more > 0 else ""
    return [
        f"{where}: {what} that differ in case or blanks only count as different: {shown}. Make the file write them "
        f"alike, {say_reimport(task_name)}; for single events, {say_correction(task_name)}"
    ]


def _name_spellings(group: Sequence[str]) -> str:
    """The first spellings of a group, and how many others there are."""
    more = len(group) - _MAX_SPELLINGS
    if more > 0:
        return f"{', '.join(map(repr, group[:_MAX_SPELLINGS]))} and {more:,} more"
    return " and ".join(filter(None, (", ".join(map(repr, group[:-1])), repr(group[-1]))))


def _warn_of_placeholders(task_name: str, field: Feature | Target, texts: Collection[str]) -> list[str]:
    """Warn of texts that stand for a missing value."""
    missing = [text for text in sorted(texts) if text.casefold() in PLACEHOLDERS | INFINITE]
    if not missing:
        return []
    if isinstance(field, Feature):
        where, what = f"feature {field.name}", "categories"
        optional = "" if field.optional else "set optional = true and "
        remedy = f"{optional}send null; for rows of a file, {say_reimport(task_name, missing)}"
    else:
        where, what = f"target {field.name}", "classes"
        remedy = (
            f"send an event once its label is known; for rows of a file, {say_reimport(task_name, missing)}; for "
            f'single events, morrow events erase {task_name} ID --reason "no label"'
        )
    return [
        f"{where}: {', '.join(map(repr, missing))} counts like any other of its {what}: if it means a missing value, "
        f"{remedy}"
    ]


def _warn_of_codes(name: str, column: Sequence[float]) -> list[str]:
    """Warn of a number with few whole values, which may be a code, a boolean or a count."""
    given = [value for value in column if not math.isnan(value)]
    values = sorted({*given})
    if len(given) < MIN_ROWS or not 2 <= len(values) <= MAX_CODES or not all(map(float.is_integer, values)):
        return []
    shown = ", ".join(f"{value:.0f}" for value in values[:MAX_SHOWN]) + (", …" if len(values) > MAX_SHOWN else "")
    if values == [0.0, 1.0]:
        remedy = 'kind = "boolean" if they mean false and true, kind = "integer" if they are counts'
    else:
        remedy = 'kind = "category" if they are codes, kind = "integer" if they are counts or ranks'
    return [f"feature {name} is of kind number and has {len(values)} whole values only ({shown}): set {remedy}"]
