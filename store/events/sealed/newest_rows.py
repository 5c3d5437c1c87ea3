"""Sealed rows at either end of a task: for looks at its newest and oldest rows, which seldom reach a file."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection

from contracts.clock import to_micros
from store.events.sealed.manifest import list_files, read_live
from store.events.sealed.parquet_rows import SealedFiles, StoredRow, micros, read_widths, to_rows

if TYPE_CHECKING:
    from store.events.sealed.manifest import SealedFile


@dataclass(frozen=True)
class Outermost:
    """How many rows are wanted of `[first, end)`, from which end, and the moment that they must lie beyond, if any.

    The table has as many rows up to that moment, so rows on its other side are not wanted. Moments in microseconds.
    """

    count: int
    newest: bool
    first: int | None = None
    end: int | None = None
    beyond: int | None = None

    def reaches(self, file: "SealedFile", moment: int | None) -> bool:
        """Whether a file has rows outside a moment."""
        return moment is None or (file.last_at > moment if self.newest else file.first_at < moment)


def read_outermost(
    connection: Connection, task_id: int, wanted: Outermost, counts: Callable[[StoredRow], bool] = lambda _row: True
) -> list[StoredRow]:
    """The outermost sealed rows that count, the outermost first, at most as many as wanted."""
    found: list[StoredRow] = []
    files = list_files(connection, task_id, first=wanted.first, end=wanted.end)
    for file in reversed(files) if wanted.newest else files:
        last = to_micros(found[-1].at) if len(found) == wanted.count else None
        if not wanted.reaches(file, wanted.beyond) or not wanted.reaches(file, last):
            continue
        table = SealedFiles().read(file)
        at = micros(table, "at")
        places = np.flatnonzero(
            read_live(connection, file)
            & (at >= (wanted.first if wanted.first is not None else at.min()))
            & (at < (wanted.end if wanted.end is not None else at.max() + 1))
        )
        widths = read_widths(connection, task_id)
        # Pieces from the wanted end, until enough of their rows count.
        pieces = np.array_split(places, max(1, -(-len(places) // max(1, wanted.count))))
        of_file: list[StoredRow] = []
        for piece in reversed(pieces) if wanted.newest else pieces:
            of_file += [row for row in to_rows(table.take(piece), widths) if counts(row)]
            if len(of_file) >= wanted.count:
                break
        found = sorted([*found, *of_file], key=lambda row: row.at, reverse=wanted.newest)[: wanted.count]
    return found


def read_page(
    connection: Connection, task_id: int, first: int, last: int, *, before: tuple[datetime, str] | None, count: int
) -> list[StoredRow]:
    """At most `count` sealed rows dated from `first` to `last` (microseconds): the newest first, then the greatest id.

    They come after the row of this moment and id, if it is given.
    """
    found: list[StoredRow] = []
    end = last if before is None else min(last, to_micros(before[0]))
    for file in reversed(list_files(connection, task_id, first=first)):
        if file.first_at > end or (len(found) == count and file.last_at < to_micros(found[-1].at)):
            continue
        table = SealedFiles().read(file)
        at = micros(table, "at")
        places = np.flatnonzero(read_live(connection, file) & (at >= first) & (at <= end))
        if before is not None:
            same = {place for place in places[at[places] == end] if end == to_micros(before[0])}
            ids = table.column("event_id")
            places = np.array([one for one in places if one not in same or ids[one].as_py() < before[1]], np.int64)
        if len(places) > count:
            places = places[at[places] >= np.partition(at[places], -count)[-count]]
        rows = to_rows(table.take(places), read_widths(connection, task_id))
        found = sorted([*found, *rows], key=lambda row: (row.at, row.event_id), reverse=True)[:count]
    return found
