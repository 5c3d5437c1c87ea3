"""How a database, a role or the environment write moments and numbers is no affair of ours: all read the same."""

from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from contracts.clock import parse_moment
from contracts.errors import Conflict
from migrations import migrate
from store.engine import make_engine
from store.events.reading.columns import read_events
from store.tasks.catalog import find_task
from tests.integration.service_app import TASK, an_event, service_settings, serving
from tests.servers import database

ODD = {
    "datestyle": "German",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Tokyo",
    "extra_float_digits": "-10",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "lc_messages": "C",
}


@pytest.mark.anyio
@pytest.mark.parametrize("is_environment", [False, True])
async def test_other_ways_to_write_moments_and_numbers_change_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_environment: bool
) -> None:
    if is_environment:
        for name, value in (("PGDATESTYLE", "German"), ("PGTZ", "Asia/Tokyo"), ("PGCLIENTENCODING", "LATIN1")):
            monkeypatch.setenv(name, value)
    else:
        engine = create_engine(database_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            for name, value in ODD.items():
                connection.execute(text(f"ALTER DATABASE {make_url(database_url).database} SET {name} = '{value}'"))
    distance, carrier = 0.1 + 0.2, "日本 é €"
    async with serving(service_settings(database_url, tmp_path)) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201
        features = {"distance": distance, "carrier": carrier, "wind": None}
        sent = [an_event("é€日", features=features), an_event("e2")]
        assert (await client.post("/events", json=sent)).json()["created"] == 2
        assert (await client.post("/events", json=sent[0])).json()["duplicates"] == 1
        status = (await client.get("/tasks/flights")).raise_for_status().json()
        assert status["num_events"] == 2
        assert (await client.post("/tasks/flights/cycles", json={})).status_code == 202
        (cycle,) = (await client.get("/tasks/flights/cycles")).json()["cycles"]
        assert cycle["cutoff"].endswith("T00:00:00Z")
        corrected = an_event(features=features | {"carrier": "UA"})
        corrected["event_id"] = "é€日"
        answer = await client.put("/events/%C3%A9%E2%82%AC%E6%97%A5", params={"task": "flights"}, json=corrected)
        assert answer.status_code == 200
    engine = make_engine(database_url)
    with engine.connect() as connection:
        schema = find_task(connection, "flights")
        found = read_events(connection, schema.task_id, schema.task, cutoff=parse_moment("2026-02-01T00:00:00Z"))
        text_of = connection.execute(text("SELECT numbers FROM events WHERE event_id = 'é€日' LIMIT 1")).scalar_one()
    engine.dispose()
    assert text_of[0] == distance
    assert len(found.at) == 2
    assert set(found.at.tolist()) == {parse_moment("2026-01-05T11:00:00Z")}


def test_a_database_that_cannot_hold_every_text_is_refused_before_any_table_is_made(server_url: str) -> None:
    latin = "ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
    with database(server_url, how=latin) as url, pytest.raises(Conflict, match="encoding is LATIN1"):
        migrate(url)
