"""Rolling-origin scoring: fit missing origins, score them on windows that they were not fitted on, judge the ages.

The same code fills the matrix at a task's start, in every cycle, and for `morrow backtest`, which needs no MLflow. A
steady cycle finds all origins among the kept fits, so it fits none here.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

import torch
from sqlalchemy import Engine

from contracts.clock import from_micros
from contracts.errors import CycleError
from contracts.manifest import Manifest
from contracts.task import Task
from contracts.verdict import Comparison
from store.catalog import Schema
from store.error_cells import Cell, read_cells, record_cells
from trainer.data.snapshot import Reading, read
from trainer.data.windows import complete_until, in_window, needed_pairs, num_empty_windows, target_windows
from trainer.evaluation.fit_store import FitStore, score_fit
from trainer.evaluation.horizon import HorizonVerdict, after_empty_windows, compare_rivals, horizon_rule, judge_horizon
from trainer.evaluation.origin_fits import Fit, fit_origins, keep_fit
from trainer.evaluation.release_gates import reason_to_skip
from trainer.evaluation.suspect_windows import counted
from trainer.export.opened_artefact import Artefact
from trainer.network.device import choose_device
from trainer.network.training_loop import EpochReport
from trainer.progress import Report
from trainer.settings import TrainerSettings

# Windows for which kept fits outlive the oldest origin that a cycle can still need.
_MARGIN_WINDOWS = 2


def backtest(
    engine: Engine,
    schema: Schema,
    cutoff: int,
    *,
    settings: TrainerSettings,
    now: Callable[[], datetime],
    report: Report,
) -> tuple[list[Cell], HorizonVerdict]:
    """Fill and judge the matrix of a task as of a cutoff (microseconds). Raises CycleError if nothing can be fitted.

    Cells and fits are kept, so a later cycle finds them.
    """
    reading = read(engine, schema, cutoff, now())
    if reason := reason_to_skip(schema.task, reading.fit_rows(cutoff)):
        raise CycleError(f"Nothing can be fitted as of this cutoff: {reason}.")
    store = FitStore(settings.home, schema.task)
    cells = fill_matrix(
        engine,
        reading,
        store,
        settings,
        choose_device(settings),
        report=report,
        on_epoch=partial(report_epoch, report, "score"),
    )
    return cells, judge(reading, cells)


def judge(reading: Reading, cells: Sequence[Cell]) -> HorizonVerdict:
    """The horizon rule on these cells, for a model that knows only the rows of the reading."""
    task = reading.schema.task
    verdict = judge_horizon(counted(task, cells), horizon_rule(task))
    return after_empty_windows(verdict, num_empty_windows(task, reading.latest, reading.cutoff))


def compare(task: Task, cells: Sequence[Cell], verdict: HorizonVerdict) -> list[Comparison]:
    """The rivals compared with our method inside the horizon."""
    return compare_rivals(
        counted(task, cells),
        method=task.training.method,
        rivals=task.guard.rivals,
        error_name=task.error_name,
        clock=task.clock,
        guard=task.guard,
        horizon=verdict.horizon,
    )


def fill_matrix(
    engine: Engine,
    reading: Reading,
    store: FitStore,
    settings: TrainerSettings,
    device: torch.device,
    *,
    report: Report,
    on_epoch: Callable[[EpochReport], None],
    on_fit: Callable[[Fit, Manifest, Sequence[Cell]], None] | None = None,
) -> list[Cell]:
    """The matrix as of the reading's cutoff, with missing cells added; its newest windows may be incomplete.

    If any origin must be fitted, so are those whose target windows still wait for labels. Together they cost less than
    one by one in later cycles. Cells are stored origin by origin, so a killed backtest keeps all cells that it scored.
    `on_fit` gets each origin that was fitted, with its cells. An origin that knows too few rows or classes is left out;
    the verdict then says what is missing.
    """
    task = reading.schema.task
    matrix = {(cell.origin, cell.window, cell.method): cell for cell in _read_matrix(engine, reading)}
    wanted = _missing_pairs(reading, matrix.values())
    found = {origin: store.find(origin) for origin in wanted}
    kept = [fit for fit in found.values() if fit is not None]
    absent = [origin for origin, fit in found.items() if fit is None]
    if absent:
        absent += _soon_needed(reading, store)
    report("matrix.missing", num_kept=len(kept), num_to_fit=len(absent))

    def add(cells: Iterable[Cell]) -> None:
        matrix.update({(cell.origin, cell.window, cell.method): cell for cell in cells})

    def add_scores(fit: Artefact) -> list[Cell]:
        origin = fit.manifest.cutoff
        cells = _score_origin(reading, fit, wanted.get(origin, []))
        with engine.begin() as connection:
            record_cells(connection, reading.schema.task_id, task.recipe, cells, from_micros(reading.read_at))
        add(cells)
        report("origin.scored", origin=origin, num_cells=len(cells))
        return cells

    for fit in kept:
        add_scores(fit)
    for made in fit_origins(reading, absent, device, settings.max_members, on_epoch):
        manifest = keep_fit(made, reading, store, device=device, git_sha=settings.git_sha, verdict=None)
        cells = add_scores(store.open(made.origin))
        if on_fit is not None:
            on_fit(made, manifest, cells)
    for origin, window in _first_looks(reading, matrix.values()):
        if (early := store.find(origin)) is not None:
            add(_score_origin(reading, early, [window]))
    return sorted(matrix.values(), key=lambda cell: (cell.window, cell.origin, cell.method))


def _read_matrix(engine: Engine, reading: Reading) -> list[Cell]:
    """The stored cells, without those scored on labels that arrived after the reading."""
    with engine.connect() as connection:
        cells = read_cells(connection, reading.schema.task_id, reading.schema.task.recipe, until=reading.cutoff)
    return [cell for cell in cells if cell.num_revisions <= reading.fingerprints.get(cell.window, (0, 0))[1]]


def _missing_pairs(reading: Reading, cells: Iterable[Cell]) -> dict[int, list[int]]:
    """origin -> target windows whose cells are needed and missing or stale; only origins that can be fitted."""
    task = reading.schema.task
    there = {
        (cell.origin, cell.window)
        for cell in cells
        if cell.method == task.training.method
        and cell.is_complete
        and (cell.num_rows, cell.num_revisions) == reading.fingerprints.get(cell.window)
    }
    wanted: dict[int, list[int]] = {}
    for origin, window in _needed_pairs(reading):
        if (origin, window) not in there:
            wanted.setdefault(origin, []).append(window)
    return {
        origin: wanted[origin] for origin in sorted(wanted) if reason_to_skip(task, reading.fit_rows(origin)) is None
    }


def delete_unneeded(reading: Reading, store: FitStore) -> None:
    """Delete kept fits older than any origin that this cutoff looks back on, with a margin for replays."""
    if pairs := _needed_pairs(reading):
        store.delete_older(min(origin for origin, _ in pairs) - _MARGIN_WINDOWS * reading.schema.task.clock.window)


def _needed_pairs(reading: Reading) -> list[tuple[int, int]]:
    task = reading.schema.task
    return needed_pairs(target_windows(task, reading.current, reading.cutoff), task.clock, task.guard)


def _first_looks(reading: Reading, cells: Iterable[Cell]) -> list[tuple[int, int]]:
    """(origin, window) of windows whose labels are not all due yet; the verdict uses the labels known so far."""
    task, marks = reading.schema.task, reading.fingerprints
    there = {(cell.origin, cell.window): (cell.num_rows, cell.num_revisions) for cell in cells}
    unfinished = [window for window in marks if window >= complete_until(task, reading.cutoff) and marks[window][0]]
    pairs = needed_pairs(unfinished[-task.guard.max_age :], task.clock, task.guard)
    return [pair for pair in pairs if there.get(pair) != marks[pair[1]]]


def _soon_needed(reading: Reading, store: FitStore) -> list[int]:
    """The first origins after the newest complete window and before the cutoff that no cycle has fitted.

    At most as many as there are ages: if labels take a thousand windows, later cycles fit the others in groups.
    """
    task = reading.schema.task
    origins = range(complete_until(task, reading.cutoff), reading.cutoff, task.clock.window)[: task.guard.max_age]
    return [
        origin
        for origin in origins
        if reason_to_skip(task, reading.fit_rows(origin)) is None and store.find(origin) is None
    ]


def _score_origin(reading: Reading, fit: Artefact, windows: Sequence[int]) -> list[Cell]:
    """Cells of one kept fit, and of naive at the same origin, on the rows of these windows known at the cutoff."""
    task = reading.schema.task
    return [
        cell
        for window in windows
        for cell in score_fit(
            fit,
            in_window(reading.current, window, task.clock),
            window=window,
            num_revisions=reading.fingerprints[window][1],
            is_complete=window < complete_until(task, reading.cutoff),
        )
    ]


def report_epoch(report: Report, step: str, epoch: EpochReport) -> None:
    """One line of progress, with the mean loss of the members that took part."""
    report(
        "epoch.ended",
        step=step,
        phase=epoch.phase,
        epoch=epoch.epoch,
        num_epochs=epoch.num_epochs,
        num_members=len(epoch.losses),
        loss=epoch.mean_loss,
        seconds=epoch.seconds,
    )
