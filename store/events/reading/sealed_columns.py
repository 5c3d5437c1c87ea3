"""Sealed rows for reads: those that a read may see, as arrays, and in which order they and the table's rows stand.

A file is read twice, first without its numbers, which take most of the memory. So nothing but the result is held.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from contracts.clock import to_micros
from contracts.task import Task
from store.database import FIRST_MOMENT
from store.events.row_forms import Forms
from store.events.sealed.manifest import SealedFile, list_files, list_windows, read_live
from store.events.sealed.parquet_rows import SealedFiles, codes, micros

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST = to_micros(FIRST_MOMENT)


@dataclass(frozen=True)
class Span:
    """Which rows a read may see: those that happened in `[since, until)` and before `cutoff`, and were known by it."""

    cutoff: int
    since: int | None = None
    until: int | None = None

    @property
    def first(self) -> int:
        return _FIRST if self.since is None else self.since

    @property
    def end(self) -> int:
        return self.cutoff if self.until is None else min(self.cutoff, self.until)


@dataclass(frozen=True)
class Coded:
    """The texts of a column, and the place among them of each row's `(n,)`."""

    texts: Sequence[str]
    places: NDArray[np.int32]


@dataclass(frozen=True)
class _Source:
    """Rows of a file by their places `(n,)`, and the forms in which they are wanted."""

    files: SealedFiles
    file: SealedFile
    task: Task
    forms: Forms
    rows: NDArray[np.int64]

    def read(self, columns: Sequence[str]) -> "pa.Table":
        return self.files.read(self.file, columns).take(self.rows)


@dataclass(frozen=True)
class SealedRows:
    """Rows of one file in a task's own form, in the order of (at, event_id).

    at, known_at  (n,)   int64    microseconds
    withheld      (n,)   bool
    categories           one for each category
    label                texts of a classification; of a regression float64 `(n,)`
    """

    source: _Source
    at: NDArray[np.int64]
    known_at: NDArray[np.int64]
    withheld: NDArray[np.bool_]
    schema_ids: NDArray[np.int32]
    categories: Sequence[Coded]
    label: Coded | NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.at)

    def read_numbers(self) -> NDArray[np.float64]:
        """The numbers `(n, p)`; NaN if missing."""
        numbers = np.full((len(self), len(self.source.task.numbers)), np.nan)
        forms = self.source.forms.forms
        wanted = {f"number_{place - 1}" for form in forms for place in form.numbers if place is not None}
        table = self.source.read(sorted(wanted)) if wanted else None
        for form in forms:
            of_form = np.isin(self.schema_ids, form.schema_ids)
            for place, source in enumerate(form.numbers):
                if source is not None and table is not None and of_form.any():
                    column = table.column(f"number_{source - 1}").to_numpy(zero_copy_only=False)
                    numbers[of_form, place] = column[of_form]
        return numbers

    @cached_property
    def event_ids(self) -> list[str]:
        """The ids of the rows."""
        found: list[str] = self.source.read(["event_id"]).column("event_id").to_pylist()
        return found


def find_rows(connection: Connection, task_id: int, task: Task, forms: Forms, span: Span) -> Iterator[SealedRows]:
    """The sealed rows that a read may see, file by file, of files that have any. Raises SealedRowsUnreadable."""
    files = SealedFiles()
    for file in list_files(connection, task_id, first=span.first, end=span.end):
        if forms_of(file, forms):
            names = ["at", "known_at", "withheld", "schema_id", "label"]
            most = max((place or 0 for form in forms.forms for place in form.categories), default=0)
            table = files.read(file, [*names, *(f"category_{place}" for place in range(most))])
            rows = np.flatnonzero(read_live(connection, file) & _allowed(table, forms, span))
            if len(rows):
                yield _cut(_Source(files, file, task, forms, rows), table.take(rows))


def forms_of(file: SealedFile, forms: Forms) -> bool:
    """Whether a file holds rows of any of these forms."""
    return not file.schema_ids.isdisjoint(forms.schema_ids)


def count_rows(connection: Connection, task_id: int, task: Task, forms: Forms, span: Span) -> dict[int, int]:
    """Start of each window (microseconds) -> the number of sealed rows of it that a read may see.

    A file all of whose rows it may see is not read: the manifest says how many there are.
    """
    files = list_files(connection, task_id, first=span.first, end=span.end)
    if not files:
        return {}
    clock, found = task.clock, dict[int, int]()
    known = {file.file_id for file in files if _is_known(file, forms, span.cutoff)}
    windows = [window for window in list_windows(connection, task_id) if window.file_id in known]
    for window in windows:
        start = clock.window_start(window.first_at)
        inside = span.first <= window.first_at and window.last_at < span.end
        if clock.window_start(window.last_at) != start or (
            not inside and span.first <= window.last_at and window.first_at < span.end
        ):
            known.discard(window.file_id)
    for window in windows:
        if window.file_id in known and span.first <= window.first_at < span.end:
            start = clock.window_start(window.first_at)
            found[start] = found.get(start, 0) + window.num_rows
    read = SealedFiles()
    for file in files:
        if file.file_id not in known and forms_of(file, forms):
            table = read.read(file, ["at", "known_at", "schema_id", "label"])
            at = micros(table, "at")[read_live(connection, file) & _allowed(table, forms, span)]
            starts, counts = np.unique(clock.window_starts(at), return_counts=True)
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
                found[start] = found.get(start, 0) + count
    return found


def find_newest_moments(
    connection: Connection, task_id: int, forms: Forms, span: Span, *, most: int, after: int | None
) -> list[int]:
    """The moments of the newest sealed rows that a read may see, newest first; none at or before `after`."""
    found: list[int] = []
    for file in reversed(list_files(connection, task_id, first=span.first, end=span.end)):
        is_older = after is not None and file.last_at <= after
        if is_older or (len(found) == most and file.last_at <= found[-1]):
            continue
        table = SealedFiles().read(file, ["at", "known_at", "schema_id", "label"])
        at = micros(table, "at")[read_live(connection, file) & _allowed(table, forms, span)]
        found = sorted([*found, *at[-most:].tolist()], reverse=True)[:most]
    return found


def _is_known(file: SealedFile, forms: Forms, cutoff: int) -> bool:
    """Whether a read may see all rows of a file, as far as their moments lie in its span."""
    return (
        file.last_known_at <= cutoff
        and file.schema_ids <= set(forms.schema_ids)
        and (forms.classes is None or (file.labels is not None and file.labels <= set(forms.labels)))
    )


def _allowed(table: "pa.Table", forms: Forms, span: Span) -> NDArray[np.bool_]:
    """Which rows a read may see, as the condition of `store.events.reading.columns.read_events` says."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = micros(table, "at")
    allowed: NDArray[np.bool_] = (at >= span.first) & (at < span.end) & (micros(table, "known_at") <= span.cutoff)
    allowed &= np.isin(table.column("schema_id").to_numpy(), forms.schema_ids)
    if forms.classes is not None:
        allowed &= pc.is_in(table.column("label"), value_set=pa.array(forms.labels, pa.string())).to_numpy()
    return allowed


def _cut(source: _Source, table: "pa.Table") -> SealedRows:
    """The rows of a table, which has some columns of this source."""
    task, forms = source.task, source.forms
    schema_ids = table.column("schema_id").to_numpy()
    texts, places = codes(table, "label")
    at, known_at = micros(table, "at"), micros(table, "known_at")
    return SealedRows(
        source=source,
        at=at,
        known_at=at if np.array_equal(at, known_at) else known_at,
        withheld=table.column("withheld").to_numpy(zero_copy_only=False).astype(np.bool_),
        schema_ids=schema_ids,
        categories=[_arrange(table, forms, schema_ids, place) for place in range(len(task.categories))],
        label=Coded(texts, places) if task.is_classification else _numbers(texts)[places],
    )


def _arrange(table: "pa.Table", forms: Forms, schema_ids: NDArray[np.int32], place: int) -> Coded:
    """One of the task's categories, of rows of several forms."""
    texts, found = [""], np.zeros(len(schema_ids), np.int32)
    for form in forms.forms:
        source, of_form = form.categories[place], np.isin(schema_ids, form.schema_ids)
        if source is not None and of_form.any():
            own, places = codes(table, f"category_{source - 1}")
            found[of_form] = places[of_form] + len(texts)
            texts += own
    return Coded(texts, found)


def _numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    numbers = np.array([float(text) for text in texts], np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def merged_places(
    recent: NDArray[np.int64], parts: Sequence[SealedRows], read_ids: Callable[[list[int]], list[str]]
) -> list[NDArray[np.int64]]:
    """The places of the table's rows and of each part's among all, in the order of (at, event_id, revision).

    `recent` are the moments of the table's rows, which are in that order. `read_ids` gets moments and returns the ids
    of the table's rows of these moments, in the same order. It is asked only about moments of which a file has rows as
    well.
    """
    moments = np.concatenate([recent, *(part.at for part in parts)])
    sizes = [len(recent), *map(len, parts)]
    order = np.argsort(moments, kind="stable")
    source = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[order]
    ordered = moments[order]
    is_tied = np.zeros(len(order), np.bool_)
    mixed = (ordered[1:] == ordered[:-1]) & (source[1:] != source[:-1])
    tied = np.unique(ordered[1:][mixed])
    if len(tied):
        is_tied = np.isin(ordered, tied)
        begins = list(accumulate(sizes, initial=0))
        ids = np.empty(int(is_tied.sum()), object)
        positions, sources = order[is_tied], source[is_tied]
        of_recent = sources == 0
        ids[of_recent] = read_ids(tied.tolist())
        for k, part in enumerate(parts, 1):
            of_part = sources == k
            ids[of_part] = [part.event_ids[place] for place in (positions[of_part] - begins[k]).tolist()]
        # UTF-8 sorts as code points do, and rows of one event, all of them the table's, keep their order.
        moments_tied = ordered[is_tied].tolist()
        order[is_tied] = positions[sorted(range(len(ids)), key=lambda place: (moments_tied[place], ids[place]))]
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return np.split(places, list(accumulate(sizes))[:-1])
