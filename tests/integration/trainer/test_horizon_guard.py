"""The guard against real PostgreSQL: what it writes, once, and what an operator can read."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Engine
from structlog.testing import capture_logs

from contracts.calibration import LEVELS, Calibration
from contracts.verdict import LimitCheck
from store.engine import make_engine
from store.error_cells import Cell, record_cells
from store.events.batches import Event, EventBatch
from store.events.imports import add_import
from store.events.writes import append_batch
from store.releases import read_overlay
from store.tasks.catalog import Schema, lock_task
from tests.integration.drifting_task import cutoff_after, define, drifting_task
from tests.integration.guarded_task import rows_of, story, write
from tests.integration.live_job import cells_of, moment
from trainer.evaluation.calibration import calibrate
from trainer.monitoring.horizon_guard import enforce

WIDE = drifting_task(name="wide", guard={"max_age": 3})


def verdict_of(schema: Schema, cutoff: int, horizon: int, limit: float = 1.0) -> dict[str, Any]:
    return {
        "cutoff": f"2026-01-01T{cutoff:02}:00:00Z",
        "recipe": schema.task.recipe,
        "horizon": horizon,
        "error_name": "log_loss",
        "ages": [{"age": age, "limit": limit} for age in range(horizon)],
    }


def cell(origin: int, window: int, loss: float, *, is_complete: bool = True, num_revisions: int = 50) -> Cell:
    scores = tuple((k + 1) / 60 + 0.001 * window for k in range(50))
    return Cell(
        cutoff_after(origin), cutoff_after(window), "gi", 50, loss, 0.1, num_revisions, is_complete, scores, (0.5,) * 26
    )


def put(engine: Engine, schema: Schema, cells: Sequence[Cell], at: float = 10) -> None:
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, moment(at))


def guard(engine: Engine, schema: Schema, now: datetime, since: int = 0) -> bool:
    return enforce(engine, schema.task_id, schema.task, now, since=cutoff_after(since))


@pytest.fixture
def schema(engine: Engine) -> Schema:
    return define(engine, WIDE, 0)


def test_a_complete_window_above_its_limit_closes_its_version_and_says_so(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(8, 8, 0.5), cell(8, 9, 1.5)])
    with capture_logs() as lines:
        assert guard(engine, schema, moment(12))
        assert guard(engine, schema, moment(13))
    assert story(engine, schema) == [("1", "release", 11), ("1", "close", 9)]
    (line,) = [line for line in lines if line["event"] == "horizon.closed"]
    assert line == {
        "event": "horizon.closed",
        "log_level": "warning",
        "task": "wide",
        "version": "1",
        "valid_until": "2026-01-01T09:00:00Z",
        "reason": "the error 1.5 on the window of 2026-01-01T09:00:00Z is above its limit 1",
        "window": "2026-01-01T09:00:00Z",
        "age": 1,
        "value": 1.5,
        "threshold": 1.0,
        "remedy": "morrow cycle wide, or morrow override wide --reason TEXT",
    }
    (row,) = [row for row in rows_of(engine, schema) if row.action == "close"]
    assert (row.actor, row.reason, row.at) == ("trainer", line["reason"], moment(12))
    assert isinstance(row.verdict, LimitCheck)


def test_an_error_far_above_its_limit_is_logged_with_the_import_to_check(engine: Engine, schema: Schema) -> None:
    rows = [Event("e", cutoff_after(9), cutoff_after(9), (1.0,), (), "1")]
    with engine.begin() as connection:
        begun = add_import(connection, schema.task_id, actor="who", source="wrong.csv", now=moment(9))
        append_batch(connection, schema, EventBatch.of(rows), moment(9), begun.import_id)
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(8, 8, 0.5), cell(8, 9, 12.0)])
    with capture_logs() as lines:
        assert guard(engine, schema, moment(12))
    (line,) = [line for line in lines if line["event"] == "horizon.closed"]
    assert line["remedy"].startswith(
        "Check the newest labels first: the error 12 on the window of 2026-01-01T09:00:00Z"
    )
    assert f"`morrow events retract wide --import {begun.import_id}`" in line["remedy"]
    assert line["remedy"].endswith("If they are right, retrain: `morrow cycle wide`.")


def test_a_first_look_closes_nothing(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(8, 8, 9.0, is_complete=False)])
    assert guard(engine, schema, moment(12))
    assert story(engine, schema) == [("1", "release", 11)]


def test_errors_of_another_fit_or_method_close_nothing(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(7, 8, 9.0), replace(cell(8, 8, 9.0), method="naive")])
    assert guard(engine, schema, moment(12))
    assert story(engine, schema) == [("1", "release", 11)]


def test_every_released_version_is_held_to_its_promise(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    write(engine, schema, "release", 12, version="2", verdict=verdict_of(schema, 9, 3))
    write(engine, schema, "rollback", 11)
    put(engine, schema, [cell(8, 10, 1.5), cell(9, 10, 1.5)])
    assert guard(engine, schema, moment(12))
    assert story(engine, schema)[3:] == [("2", "close", 10), ("1", "close", 10)]


def test_a_model_is_not_held_to_what_a_former_one_of_its_number_has_promised(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 9, verdict=verdict_of(schema, 6, 3))
    put(engine, schema, [cell(6, 7, 1.5)])
    assert guard(engine, schema, moment(9))
    assert story(engine, schema)[1:] == [("1", "close", 7)]
    # MLflow was set up again, and counts from 1 again; an error of the former model is late, another is taken back.
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(6, 7, 0.5, num_revisions=51), cell(6, 8, 1.5), cell(8, 8, 0.5)], at=11)
    assert guard(engine, schema, moment(11))
    assert story(engine, schema)[2:] == [("1", "release", 11)]
    put(engine, schema, [cell(8, 9, 1.5)], at=12)
    assert guard(engine, schema, moment(12))
    assert story(engine, schema)[3:] == [("1", "close", 9)]


def test_two_trainers_at_once_write_one_row(engine: Engine, schema: Schema, database_url: str) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(8, 9, 1.5)])
    engines = [make_engine(database_url) for _ in range(4)]
    ready = threading.Barrier(len(engines))

    def judge(own: Engine) -> None:
        ready.wait()
        while not guard(own, schema, moment(12)):
            pass

    with ThreadPoolExecutor(len(engines)) as pool:
        list(pool.map(judge, engines))
    assert story(engine, schema) == [("1", "release", 11), ("1", "close", 9)]
    for own in engines:
        own.dispose()


def test_while_somebody_moves_the_alias_the_guard_waits_for_another_look(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(8, 9, 1.5)])
    with engine.begin() as other:
        lock_task(other, schema.task_id)
        assert not guard(engine, schema, moment(12))
    assert guard(engine, schema, moment(12))
    assert story(engine, schema)[1:] == [("1", "close", 9)]


def test_an_override_after_a_close_stands(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3))
    put(engine, schema, [cell(8, 9, 1.5), cell(8, 10, 1.5)], at=11)
    assert guard(engine, schema, moment(11))
    write(engine, schema, "override", 11, at=12)
    assert guard(engine, schema, moment(12))
    put(engine, schema, [cell(8, 9, 1.6, num_revisions=51)], at=13)
    assert guard(engine, schema, moment(13))
    assert story(engine, schema)[1:] == [("1", "close", 9), ("1", "override", 11)]


def test_a_new_window_gives_the_champion_one_calibration_and_no_other_version(engine: Engine, schema: Schema) -> None:
    former = Calibration(1.25, [])
    write(engine, schema, "release", 10, verdict=verdict_of(schema, 7, 3), calibration=former)
    write(engine, schema, "release", 11, version="2", verdict=verdict_of(schema, 8, 3), calibration=former)
    put(
        engine,
        schema,
        [cell(origin, window, 0.5) for window in range(4, 8) for origin in range(window - 2, window + 1)],
    )
    assert guard(engine, schema, moment(8.5))
    assert len(story(engine, schema)) == 2, "the release knew these windows"
    put(engine, schema, [cell(8, 8, 0.5), cell(7, 8, 0.5)])
    for _ in range(3):
        assert guard(engine, schema, moment(9))
    assert story(engine, schema)[2:] == [("2", "calibrate", 11)]
    with engine.connect() as connection:
        overlay = read_overlay(connection, schema.task_id, "2")
    assert overlay is not None
    assert overlay.calibration is not None
    assert overlay.calibration.temperature == former.temperature, "the graph keeps the one it was exported with"
    expected = calibrate(
        cells_of(engine, schema), method="gi", clock=schema.task.clock, max_age=3, temperature=former.temperature
    )
    assert overlay.calibration == expected
    assert len(expected.ages[0].quantiles) < len(LEVELS)

    put(engine, schema, [cell(8, 9, 0.5)])
    write(engine, schema, "rollback", 10)
    assert guard(engine, schema, moment(9.5))
    assert story(engine, schema)[3:] == [("1", "rollback", 10), ("1", "calibrate", 10)]


def test_an_expired_or_closed_champion_is_not_calibrated(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3), calibration=Calibration(1.0, []))
    put(engine, schema, [cell(8, 8, 0.5)])
    assert guard(engine, schema, moment(11))
    put(engine, schema, [cell(8, 9, 1.5)])
    assert guard(engine, schema, moment(10))
    assert story(engine, schema)[1:] == [("1", "close", 9)]


def test_a_window_that_changes_no_quantile_gives_no_row(engine: Engine, schema: Schema) -> None:
    def same(window: int, score: float) -> Cell:
        return replace(cell(window, window, 0.5), num_rows=5000, scores=(score,) * 201)

    put(engine, schema, [same(window, 0.5) for window in range(8)])
    known = calibrate(cells_of(engine, schema), method="gi", clock=schema.task.clock, max_age=3, temperature=1.0)
    write(engine, schema, "release", 11, verdict=verdict_of(schema, 8, 3), calibration=known)
    put(engine, schema, [same(8, 0.5)])
    assert guard(engine, schema, moment(9))
    assert len(story(engine, schema)) == 1
    put(engine, schema, [same(9, 0.6)])
    assert guard(engine, schema, moment(10))
    assert story(engine, schema)[1:] == [("1", "calibrate", 11)]


def test_versions_from_before_the_kept_fits_are_left_alone(engine: Engine, schema: Schema) -> None:
    write(engine, schema, "release", 6, verdict=verdict_of(schema, 3, 3))
    put(engine, schema, [cell(3, 4, 9.0)])
    assert guard(engine, schema, moment(12), since=4)
    assert len(story(engine, schema)) == 1
