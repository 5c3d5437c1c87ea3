"""The status of a version whose events were erased or retracted after it had learned from them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import from_micros, to_micros
from store.events.batches import Event, EventBatch
from store.events.erasures import erase_events
from store.events.imports import add_import, retract_events
from store.events.writes import append_batch, append_events
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.published_versions import NOW, note, status_when
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio

FOREVER = to_micros(datetime(2100, 1, 1, tzinfo=UTC))


@pytest.fixture
async def client(database_url: str, schema: Schema, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A service that holds version 7 of the task."""
    place_version(tmp_path, "7", task=schema.task.name)
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def test_a_version_whose_events_are_all_gone_leads_to_an_import_and_a_retraining(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    note(engine, schema, "7", "release", valid_until=FOREVER)
    name = schema.task.name
    step = (await status_when(client, schema, lambda found: found["state"] == "valid"))["next_step"]
    assert step["text"].startswith("Send labelled events, then retrain: none is stored")
    assert step["command"] == f"morrow events import {name} FILE && morrow cycle {name} --again"
    with engine.begin() as connection:
        append_events(connection, schema, [Event("e", CUTOFF, CUTOFF, (1.0, 2.0), ("UA",), "late")], NOW)
    kept = await status_when(client, schema, lambda found: found["num_events"] == 1)
    assert "none is stored" not in kept["next_step"]["text"]


async def test_a_version_that_learned_from_retracted_events_leads_to_a_retraining(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    """A second import came after the version was fitted, and a third is of later moments."""
    note(engine, schema, "7", "release", valid_until=FOREVER)
    name, read_at = schema.task.name, from_micros(CUTOFF)
    imported = []
    for number, (begun, at) in enumerate(
        [(read_at, CUTOFF - 2 * WEEK), (NOW + timedelta(days=1), CUTOFF - 2 * WEEK), (read_at, CUTOFF)]
    ):
        rows = [Event(f"{number}-{k}", at + k, at + k, (1.0, 2.0), ("UA",), "late") for k in range(30)]
        with engine.begin() as connection:
            begun_import = add_import(connection, schema.task_id, actor="who", source="file", now=begun)
            append_batch(connection, schema, EventBatch.of(rows), begun, begun_import.import_id)
        imported.append(begun_import.import_id)
    for import_id in imported[1:]:
        retract(engine, schema, import_id)
    status = await status_when(client, schema, lambda found: found["state"] == "valid")
    assert not any("retracted" in warning for warning in status["warnings"])
    retract(engine, schema, imported[0])
    import_again(engine, schema)
    status = await status_when(client, schema)
    told = "version 7 learned from 30 events of retracted imports, and answers as before"
    assert any(warning.startswith(told) for warning in status["warnings"])
    assert status["next_step"] == {
        "text": "Import the right rows if they are missing, then retrain: this version learned from 30 events of "
        "retracted imports.",
        "command": f"morrow cycle {name} --again",
        "action": None,
        "is_needed": True,
    }
    page = (await client.get(f"/pages/{name}")).text
    assert told in page
    assert f"morrow cycle {name} --again" in page


def retract(engine: Engine, schema: Schema, import_id: int) -> None:
    with engine.begin() as connection:
        retract_events(connection, schema, import_id, actor="who", reason="a mistake", now=NOW + timedelta(days=2))


def import_again(engine: Engine, schema: Schema) -> None:
    rows = [Event(f"0-{k}", CUTOFF - WEEK + k, CUTOFF - WEEK + k, (1.0, 2.0), ("UA",), "late") for k in range(30)]
    with engine.begin() as connection:
        append_events(connection, schema, rows, NOW + timedelta(days=3))


async def test_erasures_of_a_large_share_lead_to_a_retraining(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    """The version was fitted to a thousand rows."""
    note(engine, schema, "7", "release", valid_until=FOREVER)
    rows = [Event(f"e{k}", CUTOFF - WEEK + k, CUTOFF - WEEK + k, (1.0, 2.0), ("UA",), "late") for k in range(101)]
    with engine.begin() as connection:
        append_events(connection, schema, rows, NOW)
        erase_events(connection, schema, [f"e{k}" for k in range(99)], actor="who", reason="asked", now=NOW)
    status = await status_when(client, schema, lambda found: found["state"] == "valid")
    assert not any("erased" in warning for warning in status["warnings"])
    with engine.begin() as connection:
        erase_events(connection, schema, ["e99"], actor="who", reason="asked", now=NOW)
    status = await status_when(client, schema)
    told = "version 7 learned from up to 100 erased events"
    assert any(warning.startswith(told) for warning in status["warnings"])
    assert status["next_step"]["command"] == f"morrow cycle {schema.task.name} --again"
