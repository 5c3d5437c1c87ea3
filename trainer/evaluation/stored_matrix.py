"""The stored cells that a cycle may count, and those that nobody may count any more, which are deleted here.

A cell counts while it says what it seems to say: the error of a fit that could be made today, on the rows that its
window holds today. Two things end that.

    other rows    The window has got late rows or corrections since, or lost rows by an erasure, a retraction, or a
                  DELETE by SQL. If the fit is kept, it scores the window again. If it is gone, nobody can, so the cell
                  is deleted. A pair that every age is scored on is then fitted again.
    withdrawn     A retraction says that events of an import were never true. A fit that has read them measures the
    fits          mistake, on whatever rows it is scored. So it is deleted with all cells of its origin, also those of
                  rivals, and the origin is fitted again where it is needed.

An erased event was true: it goes, but an error that was measured with its help stays one. A correction takes effect
when it was known, as in every training set. So neither ends a fit.

Windows before the reading hold rows that this cycle does not read. They are counted only if a cell was scored after the
cutoff, or before events were last withdrawn: other cells know what was known.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
from sqlalchemy import Connection, Engine

from contracts.clock import from_micros
from contracts.task import Task
from store.error_cells import (
    NAIVE,
    VARIANTS,
    Cell,
    Mark,
    delete_marked,
    delete_origin,
    find_oldest_of_newest,
    read_cells,
    read_marks,
    record_cells,
)
from store.events.imports import Retraction, find_last_withdrawal, list_retractions
from store.events.reading.counts import read_fingerprints
from trainer.data.snapshot import Reading
from trainer.data.windows import history_start, in_window
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.old_cells import READ_WINDOWS
from trainer.methods.gbdt import GBDT

log = structlog.get_logger(__name__)

# Window -> the number of its current rows and of all their revisions.
Fingerprints = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class StoredMatrix:
    """The cells that count, and the (origin, window) of others that a kept fit must score again."""

    cells: list[Cell]
    to_rescore: list[tuple[int, int]]


class CellLedger(Protocol):
    """Where the cells of a matrix are kept while it is filled."""

    def read(self, reading: Reading, store: FitStore, needed: Collection[tuple[int, int]]) -> StoredMatrix:
        """The kept cells that count as of the reading."""
        ...

    def record(self, reading: Reading, cells: Sequence[Cell]) -> None:
        """Keep cells that were scored on the rows of the reading."""
        ...


@dataclass(frozen=True)
class StoredCells:
    """The ledger in PostgreSQL, which cycles and live scoring share."""

    engine: Engine

    def read(self, reading: Reading, store: FitStore, needed: Collection[tuple[int, int]]) -> StoredMatrix:
        return read_stored(self.engine, reading, store, needed)

    def record(self, reading: Reading, cells: Sequence[Cell]) -> None:
        task_id, recipe = reading.schema.task_id, reading.schema.task.recipe
        with self.engine.begin() as connection:
            record_cells(connection, task_id, recipe, cells, from_micros(reading.read_at))


class CellsInMemory:
    """A ledger of the cells of one reading, which ends with the process: no row comes or goes meanwhile."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int, str], Cell] = {}

    def read(self, reading: Reading, store: FitStore, needed: Collection[tuple[int, int]]) -> StoredMatrix:  # noqa: ARG002
        return StoredMatrix([*self._cells.values()], [])

    def record(self, reading: Reading, cells: Sequence[Cell]) -> None:  # noqa: ARG002
        self._cells |= {(cell.origin, cell.window, cell.method): cell for cell in cells}


def read_stored(
    engine: Engine, reading: Reading, store: FitStore, needed: Collection[tuple[int, int]] = ()
) -> StoredMatrix:
    """The cells of the newest windows that count as of the reading; those that nobody may count again are deleted.

    The windows are those that judges use, and those of the `needed` pairs.
    """
    task_id, task = reading.schema.task_id, reading.schema.task
    with engine.begin() as connection:
        _discard_withdrawn(connection, reading, store)
        since = find_oldest_of_newest(connection, task_id, task.recipe, until=reading.cutoff, count=READ_WINDOWS)
        if since is not None:
            since = min([since, *(window for _, window in needed)])
        marks = _read_marks(connection, reading, since)
        known_since, known = _read_known(connection, reading, marks)
        others = [
            mark
            for mark in marks
            if (known_since is None or mark.window >= known_since) and _rows(mark) != known.get(mark.window, (0, 0))
        ]
        gone = _find_gone(connection, reading, others, known)
        late = [mark for mark in others if mark.num_revisions < known.get(mark.window, (0, 0))[1]]
        ours = (task.training.method, NAIVE)
        scorable = {mark for mark in {*late, *gone} if mark.method in ours and _can_score(reading, store, mark)}
        doomed = {*gone, *late} - (scorable - {*gone})  # a cell replaces only one that knows fewer revisions
        if doomed:
            delete_marked(connection, task_id, task.recipe, doomed)
        # Calibration asks for our method's sketches, and the mixture for those of its experts.
        sketched = (task.training.method, *VARIANTS, GBDT) if task.training.can_mix else (task.training.method,)
        cells = read_cells(connection, task_id, task.recipe, until=reading.cutoff, since=since, sketched=sketched)
    counted = [
        cell
        for cell in cells
        if (known_since is not None and cell.window < known_since) or _rows(cell) == known.get(cell.window, (0, 0))
    ]
    return StoredMatrix(counted, sorted({(mark.origin, mark.window) for mark in scorable}))


def _discard_withdrawn(connection: Connection, reading: Reading, store: FitStore) -> None:
    """Delete the fits that have read events which were retracted since, and the cells of their origins."""
    task_id, task = reading.schema.task_id, reading.schema.task
    if not (retractions := list_retractions(connection, task_id)):
        return
    marks = read_marks(connection, task_id, task.recipe, since=None)
    fits = find_withdrawn(task, store.read_moments(), retractions)
    scored = {mark.origin for mark in marks if _is_withdrawn(task, mark.origin, mark.scored_at, retractions)}
    for origin in sorted(fits | scored):
        # Before the cells are deleted, because the live job scores the fits that it finds.
        if origin in fits:
            store.discard(origin)
        store.discard_rivals(origin)
        delete_origin(connection, task_id, task.recipe, origin)
    if fits or scored:
        log.info("fits.withdrawn", task=task.name, num_fits=len(fits), num_origins=len(fits | scored))


def find_withdrawn(task: Task, read_moments: Mapping[int, int], retractions: Iterable[Retraction]) -> set[int]:
    """The origins of fits that have read retracted events, by the moments when their rows were read."""
    known = list(retractions)
    return {origin for origin, read_at in read_moments.items() if _is_withdrawn(task, origin, read_at, known)}


def _is_withdrawn(task: Task, origin: int, read_at: int, retractions: Iterable[Retraction]) -> bool:
    first = history_start(task, origin)
    return any(retraction.voids(first, origin, read_at) for retraction in retractions)


def _read_marks(connection: Connection, reading: Reading, since: int | None) -> list[Mark]:
    """The stored cells whose windows start before the cutoff, and at or after `since` if given."""
    task = reading.schema.task
    first = None if since is None else since - task.guard.max_age * task.clock.window
    marks = read_marks(connection, reading.schema.task_id, task.recipe, since=first)
    return [mark for mark in marks if mark.window < reading.cutoff and (since is None or mark.window >= since)]


def _read_known(
    connection: Connection, reading: Reading, marks: Iterable[Mark]
) -> tuple[int | None, dict[int, tuple[int, int]]]:
    """What windows held at the cutoff, and the first window of which that is known; None if it is of all."""
    if reading.since is None:
        return None, reading.fingerprints
    task_id, task = reading.schema.task_id, reading.schema.task
    withdrawn_at = find_last_withdrawal(connection, task_id)
    asked = [
        mark.window
        for mark in marks
        if mark.window < reading.since
        and (mark.scored_at > reading.cutoff or (withdrawn_at is not None and mark.scored_at <= withdrawn_at))
    ]
    if not asked:
        return reading.since, reading.fingerprints
    since = min(asked)
    older = read_fingerprints(connection, task_id, task, reading.cutoff, since=since, until=reading.since)
    return since, reading.fingerprints | older


def _find_gone(connection: Connection, reading: Reading, others: Iterable[Mark], known: Fingerprints) -> list[Mark]:
    """The cells that know rows which are not there now: rows were deleted, or moved to another window.

    Cells that know more than the cutoff are ordinary if that is known now. Those of another trainer whose clock is
    ahead may be right.
    """
    asked = [
        mark
        for mark in others
        if mark.num_revisions >= known.get(mark.window, (0, 0))[1] and mark.scored_at <= reading.read_at
    ]
    if not asked:
        return []
    task = reading.schema.task
    since, until = min(mark.window for mark in asked), max(mark.window for mark in asked) + task.clock.window
    present = read_fingerprints(connection, reading.schema.task_id, task, reading.read_at, since=since, until=until)
    return [
        mark
        for mark in asked
        if _rows(mark) != (found := present.get(mark.window, (0, 0))) and mark.num_revisions >= found[1]
    ]


def _rows(cell: Cell | Mark) -> tuple[int, int]:
    return cell.num_rows, cell.num_revisions


def _can_score(reading: Reading, store: FitStore, mark: Mark) -> bool:
    """Whether the fit of a cell is kept, and its window holds rows that were read."""
    if reading.since is not None and mark.window < reading.since:
        return False
    rows = in_window(reading.current, mark.window, reading.schema.task.clock)
    return len(rows) > 0 and store.find(mark.origin) is not None
