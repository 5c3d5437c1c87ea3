"""Replay the past of a task cutoff by cutoff: which versions would have been released, served and closed.

Each cutoff sees what was known at it, without later corrections, so a rerun uses the same rows. All origins are fitted
first, side by side; that costs far less than one by one and gives the same weights. A cycle takes no time here: a
version answers from its cutoff on. `trainer.replay.report` measures how right the promises were.
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
from contracts.errors import CycleError
from contracts.task import Task
from contracts.verdict import COUNTED_WINDOWS, Decision, Verdict, first_failure
from store.error_cells import Cell
from store.releases import Release
from trainer.data.snapshot import Reading
from trainer.data.windows import history_start, num_empty_windows
from trainer.evaluation.backtest import judge, report_epoch
from trainer.evaluation.calibration import calibration_of
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import AgeVerdict, horizon_rule, judge_ages
from trainer.evaluation.mixture import as_answered, mix
from trainer.evaluation.origin_fits import UNCALIBRATED, Fit, fit_origins, keep_fit
from trainer.evaluation.release_gates import (
    check_horizon,
    check_rows,
    describe_matrix,
    reason_to_skip,
)
from trainer.evaluation.suspect_windows import counted
from trainer.methods.gbdt import GBDT
from trainer.methods.plans import PLANS
from trainer.progress import Report
from trainer.replay.simulated_store import CellKey, SimulatedStore
from trainer.retraining.champion_comparison import Pair, compare_with_champion
from trainer.rivals.missing_cells import MissingCell
from trainer.rivals.rivals import open_rival, report_unavailable, score_rival, with_method
from trainer.settings import TrainerSettings

RIVALS = ("baseline", "last_window", GBDT)


@dataclass(frozen=True)
class ReplayedCutoff:
    """The result at one cutoff. Moments in microseconds.

    released   the version that this cutoff released, or None
    served     version and cutoff of the model that answers in the window that begins here, or None
    expected   the expected error at each age; the window that begins here has age 0
    seconds    by stage; time spent on many origins at once is divided evenly
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
    """The whole replay. `cells` is the matrix at its end, rivals included; `releases` are newest first."""

    task: Task
    cutoffs: tuple[ReplayedCutoff, ...]
    cells: Mapping[CellKey, Cell]
    releases: tuple[Release, ...]


@dataclass(frozen=True)
class _Run:
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
    """Replay up to the last window that the reading knows; the result covers origins from `first` on, or all if None.

    The replay starts before `first` by as many windows as a matrix counts, as if the task had always been retrained.
    Fits are kept in a temporary folder until the end. Raises CycleError if nothing can be fitted.
    """
    task, origins = reading.schema.task, _origins(reading, first)
    with tempfile.TemporaryDirectory(prefix="morrow-") as home:
        run = _Run(reading, settings.model_copy(update={"home": Path(home)}), device, report)
        began = time.perf_counter()
        fits = _fit(run, origins)
        share = (time.perf_counter() - began) / len(fits)
        simulated = SimulatedStore(task)
        cutoffs = [_replay_cutoff(run, simulated, origin, fits.get(origin), share) for origin in origins]
        simulated.score(reading)
        simulated.enforce(reading.cutoff)
        reported = [cutoff for cutoff in cutoffs if first is None or cutoff.origin >= first]
        for method in rivals:
            reported = _run_rival(run, simulated, method, reported)
    return Replay(task, tuple(reported), simulated.cells, tuple(simulated.releases))


def first_needed(task: Task, first: int | None) -> int | None:
    """Where a reading for a replay from `first` on begins; None for the first row."""
    if first is None:
        return None
    oldest = task.clock.window_start(first) - COUNTED_WINDOWS * task.clock.window
    start = history_start(task, oldest)
    return None if start is None else min(start, oldest - (1 + _reach(task)) * task.clock.window)


def _reach(task: Task) -> int:
    """How many windows after an event a matrix or a horizon can still reach it."""
    return max(COUNTED_WINDOWS, task.guard.max_age)


def _origins(reading: Reading, first: int | None) -> list[int]:
    """The window boundaries to replay; at least one of them is not before `first`.

    Boundaries are skipped if neither matrix nor horizon reaches back from them to an event: one event with a wrong
    century must not cause a replay of centuries.
    """
    task, rows = reading.schema.task, reading.current
    window = task.clock.window
    if len(rows) == 0:
        raise CycleError("There is nothing to replay: no event is known.")
    begin = rows.at[0] if first is None else task.clock.window_start(first) - COUNTED_WINDOWS * window
    reach = _reach(task) * window
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


def _fit(run: _Run, origins: Sequence[int]) -> dict[int, Fit]:
    """The fits of the origins that have enough rows."""
    reading, task = run.reading, run.task
    known = [origin for origin in origins if reason_to_skip(task, reading.fit_rows(origin)) is None]
    if not known:
        raise CycleError("There is nothing to replay: no cutoff has rows enough for a fit.")
    run.report("replay.began", num_origins=len(known))
    fits = fit_origins(
        reading,
        known,
        run.device,
        run.settings.max_members,
        lambda epoch: report_epoch(run.report, "fit", epoch),
        encoded_mib=run.settings.encoded_mib,
    )
    return {fit.origin: fit for fit in fits}


def reading_as_of(reading: Reading, cutoff: int) -> Reading:
    """The rows that a cycle of this cutoff would have read."""
    events = reading.events
    return Reading(reading.schema, cutoff, cutoff, events.select((events.at < cutoff) & (events.known_at <= cutoff)))


def _replay_cutoff(
    run: _Run, simulated: SimulatedStore, origin: int, fit: Fit | None, fit_seconds: float
) -> ReplayedCutoff:
    """One cutoff: score new labels, let the guard act on them, then run the cycle."""
    began, task = time.perf_counter(), run.task
    past = reading_as_of(run.reading, origin)
    simulated.score(past)
    simulated.enforce(origin)
    scored = time.perf_counter()
    known = past.known(origin)
    decisions = check_rows(task, past.fit_rows(origin))
    horizon, released, calibration = 0, None, UNCALIBRATED
    expected: tuple[AgeVerdict, ...] = ()
    if fit is not None:
        mixture = mix(task, simulated.ordered_cells(), origin)
        cells = as_answered(task, simulated.ordered_cells(), mixture)
        verdict, expected, calibration = judge(past, cells), _expected_errors(past, cells), calibration_of(task, cells)
        horizon = verdict.horizon
        store = FitStore(run.settings.home, task)
        manifest = keep_fit(
            fit,
            past,
            store,
            device=run.device,
            git_sha=run.settings.git_sha,
            verdict=verdict,
            calibration=calibration,
            mixture=mixture,
        )
        simulated.add_fit(store.open(origin))
        decisions += check_horizon(task, verdict)
        if first_failure(decisions) is None:
            decisions += _compare_with_champion(simulated, past, cells)
        if first_failure(decisions) is None:
            released = simulated.release(
                manifest, Verdict.of(*decisions, matrix=describe_matrix(task, origin, verdict, []))
            )
    failure = first_failure(decisions)
    run.report("replay.walked", origin=origin, released=released, reason=None if failure is None else failure.reason)
    return ReplayedCutoff(
        origin=origin,
        num_rows=len(known),
        rows_digest=known.digest,
        horizon=horizon,
        decisions=tuple(decisions),
        released=released,
        served=_served(simulated, origin),
        expected=expected,
        calibration=calibration,
        seconds={
            "fit": fit_seconds if fit is not None else 0.0,
            "score": scored - began,
            "judge": time.perf_counter() - scored,
        },
    )


def _expected_errors(past: Reading, cells: Sequence[Cell]) -> tuple[AgeVerdict, ...]:
    """The figures of each age, counted from the cutoff; like `judge`, it skips ages in empty windows."""
    task = past.schema.task
    ages = judge_ages(counted(task, cells), horizon_rule(task))
    empty = num_empty_windows(task, past.latest, past.cutoff)
    return tuple(replace(age, age=age.age - empty) for age in ages[empty:])


def _compare_with_champion(simulated: SimulatedStore, past: Reading, cells: Sequence[Cell]) -> list[Decision]:
    champion = simulated.champion()
    if champion is None:
        return compare_with_champion(past, cells, None, None)
    promise, valid_until = champion
    pair = Pair(simulated.fits[past.cutoff], simulated.fits[promise.cutoff], valid_until)
    return compare_with_champion(past, cells, promise.cutoff, lambda: pair)


def _served(simulated: SimulatedStore, window: int) -> tuple[str, int] | None:
    """Version and cutoff of the champion, if it is valid when the window begins."""
    champion = simulated.champion()
    return (champion[0].version, champion[0].cutoff) if champion and champion[1] > window else None


def _run_rival(
    run: _Run, simulated: SimulatedStore, method: str, cutoffs: Sequence[ReplayedCutoff]
) -> list[ReplayedCutoff]:
    """Fit a rival at the origins of the served versions, score it on the same windows, and add its seconds."""
    if report_unavailable(method, run.report):
        return list(cutoffs)
    began = time.perf_counter()
    windows: dict[int, list[int]] = {}
    for cutoff in cutoffs:
        origin = cutoff.served[1] if cutoff.served else cutoff.origin
        cell = simulated.cells.get((origin, cutoff.origin, run.task.training.method))
        is_scored = (origin, cutoff.origin, method) in simulated.cells  # as an expert
        if cell is not None and cell.is_complete and not is_scored:
            windows.setdefault(origin, []).append(cutoff.origin)
    run.report("rival.began", method=method, num_origins=len(windows))
    settings = run.settings
    if method in PLANS:
        reading = with_method(run.reading, method)
        store = FitStore(settings.home, reading.schema.task)
        for fit in fit_origins(reading, sorted(windows), run.device, settings.max_members, lambda _epoch: None):
            keep_fit(fit, reading, store, device=run.device, git_sha=settings.git_sha, verdict=None)
    for origin in sorted(windows):
        rival = open_rival(run.reading, method, origin, settings, run.device)
        for window in windows[origin]:
            cell = score_rival(run.reading, rival, MissingCell(method, origin, window, 0))
            simulated.cells[origin, window, method] = cell
    share = (time.perf_counter() - began) / max(1, len(cutoffs))
    return [replace(cutoff, seconds={**cutoff.seconds, method: share}) for cutoff in cutoffs]
