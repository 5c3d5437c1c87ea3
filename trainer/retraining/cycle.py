"""One retraining from start to end: read, score, fit, export, verify, judge, register, alias, release.

The first cycle of a task with `training.tune` also chooses its recipe, between read and score.

Every step is recorded in the ledger before its work begins, which renews the lease. A trainer that lost the lease
learns it there and releases nothing. A cycle may be killed at any moment: every step leaves only what is harmless, and
what the next attempt finds again.

    score, fit, export   kept fits under `home`, each whole or absent; the next attempt scores and reuses them
    register             a version without an alias; the next attempt at the same artefact finds it by its manifest
    alias                the alias moves inside a transaction that holds this cycle's row, so no one can take over the
                         cycle meanwhile. After a kill the services serve the new version within the bounds of its
                         manifest, the cycle ends as failed, and the next attempt moves the alias again
    release              the row in `releases` and the end of the cycle, in one transaction; then the run gets what it
                         shows, and ends. After a kill a sweep ends it

The alias moves before the row is written, because the manifest holds the same `valid_until` as the row. A version
without a row is served correctly; a row without the alias would promise a version that no service serves.

MLflow may be down all this time. Then the fit goes on and is kept, and the cycle ends as failed. By its failure code
the scheduler requests the cutoff again once MLflow answers, and that attempt registers without fitting.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import Engine

from contracts.clock import format_moment, from_micros, to_micros
from contracts.errors import LeaseLost, MorrowError, NotFound
from contracts.failure import STOPPED
from contracts.verdict import Decision, Verdict, first_failure
from store.cycles.ledger import Cycle, State, list_waiting_cutoffs
from store.error_cells import delete_origin
from store.releases import list_releases
from store.tasks.catalog import Schema, read_tasks
from store.tasks.installation import find_installation, read_installation
from trainer.data.labels import clip_labels
from trainer.data.replica import find_replica
from trainer.data.snapshot import Reading
from trainer.evaluation.backtest import compare, delete_unneeded, fill_and_judge, read_needed
from trainer.evaluation.fit_store import FitStore, open_fits
from trainer.evaluation.origin_fits import is_fit_of
from trainer.evaluation.release_gates import (
    check_horizon,
    check_rows,
    describe_matrix,
)
from trainer.evaluation.scoring import answer, score
from trainer.evaluation.stored_matrix import StoredCells
from trainer.evaluation.suspect_windows import set_aside
from trainer.evaluation.units import Executor, Unit, candidate_unit
from trainer.executors.executor import open_executor, own_settings
from trainer.export.opened_artefact import Artefact, verify_artefact
from trainer.monitoring.promises import open_cutoffs
from trainer.network.device import choose_device
from trainer.progress import Report
from trainer.retraining.attempt import Attempt
from trainer.retraining.champion_comparison import judge_with_champion
from trainer.retraining.failures import name_failure
from trainer.retraining.recipe_step import choose_recipe, record_choice
from trainer.retraining.run_log import (
    Answers,
    first_tags,
    follow_epochs,
    log_answers,
    log_fit,
    log_rows,
    log_scored_fits,
    log_start,
    log_verdict,
    version_tags,
)
from trainer.settings import TrainerSettings, count_threads
from trainer.tracking.descriptions import describe_version
from trainer.tracking.registry import Registry
from trainer.tracking.run_buffer import Run
from trainer.tracking.tags import NOTE_TAG

log = structlog.get_logger(__name__)

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
    """Run a claimed cycle; returns the state in which it ended, None if its lease was lost.

    An error ends the cycle and its run with a reason, leaves the champion unchanged, and is not raised again.
    KeyboardInterrupt, the signal to stop the process, is raised again.
    """
    schema = _find_schema(engine, cycle.task_id)
    with engine.begin() as connection:
        installation = find_installation(connection) or read_installation(connection)
    name = f"{format_moment(cycle.cutoff)} attempt {cycle.attempt}"
    run = Run(registry, schema.task.name, name, first_tags(schema.task, cycle, settings, installation), now)
    lease_time = timedelta(seconds=settings.lease_seconds)
    attempt = Attempt(engine, registry, run, cycle, schema.task.name, installation, lease_time, now, report)
    try:
        return _retrain(attempt, engine=engine, schema=schema, cutoff=cycle.cutoff, settings=settings, now=now)
    except LeaseLost as error:
        report("cycle.lease_lost", cycle_id=cycle.cycle_id)
        run.end("FAILED", str(error))
        return None
    except KeyboardInterrupt:
        attempt.fail("KILLED", STOPPED)
        raise
    except MorrowError as error:
        failure = name_failure(error)
        log.warning("cycle.failed", cycle_id=cycle.cycle_id, reason=failure.reason)
        return attempt.fail("FAILED", failure)
    except Exception as error:
        log.exception("cycle.failed", cycle_id=cycle.cycle_id)
        return attempt.fail("FAILED", name_failure(error))


def _retrain(
    attempt: Attempt,
    *,
    engine: Engine,
    schema: Schema,
    cutoff: int,
    settings: TrainerSettings,
    now: Callable[[], datetime],
) -> State:
    """Retrain a task as of a cutoff (microseconds). `attempt` only records the steps and the end."""
    run = attempt.run
    # The run begins here, so that a missing device fails in it.
    run.flush_if_due()
    device = choose_device(own_settings(settings))
    executor = open_executor(engine, settings, attempt.cycle, now)
    log_start(run, schema.task, device, count_threads(settings))

    attempt.begin("read")
    reading = read_needed(engine, schema, cutoff, now(), replica=find_replica(settings))
    found = choose_recipe(
        reading,
        device,
        settings.cycle_limit_seconds,
        report=attempt.report,
        on_start=partial(attempt.begin, "score"),
        on_trial=run.flush_if_due,
    )
    if found is not None:
        record_choice(attempt, schema.task, found, settings.home)
        reading = reading.with_training(found.search.training)
    task, store = reading.schema.task, open_fits(engine, settings, reading.schema)
    log_rows(run, reading)
    decisions = check_rows(task, reading.fit_rows(cutoff))
    if first_failure(decisions):
        return attempt.end("skipped", Verdict.of(*decisions), **_rows(reading))

    attempt.begin("score", **_rows(reading))
    cells, horizon = fill_and_judge(
        StoredCells(engine),
        reading,
        store,
        settings,
        executor,
        report=attempt.report,
        on_epoch=follow_epochs(attempt.report, run, "score", prefix="backtest_"),
        on_fit=log_scored_fits(run, task.clock),
    )

    attempt.begin("fit")
    unit, cells = candidate_unit(reading, cells, horizon)
    if unit.mixture is not None:
        attempt.report("mixture.weighed", weight=unit.mixture.weight, is_answering=unit.mixture.is_answering)
    is_new = _fit_or_reuse(attempt, executor, unit, store)

    attempt.begin("verify")
    candidate = verify_artefact(store.folder(cutoff))
    if (answers := _ask_withheld(candidate, reading)) is not None:
        log_answers(run, store.folder(cutoff), candidate, answers)

    attempt.begin("judge")
    with engine.connect() as connection:
        past = list_releases(connection, schema.task_id, actions=["release", "close"], with_calibration=False)
        waiting = list_waiting_cutoffs(connection, schema.task_id)
    log_verdict(run, store.folder(cutoff), candidate, cells, horizon, past=past)
    scored = open_cutoffs(past, to_micros(now()), schema.task)
    delete_unneeded(engine, reading, store, scored=scored, waiting=waiting)
    decisions += check_horizon(task, horizon)
    if first_failure(decisions) is None:
        decisions += judge_with_champion(attempt, reading, cells, store.folder(cutoff))
    matrix = describe_matrix(task, cutoff, horizon, compare(task, cells, horizon), set_aside(task, cells))
    verdict = Verdict.of(*decisions, matrix=matrix)
    if not verdict.passed:
        return attempt.end("held", verdict)

    attempt.begin("register", verdict=verdict)
    version = _register(attempt, store.folder(cutoff), candidate, decisions, is_new=is_new)

    attempt.begin("alias", version=version)
    if (overtaken := attempt.move_alias(version)) is not None:
        return attempt.end("held", verdict.failed(overtaken))

    attempt.begin("release")
    return attempt.release(candidate.manifest, version, verdict)


def _find_schema(engine: Engine, task_id: int) -> Schema:
    with engine.connect() as connection:
        found, _ = read_tasks(connection, [task_id])
    if not found:
        raise NotFound("The task of this cycle is not there.")
    return found[0]


def _rows(reading: Reading) -> dict[str, object]:
    known = reading.latest
    return {"num_rows": len(known), "rows_digest": known.digest, "read_at": from_micros(reading.read_at)}


def _fit_or_reuse(attempt: Attempt, executor: Executor, candidate: Unit, store: FitStore) -> bool:
    """Fit and export the candidate, or renew the kept fit if it was fitted to exactly the same rows.

    Returns whether it was fitted: no version can be of it yet.
    """
    assert candidate.verdict is not None
    reading, cutoff = candidate.reading, candidate.reading.cutoff
    kept = store.find(cutoff)
    if kept is not None and is_fit_of(kept.manifest, reading, candidate.mixture):
        attempt.report("fit.reused", cutoff=cutoff)
        attempt.begin("export")
        store.renew(kept.manifest, reading.schema, candidate.verdict, candidate.calibration)
        return False
    # Before the cells are deleted, because the live job scores the fits that it finds.
    store.discard(cutoff)
    attempt.report("fit.began", cutoff=cutoff)

    def begin_export() -> None:
        attempt.begin("export")
        recipe = reading.schema.task.recipe
        attempt.write(lambda connection: delete_origin(connection, attempt.cycle.task_id, recipe, cutoff))

    (fit,) = executor.run([candidate], store, follow_epochs(attempt.report, attempt.run, "fit"), begin_export)
    log_fit(attempt.run, fit, store.open(cutoff).manifest)
    return True


def _ask_withheld(candidate: Artefact, reading: Reading) -> Answers | None:
    """The answers to the newest withheld rows; None if there are no rows. Raises CycleError if one is not finite."""
    known, task = reading.latest, candidate.task
    withheld = known.select(known.withheld)
    rows = clip_labels(task, withheld.select(slice(max(0, len(withheld) - _NUM_CHECKED_ROWS), None)), known)
    if len(rows) == 0:
        return None
    outputs = answer(candidate.session, task, rows)
    return Answers(rows, outputs, *score(task, candidate.manifest.classes, outputs, rows))


def _register(
    attempt: Attempt, folder: Path, candidate: Artefact, decisions: Sequence[Decision], *, is_new: bool
) -> str:
    """Register the candidate with its tags and its description; returns the version. Raises Unavailable."""
    description = describe_version(candidate.manifest, decisions)
    attempt.run.set_tags({NOTE_TAG: description})
    run_id = attempt.run.start()
    return attempt.registry.register(
        folder,
        candidate.manifest,
        run_id,
        version_tags(attempt.cycle, candidate, attempt.installation),
        description,
        is_new=is_new,
        before_write=attempt.check_lease,
    )
