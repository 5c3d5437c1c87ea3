"""Walk the past of a task, cutoff by cutoff: what would have been released, served and closed.

Every cutoff sees what was known at it, later corrections not yet made, so a rerun stands on the same rows. All origins
are fitted before the walk, side by side, which costs far less than one by one and gives the same weights. A cycle takes
no time here: what a cutoff releases answers from the cutoff on. `trainer.replay.report` reads off how right it all was.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from contracts.calibration import Calibration
from contracts.clock import MICROSECOND
from contracts.errors import CycleError
from contracts.task import Task
from store.cells import Cell
from store.releases import Release
from trainer.data.snapshot import Reading
from trainer.data.windows import num_empty_windows
from trainer.evaluation.backtest import Report, judge, report_epoch
from trainer.evaluation.calibration import calibration_of
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import COUNTED_WINDOWS, AgeVerdict, judge_ages
from trainer.evaluation.origin_fits import UNCALIBRATED, Fit, fit_origins, keep_fit
from trainer.evaluation.release_gates import (
    Decision,
    check_horizon,
    check_rows,
    describe,
    first_failure,
    reason_to_skip,
)
from trainer.evaluation.suspect_windows import counted
from trainer.methods.gbdt import GBDT
from trainer.methods.plans import PLANS
from trainer.replay.simulated_store import CellKey, SimulatedStore
from trainer.retraining.champion_comparison import Pair, compare_with_champion
from trainer.rivals.missing_cells import MissingCell
from trainer.rivals.rivals import open_rival, report_unavailable, score_rival, with_method
from trainer.settings import TrainerSettings

RIVALS = ("baseline", "last_window", GBDT)


@dataclass(frozen=True)
class ReplayedCutoff:
    """One cutoff. Moments in microseconds.

    released   the version that this cutoff released, or None
    served     version and cutoff of the model that answers in the window that begins here, or None
    expected   what was expected at each age; the window that begins here has age 0
    seconds    by stage; what is done for many origins at once is shared out evenly
    """

    origin: int
    num_rows: int
    rows_digest: str
    horizon: int
    decisions: tuple[Decision, ...]
    released: str | None
    served: tuple[str, int] | None
    expected: tuple[AgeVerdict, ...]
    calibration: Calibration
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Replay:
    """The whole walk, and the matrix with the rivals' cells as it is known at its end; `releases` newest first."""

    task: Task
    cutoffs: tuple[ReplayedCutoff, ...]
    cells: Mapping[CellKey, Cell]
    releases: tuple[Release, ...]


@dataclass(frozen=True)
class _Walk:
    reading: Reading
    settings: TrainerSettings
    device: torch.device
    report: Report

    @property
    def task(self) -> Task:
        return self.reading.schema.task


def replay(
    reading: Reading,
    *,
    settings: TrainerSettings,
    device: torch.device,
    report: Report,
    first: int | None = None,
    rivals: Sequence[str] = RIVALS,
) -> Replay:
    """Walk to the last window that the reading knows, and tell of the origins from `first` on, of all where None.

    The walk begins as many windows before as a matrix counts, as if the task had been retrained all the while. Fits lie
    in a temporary folder meanwhile. Raises CycleError where nothing can be fitted.
    """
    task, origins = reading.schema.task, _plan(reading, first)
    with tempfile.TemporaryDirectory(prefix="morrow-") as home:
        walk = _Walk(reading, settings.model_copy(update={"home": Path(home)}), device, report)
        began = time.perf_counter()
        fits = _fit(walk, origins)
        share = (time.perf_counter() - began) / len(fits)
        history = SimulatedStore(task)
        cutoffs = [_step(walk, history, origin, fits.get(origin), share) for origin in origins]
        history.score(reading)
        history.enforce(reading.cutoff)
        told = [cutoff for cutoff in cutoffs if first is None or cutoff.origin >= first]
        for method in rivals:
            told = _run_rival(walk, history, method, told)
    return Replay(task, tuple(told), history.cells, tuple(history.releases))


def _plan(reading: Reading, first: int | None) -> list[int]:
    """The boundaries to walk, of which at least one is to be told of.

    Left out are those so long after the last event that no matrix and no horizon reaches back to it: one event of a
    wrong century must not make a walk of centuries.
    """
    task, rows = reading.schema.task, reading.current
    window = task.clock.window
    if len(rows) == 0:
        raise CycleError("There is nothing to replay: no event is known.")
    begin = rows.at[0] if first is None else task.clock.window_start(first) - COUNTED_WINDOWS * window
    reach = max(COUNTED_WINDOWS, task.guard.max_age) * window
    starts = np.unique(task.clock.window_starts(rows.at)).tolist()
    origins = [
        origin
        for start, following in pairwise(starts)
        for origin in range(start + window, min(following, start + reach) + 1, window)
        if origin >= begin
    ]
    if not origins or (first is not None and origins[-1] < first):
        raise CycleError("There is nothing to replay: no window begins after a cutoff.")
    return origins


def _fit(walk: _Walk, origins: Sequence[int]) -> dict[int, Fit]:
    """The fits of those origins that know enough."""
    reading, task = walk.reading, walk.task
    known = [origin for origin in origins if reason_to_skip(task, reading.fit_rows(origin)) is None]
    if not known:
        raise CycleError("There is nothing to replay: no cutoff has rows enough for a fit.")
    walk.report("replay.began", num_origins=len(known))
    fits = fit_origins(
        reading, known, walk.device, walk.settings.max_members, lambda epoch: report_epoch(walk.report, "fit", epoch)
    )
    return {fit.origin: fit for fit in fits}


def reading_as_of(reading: Reading, cutoff: int) -> Reading:
    """What a cycle of this cutoff would have read then."""
    events = reading.events
    return Reading(reading.schema, cutoff, cutoff, events.select((events.at < cutoff) & (events.known_at <= cutoff)))


def _step(walk: _Walk, history: SimulatedStore, origin: int, fit: Fit | None, fit_seconds: float) -> ReplayedCutoff:
    """One cutoff: labels are scored and the guard looks at them, then the cycle runs."""
    began, task = time.perf_counter(), walk.task
    past = reading_as_of(walk.reading, origin)
    history.score(past)
    history.enforce(origin)
    scored = time.perf_counter()
    known = past.known(origin)
    decisions = check_rows(task, past.fit_rows(origin))
    horizon, released, calibration = 0, None, UNCALIBRATED
    expected: tuple[AgeVerdict, ...] = ()
    if fit is not None:
        cells = history.ordered_cells()
        verdict, expected, calibration = judge(past, cells), _expect(past, cells), calibration_of(task, cells)
        horizon = verdict.horizon
        store = FitStore(walk.settings.home, task)
        manifest = keep_fit(
            fit,
            past,
            store,
            device=walk.device,
            git_sha=walk.settings.git_sha,
            verdict=verdict,
            calibration=calibration,
        )
        history.add_fit(store.open(origin))
        decisions += check_horizon(task, verdict)
        if first_failure(decisions) is None:
            decisions += _compare_with_champion(history, past, cells)
        if first_failure(decisions) is None:
            released = history.release(manifest, describe(task, origin, verdict, decisions, []))
    failure = first_failure(decisions)
    walk.report("replay.walked", origin=origin, released=released, reason=None if failure is None else failure.reason)
    return ReplayedCutoff(
        origin=origin,
        num_rows=len(known),
        rows_digest=known.digest,
        horizon=horizon,
        decisions=tuple(decisions),
        released=released,
        served=_served(history, origin),
        expected=expected,
        calibration=calibration,
        seconds={
            "fit": fit_seconds if fit is not None else 0.0,
            "score": scored - began,
            "judge": time.perf_counter() - scored,
        },
    )


def _expect(past: Reading, cells: Sequence[Cell]) -> tuple[AgeVerdict, ...]:
    """Every age's figures, counted from the cutoff as `judge` counts them after empty windows."""
    task = past.schema.task
    ages = judge_ages(
        counted(task, cells),
        method=task.training.method,
        error_name=task.error_name,
        clock=task.clock,
        guard=task.guard,
        label_delay=task.label_delay // MICROSECOND,
    )
    empty = num_empty_windows(task, past.latest, past.cutoff)
    return tuple(replace(age, age=age.age - empty) for age in ages[empty:])


def _compare_with_champion(history: SimulatedStore, past: Reading, cells: Sequence[Cell]) -> list[Decision]:
    champion = history.champion()
    if champion is None:
        return compare_with_champion(past, cells, None, None)
    promise, valid_until = champion
    pair = Pair(history.fits[past.cutoff], history.fits[promise.cutoff], valid_until)
    return compare_with_champion(past, cells, promise.cutoff, lambda: pair)


def _served(history: SimulatedStore, window: int) -> tuple[str, int] | None:
    """Version and cutoff of the champion, if it is valid when the window begins."""
    champion = history.champion()
    return (champion[0].version, champion[0].cutoff) if champion and champion[1] > window else None


def _run_rival(
    walk: _Walk, history: SimulatedStore, method: str, cutoffs: Sequence[ReplayedCutoff]
) -> list[ReplayedCutoff]:
    """Fit a rival at the origins of what was served, score it on the same windows, and note the seconds."""
    if report_unavailable(method, walk.report):
        return list(cutoffs)
    began = time.perf_counter()
    windows: dict[int, list[int]] = {}
    for cutoff in cutoffs:
        origin = cutoff.served[1] if cutoff.served else cutoff.origin
        cell = history.cells.get((origin, cutoff.origin, walk.task.training.method))
        if cell is not None and cell.is_complete:
            windows.setdefault(origin, []).append(cutoff.origin)
    walk.report("rival.began", method=method, num_origins=len(windows))
    settings = walk.settings
    if method in PLANS:
        reading = with_method(walk.reading, method)
        store = FitStore(settings.home, reading.schema.task)
        for fit in fit_origins(reading, sorted(windows), walk.device, settings.max_members, lambda _epoch: None):
            keep_fit(fit, reading, store, device=walk.device, git_sha=settings.git_sha, verdict=None)
    for origin in sorted(windows):
        rival = open_rival(walk.reading, method, origin, settings, walk.device)
        for window in windows[origin]:
            cell = score_rival(walk.reading, rival, MissingCell(method, origin, window, 0))
            history.cells[origin, window, method] = cell
    share = (time.perf_counter() - began) / max(1, len(cutoffs))
    return [replace(cutoff, seconds={**cutoff.seconds, method: share}) for cutoff in cutoffs]
