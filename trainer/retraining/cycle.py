"""The story of one retraining: read, score, fit, export, verify, judge, register, alias, release.

The first one of a task that asks for it (`training.tune`) also chooses its recipe, between read and score.

Every step is named in the ledger before its work begins, and naming it renews the lease: whoever lost the lease learns
it there and releases nothing. A cycle may be killed at any moment; what each step leaves behind is harmless and found
again.

    score, fit, export   kept fits under `home`, each whole or absent; the next attempt scores and reuses them
    register             a version that no alias names; the next attempt of the same artefact finds it by its manifest
    alias                the alias moves inside a transaction that holds this cycle's row, so no one can take the cycle
                         over meanwhile. Killed after it, the services serve the new version within the bounds of its
                         manifest, the cycle ends as failed, and the next attempt moves the alias again and ends it
    release              the row in `releases` and the end of the cycle in one transaction

The alias goes before the row because the manifest says the same `valid_until` as the row: a version without a row is
served rightly, a row without the alias would promise a version that nobody serves.

MLflow may be away all the while: the fit goes on, the finished fit is kept, and the cycle ends as failed with a reason
that makes the scheduler ask for the cutoff again once MLflow answers; that attempt registers without fitting.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import structlog
import torch
from sqlalchemy import Engine

from contracts.calibration import Calibration
from contracts.clock import format_moment, from_micros
from contracts.errors import LeaseLost, MorrowError, NotFound
from contracts.failure import STOPPED
from contracts.manifest import Manifest
from store.catalog import Schema, list_tasks
from store.cells import delete_origin
from store.cycles import Cycle, State
from trainer.data.labels import clip_labels
from trainer.data.snapshot import Reading, read
from trainer.evaluation.backtest import Report, compare, fill_matrix, judge, report_epoch
from trainer.evaluation.calibration import calibration_of
from trainer.evaluation.fit_store import FitStore, candidate_folder
from trainer.evaluation.horizon import Verdict
from trainer.evaluation.origin_fits import fit_origins, keep_fit, seeds_of
from trainer.evaluation.release_gates import (
    check_horizon,
    check_rows,
    describe,
    describe_decisions,
    first_failure,
)
from trainer.evaluation.scoring import answer, needed_pairs, score, target_windows
from trainer.export.session import Artefact, verify_artefact
from trainer.network.device import choose_device
from trainer.network.training_loop import EpochReport
from trainer.retraining.champion_comparison import judge_with_champion
from trainer.retraining.failures import name_failure
from trainer.retraining.ledger import Attempt, begin, end, fail, in_store
from trainer.retraining.recipe_step import choose_recipe
from trainer.retraining.release import move_alias, release
from trainer.retraining.run_log import (
    first_tags,
    measure_epochs,
    note_answers,
    note_fit,
    note_recipe,
    note_rows,
    note_start,
    note_verdict,
    version_tags,
)
from trainer.settings import TrainerSettings
from trainer.tracking.descriptions import describe_version
from trainer.tracking.registry import Registry
from trainer.tracking.run_buffer import Run
from trainer.tracking.tags import NOTE_TAG

log = structlog.get_logger(__name__)

# Windows that kept fits outlive the oldest origin that a cycle can still need.
_MARGIN_WINDOWS = 2
_NUM_CHECKED_ROWS = 1000


def run_cycle(
    engine: Engine,
    registry: Registry,
    cycle: Cycle,
    *,
    settings: TrainerSettings,
    now: Callable[[], datetime],
    report: Report,
) -> State | None:
    """Carry a claimed cycle to its end; returns the state it ended in, None where its lease was lost.

    Whatever fails ends the cycle and its run with the reason, leaves the champion as it was, and is not raised again.
    KeyboardInterrupt, which is how the process hears that it should stop, is.
    """
    schema = _find_schema(engine, cycle.task_id)
    name = f"{format_moment(cycle.cutoff)} attempt {cycle.attempt}"
    run = Run(registry, schema.task.name, name, first_tags(schema.task, cycle, settings), now)
    attempt = Attempt(engine, settings, cycle, schema, run, now, report)
    try:
        return _retrain(attempt)
    except LeaseLost as error:
        report("cycle.lease_lost", cycle_id=cycle.cycle_id)
        attempt.run.end("FAILED", str(error))
        return None
    except KeyboardInterrupt:
        fail(attempt, "KILLED", STOPPED)
        raise
    except MorrowError as error:
        failure = name_failure(error)
        log.warning("cycle.failed", cycle_id=cycle.cycle_id, reason=failure.reason)
        return fail(attempt, "FAILED", failure)
    except Exception as error:
        log.exception("cycle.failed", cycle_id=cycle.cycle_id)
        return fail(attempt, "FAILED", name_failure(error))


def _retrain(attempt: Attempt) -> State:
    task, cutoff, run = attempt.schema.task, attempt.cycle.cutoff, attempt.run
    # There is a run from here on, so that a device that is not there fails in it.
    run.deliver()
    device = choose_device(attempt.settings)
    note_start(attempt, device)

    begin(attempt, "read")
    reading = read(attempt.engine, attempt.schema, cutoff, attempt.now())
    schema = choose_recipe(attempt, reading, device)
    attempt, reading, task = replace(attempt, schema=schema), replace(reading, schema=schema), schema.task
    note_recipe(attempt)
    note_rows(attempt, reading)
    decisions = check_rows(task, reading.fit_rows(cutoff))
    if first_failure(decisions):
        return end(attempt, "skipped", describe_decisions(decisions), **_rows(reading))

    begin(attempt, "score", **_rows(reading))
    follow = measure_epochs(attempt, "backtest_")
    store = FitStore(attempt.settings.home, task)
    cells = fill_matrix(
        attempt.engine,
        reading,
        store,
        attempt.settings,
        device,
        report=attempt.report,
        on_epoch=follow,
        on_fit=note_fit(attempt),
    )
    verdict = judge(reading, cells)

    begin(attempt, "fit")
    manifest = _fit_or_reuse(attempt, reading, store, device, verdict=verdict, calibration=calibration_of(task, cells))

    begin(attempt, "verify")
    candidate = _verify(attempt, reading, store.folder(cutoff))

    begin(attempt, "judge")
    note_verdict(attempt, manifest, cells, verdict)
    _delete_unneeded(reading, store)
    decisions += check_horizon(task, verdict)
    if first_failure(decisions) is None:
        decisions += judge_with_champion(attempt, reading, cells, candidate)
    described = describe(task, cutoff, verdict, decisions, compare(task, cells, verdict))
    if first_failure(decisions):
        return end(attempt, "held", described)

    begin(attempt, "register", verdict=described)
    folder = candidate_folder(attempt.settings.home, task, cutoff)
    words = describe_version(manifest, decisions)
    run.note(tags={NOTE_TAG: words})
    version = run.registry.register(folder, manifest, run.insist(), version_tags(attempt, manifest), words)

    begin(attempt, "alias", version=version)
    if (overtaken := move_alias(attempt, version)) is not None:
        return end(attempt, "held", described | describe_decisions([*decisions, overtaken]))

    begin(attempt, "release")
    return release(attempt, manifest, version, described)


def _find_schema(engine: Engine, task_id: int) -> Schema:
    with engine.connect() as connection:
        for schema in list_tasks(connection):
            if schema.task_id == task_id:
                return schema
    raise NotFound("The task of this cycle is not there.")


def _rows(reading: Reading) -> dict[str, object]:
    known = reading.latest
    return {"num_rows": len(known), "rows_digest": known.digest, "read_at": from_micros(reading.read_at)}


def _fit_or_reuse(
    attempt: Attempt,
    reading: Reading,
    store: FitStore,
    device: torch.device,
    *,
    verdict: Verdict,
    calibration: Calibration,
) -> Manifest:
    """The candidate's artefact: fitted and exported, or the kept one if it was fitted to the very same rows."""
    task, settings = attempt.schema.task, attempt.settings
    kept = store.find(reading.cutoff)
    identity = reading.latest.digest, seeds_of(task)
    if kept is not None and (kept.manifest.rows_digest, kept.manifest.seeds) == identity:
        attempt.report("fit.reused", cutoff=reading.cutoff)
        begin(attempt, "export")
        return store.renew(kept.manifest, reading.schema, verdict, calibration)
    # First the folder: the live job scores what it finds there.
    store.discard(reading.cutoff)
    attempt.report("fit.began", cutoff=reading.cutoff)
    measure = measure_epochs(attempt)

    def follow(epoch: EpochReport) -> None:
        report_epoch(attempt.report, "fit", epoch)
        measure(epoch)

    (candidate,) = fit_origins(reading, [reading.cutoff], device, settings.max_members, follow)
    begin(attempt, "export")
    in_store(
        attempt,
        lambda connection: delete_origin(connection, attempt.cycle.task_id, task.recipe, reading.cutoff),
    )
    manifest = keep_fit(
        candidate,
        reading,
        store,
        device=device,
        git_sha=settings.git_sha,
        verdict=verdict,
        calibration=calibration,
    )
    note_fit(attempt)(candidate, manifest, [])
    return manifest


def _verify(attempt: Attempt, reading: Reading, folder: Path) -> Artefact:
    """Load the artefact as a service would, and check that its answers on the newest withheld rows are finite."""
    task = attempt.schema.task
    candidate = verify_artefact(folder)
    known = reading.latest
    withheld = known.select(known.withheld)
    newest = withheld.select(slice(max(0, len(withheld) - _NUM_CHECKED_ROWS), None))
    newest = clip_labels(task, newest, known)
    if len(newest):
        outputs = answer(candidate.session, task, newest)
        loss, metric = score(task, candidate.manifest.classes, outputs, newest)
        attempt.run.measure("withheld_loss", loss, 0)
        attempt.run.measure("withheld_metric", metric, 0)
        note_answers(attempt, candidate.manifest, candidate.session, outputs, newest)
    return candidate


def _delete_unneeded(reading: Reading, store: FitStore) -> None:
    """Kept fits older than any origin that this cycle looked back on, with a margin for replays."""
    task = reading.schema.task
    windows = target_windows(task, reading.current, reading.cutoff)
    origins = [origin for origin, _ in needed_pairs(windows, task.clock, task.guard)]
    if origins:
        store.delete_older(min(origins) - _MARGIN_WINDOWS * task.clock.window)
