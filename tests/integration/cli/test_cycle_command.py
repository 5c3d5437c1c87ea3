"""`morrow cycle` with a real API: what it says of the version that was released."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from uuid import uuid4

from sqlalchemy import Engine
from typer.testing import CliRunner

from cli.main import app
from contracts.verdict import AgeFigures, MatrixFigures, Verdict
from store.cycles.leases import claim_cycle, end_cycle
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import find_task
from tests.integration.api_process import define_flights, running
from tests.integration.artefacts import CUTOFF
from tests.integration.published_versions import NOW, note


def release_requested(engine: Engine, version: str) -> None:
    """End the cycle that is requested next as a trainer does that released this version."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with engine.begin() as connection:
            now = datetime.now(UTC)
            cycle = claim_cycle(connection, uuid4().hex, now, timedelta(minutes=1))
            if cycle is not None:
                end_cycle(connection, cycle, "released", None, now, version=version)
                return
        time.sleep(0.05)


def test_a_version_that_expects_far_larger_errors_than_the_one_before_is_warned_of(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    """Version 3 expects 0.4, and the version before expected 0.05."""
    define_flights(engine)
    with engine.begin() as connection:
        schema = find_task(connection, "flights")
        append_events(connection, schema, [Event("e", CUTOFF - 1, CUTOFF - 1, (1.0, 2.0), ("UA",), "late")], NOW)
    former = Verdict(passed=True, matrix=MatrixFigures(error_name="log_loss", ages=(AgeFigures(0, 9, 0.05),)))
    note(engine, schema, "2", "release", verdict=former)
    note(engine, schema, "3", "release")
    with running(database_url, tmp_path / "home") as api:
        trainer = Thread(target=release_requested, args=(engine, "3"))
        trainer.start()
        done = CliRunner().invoke(app, ["cycle", "flights", "--url", api.url])
        trainer.join()
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "released as version 3." in said
    assert "Warning: version 3 expects an error of 0.4, 8 times the 0.05 of version 2" in said
