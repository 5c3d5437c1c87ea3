"""The state that a deployment would have had at each past cutoff: kept fits, cells and releases, all in memory.

A replay calls the same functions as live scoring, the horizon guard and the cycle. Only their tables are replaced, so a
replay never changes the matrix or the releases of a task that is being served.
"""

from contracts.clock import from_micros
from contracts.manifest import Manifest
from contracts.task import Task
from contracts.verdict import RowFigures, Verdict
from store.error_cells import Cell, Mark
from store.releases import Action, Release
from trainer.data.snapshot import Reading
from trainer.data.windows import complete_until, in_window
from trainer.evaluation.fit_store import score_fit
from trainer.export.opened_artefact import Artefact
from trainer.monitoring.horizon_guard import ACTOR, find_change, find_settled
from trainer.monitoring.live_scoring import find_stale
from trainer.monitoring.promises import Promise, read_promise

CellKey = tuple[int, int, str]


class SimulatedStore:
    """Everything that is known so far."""

    def __init__(self, task: Task) -> None:
        self.cells: dict[CellKey, Cell] = {}
        self.releases: list[Release] = []
        self.fits: dict[int, Artefact] = {}
        self._task = task

    def add_fit(self, fit: Artefact) -> None:
        """Score this kept fit on every later window from now on."""
        self.fits[fit.manifest.cutoff] = fit

    def score(self, past: Reading) -> None:
        """Score the labels that the cells lack, late labels and corrections included."""
        task, cutoff = self._task, past.cutoff
        labelled = past.current
        for window, origins in find_stale(task, self.fits, past.fingerprints, self._marks(), cutoff).items():
            rows = in_window(labelled, window, task.clock)
            if len(rows) == 0:
                self.cells = {key: cell for key, cell in self.cells.items() if cell.window != window}
                continue
            for origin in origins:
                cells = score_fit(
                    self.fits[origin],
                    rows,
                    window=window,
                    num_revisions=past.fingerprints[window][1],
                    is_complete=window < complete_until(task, cutoff),
                )
                self.cells.update({(cell.origin, cell.window, cell.method): cell for cell in cells})

    def ordered_cells(self) -> list[Cell]:
        """All cells, oldest window first, as the table is read."""
        return [self.cells[key] for key in sorted(self.cells, key=lambda key: (key[1], key[0], key[2]))]

    def enforce(self, now: int) -> None:
        """Close and reopen released versions as the horizon guard does; `now` in microseconds."""
        settled = find_settled(self._task, self._marks(), now)
        for version, cutoff in [(promise.version, promise.cutoff) for promise in self._promises()]:
            marks = {mark.window: mark for mark in settled if mark.origin == cutoff}
            while change := find_change(self._rows_of(version), marks):
                self._append(
                    version,
                    change.action,
                    valid_until=change.valid_until,
                    verdict=change.verdict,
                    now=now,
                    reason=change.reason,
                )

    def release(self, manifest: Manifest, verdict: Verdict) -> str:
        """Release the fit of a cutoff, which is the champion from then on; returns its version."""
        version = str(1 + len(self._promises()))
        self._append(
            version,
            "release",
            valid_until=manifest.valid_until,
            verdict=verdict,
            now=manifest.cutoff,
            reason="every rule is kept",
        )
        return version

    def champion(self) -> tuple[Promise, int] | None:
        """The promise of the newest release and its current `valid_until`; None if nothing is released."""
        promises = self._promises()
        return (promises[0], self._rows_of(promises[0].version)[0].valid_until) if promises else None

    def _promises(self) -> list[Promise]:
        return [promise for row in self.releases if (promise := read_promise(row))]

    def _rows_of(self, version: str) -> list[Release]:
        return [row for row in self.releases if row.version == version]

    def _append(
        self, version: str, action: Action, *, valid_until: int, verdict: RowFigures, now: int, reason: str
    ) -> None:
        """Insert a row in front: newest first, as the table is listed."""
        row = Release(len(self.releases), version, action, valid_until, None, verdict, ACTOR, reason, from_micros(now))
        self.releases.insert(0, row)

    def _marks(self) -> list[Mark]:
        return [
            Mark(
                origin=cell.origin,
                window=cell.window,
                method=cell.method,
                num_rows=cell.num_rows,
                loss=cell.loss,
                metric=cell.metric,
                num_revisions=cell.num_revisions,
                is_complete=cell.is_complete,
                scored_at=cell.window
                + self._task.clock.window,  # nothing is overridden here, so the end of the window will do
            )
            for cell in self.cells.values()
        ]
