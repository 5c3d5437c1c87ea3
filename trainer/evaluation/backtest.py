"""Rolling-origin scoring: fit missing origins, score them on windows that they were not fitted on, judge the ages.

The same code fills the matrix at a task's start, in every cycle, and for `morrow backtest`, which needs no MLflow. A
steady cycle finds all origins among the kept fits, so it fits none here.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy import Engine

from contracts.errors import CycleError
from contracts.manifest import Manifest
from contracts.quality.skill import FEW_WINDOWS
from contracts.task import Task
from contracts.verdict import EXTRA_WINDOWS, Comparison
from store.error_cells import Cell
from store.tasks.catalog import Schema
from trainer.data.replica import Replica, find_replica
from trainer.data.snapshot import MOST_COUNTED, Reading, read_for_cycle
from trainer.data.windows import (
    complete_until,
    needed_pairs,
    num_empty_windows,
    num_like_today,
    pairs_to_score,
    target_windows,
)
from trainer.evaluation.fit_cost import FitCost
from trainer.evaluation.fit_store import FitStore, open_fits
from trainer.evaluation.horizon import HorizonVerdict, after_empty_windows, compare_rivals, horizon_rule, judge_horizon
from trainer.evaluation.kept_scores import mix_as_of, score_origin
from trainer.evaluation.mixture import as_answered, mix
from trainer.evaluation.old_cells import delete_old_cells
from trainer.evaluation.release_gates import reason_to_skip
from trainer.evaluation.stored_matrix import CellLedger, StoredCells
from trainer.evaluation.suspect_windows import counted
from trainer.evaluation.units import Executor, InThisProcess, KeptFit, cut_units, oldest_first
from trainer.export.opened_artefact import Artefact
from trainer.network.training_loop import EpochReport
from trainer.progress import Report
from trainer.settings import TrainerSettings

# Windows for which kept fits outlive the oldest origin that a cycle can still need.
_MARGIN_WINDOWS = 2
# The most windows that are scored without being asked for: half a year of weeks.
MAX_WINDOWS = 26
# The share of the rows that the origins of windows for a first verdict must know.
TRUSTED_SHARE = 1 / 3
# The share of a cycle's time limit that fits for more windows than the fewest may take.
EXTENSION_SHARE = 0.25


def backtest(
    engine: Engine,
    schema: Schema,
    cutoff: int,
    *,
    settings: TrainerSettings,
    now: Callable[[], datetime],
    report: Report,
    num_windows: int | None = None,
) -> tuple[list[Cell], HorizonVerdict]:
    """Fill and judge the matrix of a task as of a cutoff (microseconds). Raises CycleError if nothing can be fitted.

    Every age is scored on `num_windows` windows; if None, as `fill_and_judge` decides. Cells and fits are kept, so a
    later cycle finds them.
    """
    replica = find_replica(settings)
    reading = read_needed(engine, schema, cutoff, now(), num_windows=num_windows, replica=replica)
    if reason := reason_to_skip(schema.task, reading.fit_rows(cutoff)):
        raise CycleError(f"Nothing can be fitted as of this cutoff: {reason}.")
    store = open_fits(engine, settings, schema)
    return fill_and_judge(
        StoredCells(engine),
        reading,
        store,
        settings,
        InThisProcess(settings),
        report=report,
        on_epoch=partial(report_epoch, report, "score"),
        num_windows=num_windows,
    )


def read_needed(
    engine: Engine,
    schema: Schema,
    cutoff: int,
    now: datetime,
    *,
    num_windows: int | None = None,
    replica: Replica | None = None,
) -> Reading:
    """The rows that `fill_and_judge` and a candidate of this cutoff can use."""
    task = schema.task
    # A reading is extended while its windows are within the history of its newest fit.
    if num_windows is None:
        num_windows = max(_fewest_windows(task), min(MAX_WINDOWS, task.training.history or MAX_WINDOWS))
    return read_for_cycle(engine, schema, cutoff, now, num_windows=num_windows, replica=replica)


def _fewest_windows(task: Task) -> int:
    """As many windows as a cycle must look back on."""
    return task.guard.min_pairs + EXTRA_WINDOWS


def fill_and_judge(
    ledger: CellLedger,
    reading: Reading,
    store: FitStore,
    settings: TrainerSettings,
    executor: Executor,
    *,
    report: Report,
    on_epoch: Callable[[EpochReport], None],
    on_fit: Callable[[KeptFit, Manifest, Sequence[Cell]], None] | None = None,
    num_windows: int | None = None,
) -> tuple[list[Cell], HorizonVerdict]:
    """The matrix as of the reading's cutoff, and the horizon of a fit of that cutoff that follows from it.

    A few windows may be unusual ones, such as those around Christmas. So if they support less than the longest horizon,
    twice as many are scored, and so on, up to MAX_WINDOWS, while their origins know at least half of the rows. A first
    matrix also gets the windows that a verdict on the model needs, FEW_WINDOWS, if their origins know at least a third.
    These fits may take EXTENSION_SHARE of a cycle's time limit. With `num_windows` that many are scored and no more.
    """
    task = reading.schema.task
    num_read = len(target_windows(task, reading.current, reading.cutoff, MOST_COUNTED))
    num_known = min(MOST_COUNTED, reading.num_older + num_read)
    most = min(MAX_WINDOWS, num_like_today(task, reading.latest, reading.cutoff))
    fewest_trusted = _count_trusted(reading)
    count = _fewest_windows(task) if num_windows is None else num_windows
    cost = FitCost(EXTENSION_SHARE * settings.cycle_limit_seconds)
    is_first = True
    while True:
        began = time.monotonic()
        num_fits = 0

        def follow(fit: KeptFit, manifest: Manifest, cells: Sequence[Cell]) -> None:
            nonlocal num_fits
            num_fits += 1
            if on_fit is not None:
                on_fit(fit, manifest, cells)

        filled = fill_matrix(
            ledger,
            reading,
            store,
            settings,
            executor,
            report=report,
            on_epoch=on_epoch,
            on_fit=follow,
            count=count,
            is_extension=not is_first,
        )
        cells = as_answered(task, filled, mix(task, filled, reading.cutoff))
        verdict = replace(judge(reading, cells), num_known=num_known)
        cost.add(num_fits, time.monotonic() - began, is_extension=not is_first)
        is_short = judge_horizon(counted(task, cells), horizon_rule(task)).horizon < task.guard.max_age
        more = min(2 * count, most) if is_short else count
        if more < fewest_trusted and _count_scored(task, cells) < fewest_trusted:
            more = fewest_trusted
        if num_windows is not None or more <= count or not cost.allows(more - count):
            return filled, verdict
        report("matrix.extended", num_windows=more, num_known=num_known)
        count, is_first = more, False


def _count_trusted(reading: Reading) -> int:
    """The fewest windows for a verdict on the model; 0 if origins of that many windows know too few rows."""
    task = reading.schema.task
    num_usable = num_like_today(task, reading.latest, reading.cutoff, TRUSTED_SHARE)
    return FEW_WINDOWS if min(num_usable, task.training.history or num_usable) >= FEW_WINDOWS else 0


def _count_scored(task: Task, cells: Sequence[Cell]) -> int:
    """The complete windows that our method was scored on."""
    return len({cell.window for cell in cells if cell.method == task.training.method and cell.is_complete})


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
    ledger: CellLedger,
    reading: Reading,
    store: FitStore,
    settings: TrainerSettings,
    executor: Executor,
    *,
    report: Report,
    on_epoch: Callable[[EpochReport], None],
    on_fit: Callable[[KeptFit, Manifest, Sequence[Cell]], None] | None = None,
    count: int | None = None,
    is_extension: bool = False,
) -> list[Cell]:
    """The matrix as of the reading's cutoff, with missing cells added; its newest windows may be incomplete.

    At most `count` windows are scored for each age; if None, as many as a cycle must look back on. Stored cells of
    other windows count too, as `trainer.evaluation.stored_matrix` says.

    If any origin must be fitted, so are those whose target windows still wait for labels. Together they cost less than
    one by one in later cycles. Cells are stored origin by origin, so a killed backtest keeps all cells that it scored.
    `on_fit` gets each origin that was fitted, with its cells. An origin that knows too few rows or classes is left out;
    the verdict then says what is missing.
    """
    task = reading.schema.task
    needed = _needed_pairs(reading, count)
    stored = ledger.read(reading, store, needed)
    matrix = {(cell.origin, cell.window, cell.method): cell for cell in stored.cells}
    wanted = _missing_pairs(reading, matrix.values(), needed)
    for origin, window in stored.to_rescore:
        if window not in (windows := wanted.setdefault(origin, [])):
            windows.append(window)
    found = {origin: store.find(origin) for origin in wanted}
    kept = [fit for fit in found.values() if fit is not None]
    absent = [origin for origin, fit in found.items() if fit is None]
    if absent and not is_extension:
        absent += _soon_needed(reading, store)
    report("matrix.missing", num_kept=len(kept), num_to_fit=len(absent))

    def add(cells: Iterable[Cell]) -> None:
        matrix.update({(cell.origin, cell.window, cell.method): cell for cell in cells})

    def weighed(origin: int) -> Artefact:
        experts = store.open(origin).manifest.experts
        mixture = mix_as_of(reading, store, list(matrix.values()), origin)
        if mixture is not None and experts is not None and experts.weight is None:
            store.weigh(origin, mixture)
        return store.open(origin)

    def add_scores(fit: Artefact) -> list[Cell]:
        origin = fit.manifest.cutoff
        cells = score_origin(reading, fit, wanted.get(origin, []))
        ledger.record(reading, cells)
        add(cells)
        report("origin.scored", origin=origin, num_cells=len(cells))
        return cells

    for fit in kept:
        add_scores(weighed(fit.manifest.cutoff))
    made_fits = executor.run(cut_units(reading, absent, settings), store, on_epoch)
    for made in oldest_first(made_fits, absent) if task.training.can_mix else made_fits:
        fit = weighed(made.origin)
        cells = add_scores(fit)
        if on_fit is not None:
            on_fit(made, fit.manifest, cells)
    for origin, window in _first_looks(reading, matrix.values()):
        if (early := store.find(origin)) is not None:
            add(score_origin(reading, early, [window]))
    return sorted(matrix.values(), key=lambda cell: (cell.window, cell.origin, cell.method))


def _missing_pairs(reading: Reading, cells: Iterable[Cell], needed: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """origin -> target windows whose cells are needed and missing; only origins that can be fitted."""
    task = reading.schema.task
    there = {(cell.origin, cell.window) for cell in cells if cell.method == task.training.method and cell.is_complete}
    wanted: dict[int, list[int]] = {}
    for origin, window in needed:
        if (origin, window) not in there:
            wanted.setdefault(origin, []).append(window)
    return {
        origin: wanted[origin] for origin in sorted(wanted) if reason_to_skip(task, reading.fit_rows(origin)) is None
    }


def delete_unneeded(
    engine: Engine, reading: Reading, store: FitStore, *, scored: Iterable[int] = (), waiting: Iterable[int] = ()
) -> None:
    """Delete cells that nothing can use, and kept fits older than any origin that this cutoff looks back on.

    A margin is left for replays. `scored` are cutoffs of versions whose labels may still arrive, `waiting` those of
    other cycles that are requested or running. An older one of these looks back further.
    """
    delete_old_cells(engine, reading.schema.task_id, reading.schema.task, reading.cutoff)
    if pairs := _needed_pairs(reading):
        oldest = min(origin for origin, _ in pairs) - _MARGIN_WINDOWS * reading.schema.task.clock.window
        behind = max([0, *(reading.cutoff - cutoff for cutoff in waiting)])
        store.delete_older(min([oldest - behind, *scored]))


def _needed_pairs(reading: Reading, count: int | None = None) -> list[tuple[int, int]]:
    task = reading.schema.task
    return pairs_to_score(task, reading.current, reading.cutoff, _fewest_windows(task) if count is None else count)


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
