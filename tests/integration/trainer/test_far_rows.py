"""A few mis-dated rows bend nothing: validity starts where rows support it, and a model is released as without them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from contracts.clock import to_micros
from contracts.manifest import read_manifest
from store.events.batches import Event
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
    assert "no event of the newest 4991 windows" in str(verdict.reason)


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
