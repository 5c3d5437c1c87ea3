"""A few mis-dated rows bend nothing: validity starts where rows support it, and a model is released as without them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from contracts.clock import MICROSECOND, to_micros
from contracts.manifest import read_manifest
from contracts.quality.far_values import find_gaps
from service.advice.row_warnings import warn_of_far_rows
from store.events.batches import Event
from store.events.far_rows import find_far_rows
from store.events.writes import append_events
from tests.integration.drifting_task import (
    HOUR,
    START,
    Story,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    now,
    retrain,
    settings,
)
from trainer.data.snapshot import read
from trainer.evaluation.backtest import backtest
from trainer.evaluation.fit_store import candidate_folder
from trainer.export.opened_artefact import verify_artefact
from trainer.tracking.registry import Registry

NUM_WINDOWS = 10
YEAR_ONE = to_micros(datetime(1, 1, 1, tzinfo=UTC))


def dated(*moments: int) -> list[Event]:
    """Events like others, but of these moments."""
    (sample, *_) = drifting_events(0, 1)
    return [replace(sample, event_id=f"odd-{k}", at=at, known_at=at) for k, at in enumerate(moments)]


@pytest.mark.parametrize(
    "moments",
    [
        (YEAR_ONE,),
        (0,),
        (YEAR_ONE, 0, 0, 1),
        (to_micros(START - timedelta(days=20 * 365)),),
    ],
)
def test_validity_starts_where_rows_support_it(
    engine: Engine, registry: Registry, tmp_path: Path, moments: tuple[int, ...]
) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    with engine.begin() as connection:
        append_events(connection, schema, dated(*moments), START)
    released = retrain(engine, registry, schema, NUM_WINDOWS, tmp_path)
    assert released.state == "released", released.reason
    assert released.num_rows == NUM_WINDOWS * 150
    folder = candidate_folder(tmp_path, schema.task, cutoff_after(NUM_WINDOWS))
    assert verify_artefact(folder).manifest.trained_from == to_micros(START)


def test_a_large_group_of_a_wrong_year_opens_no_time_in_between(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    moments = [(to_micros(START) + k * HOUR // MICROSECOND // 20) // 1000 for k in range(170)]
    with engine.begin() as connection:
        append_events(connection, schema, dated(*moments), START)
    released = retrain(engine, registry, schema, NUM_WINDOWS, tmp_path)
    assert released.state == "released", released.reason
    folder = candidate_folder(tmp_path, schema.task, cutoff_after(NUM_WINDOWS))
    manifest = verify_artefact(folder).manifest
    assert manifest.trained_from == moments[0]
    clock = schema.task.clock
    begin = clock.window_start(moments[-1]) + (1 + manifest.horizon) * clock.window
    assert manifest.gaps == [(begin, to_micros(START))]


def test_a_stream_that_pauses_keeps_its_rows_and_is_not_warned_of(engine: Engine) -> None:
    """Two seasons of 60 hours, and 170 hours between them."""
    schema = define(engine, drifting_task(), 60)
    later = [replace(event, event_id=f"l-{event.event_id}") for event in drifting_events(230, 290)]
    with engine.begin() as connection:
        append_events(connection, schema, later, START)
    reading = read(engine, schema, cutoff_after(290), now())
    assert len(reading.latest) == 120 * 150
    assert len(find_gaps(reading.latest.at, schema.task.clock.window)) == 1
    with engine.connect() as connection:
        far = find_far_rows(connection, schema, [], START + 290 * HOUR)
    assert (far.before, far.after, far.apart) == (None, None, ())


def test_groups_of_several_wrong_years_are_each_found_with_their_counts(engine: Engine) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    with engine.begin() as connection:
        append_events(connection, schema, dated(*[YEAR_ONE] * 40, *range(160)), START)
    with engine.connect() as connection:
        far = find_far_rows(connection, schema, [], START + NUM_WINDOWS * HOUR)
    assert far.before is not None
    assert (far.before.count, far.before.outermost, far.before.others) == (40, YEAR_ONE, 0)
    (group,) = far.apart
    assert (group.count, group.begin, group.end, group.others) == (160, 0, 159, to_micros(START))
    (_, said) = warn_of_far_rows(schema.task, far)
    assert said.startswith(
        "160 events (odd-40, odd-41, odd-42, …) are dated from 1970-01-01T00:00:00Z to 1970-01-01T00:00:00.000159Z, "
        "long before the others, which begin at 2026-01-01T00:00:00Z."
    )
    assert "no version answers for moments between" in said
    assert f"morrow events erase {schema.task.name}" in said


def test_a_large_group_after_a_long_pause_is_warned_of_too(engine: Engine) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    late = to_micros(START + 5000 * HOUR)
    with engine.begin() as connection:
        append_events(connection, schema, dated(*range(late, late + 200)), START)
    with engine.connect() as connection:
        far = find_far_rows(connection, schema, [], START + 5001 * HOUR)
    (group,) = far.apart
    assert (group.count, group.is_older, group.begin) == (200, False, late)
    (said,) = warn_of_far_rows(schema.task, far)
    assert "long after the others, which end at 2026-01-01T09:59:36Z" in said


def test_rows_far_after_the_others_leave_the_horizon_where_the_others_end(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    late = to_micros(START + 5000 * HOUR)
    with engine.begin() as connection:
        append_events(connection, schema, dated(late), START)
    cutoff = cutoff_after(5001)
    reading = read(engine, schema, cutoff, now())
    assert (int(reading.latest.at[0]), len(reading.latest)) == (to_micros(START), NUM_WINDOWS * 150)
    cells, verdict = backtest(engine, schema, cutoff, settings=settings(tmp_path), now=now, report=Story())
    assert max(cell.window for cell in cells) == cutoff_after(NUM_WINDOWS - 1)
    assert verdict.horizon == 0
    assert "no event of the newest 4,991 windows" in str(verdict.reason)


def test_a_fit_is_the_same_as_without_them(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    task = drifting_task()
    found = []
    for odd in ((), dated(YEAR_ONE, 0)):
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM error_cells; DELETE FROM events; DELETE FROM cycles")
        schema = define(engine, task, NUM_WINDOWS)
        with engine.begin() as connection:
            append_events(connection, schema, list(odd), START)
        home = tmp_path / str(len(odd))
        assert retrain(engine, registry, schema, NUM_WINDOWS, home).state == "released"
        manifest = read_manifest(candidate_folder(home, task, cutoff_after(NUM_WINDOWS)))
        found.append((manifest.checksums, manifest.rows_digest, manifest.horizon))
    assert found[0] == found[1]


def test_a_cycle_leaves_out_a_label_that_is_no_number(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    task = drifting_task(target={"name": "y", "kind": "regression"})
    schema = define(engine, task, NUM_WINDOWS, as_numbers=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE events SET label = 'n/a' WHERE event_id IN ('3-7', '9-7')")
    released = retrain(engine, registry, schema, NUM_WINDOWS, tmp_path)
    assert (released.state, released.num_rows) == ("released", NUM_WINDOWS * 150 - 2), released.reason
