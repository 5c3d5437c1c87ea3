"""PUT /events/{event_id} and the store below it: a correction never changes what was known before it."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from contracts.clock import from_micros, to_micros
from contracts.errors import NotFound
from contracts.task import Task
from store.database import events, rejected_events
from store.events.batches import Event
from store.events.reading.columns import EventColumns, read_events
from store.events.writes import append_events, correct_event
from store.tasks.catalog import Schema, define_task
from tests.integration.service_app import an_event, service_settings, serving

NOW = datetime(2026, 1, 1, tzinfo=UTC)
START = to_micros(NOW)
HOUR = 3_600_000_000
DEMAND = Task.model_validate(
    {
        "name": "demand",
        "window": "PT1H",
        "features": [{"name": "load", "kind": "number", "optional": True}, {"name": "region", "kind": "category"}],
        "target": {"name": "up", "kind": "classification"},
    }
)


def with_features(*numbers: str) -> Task:
    features = [{"name": name, "kind": "number"} for name in numbers]
    return Task.model_validate(DEMAND.model_dump() | {"features": [*features, {"name": "region", "kind": "category"}]})


def event(event_id: str = "e", at: int = START, label: str = "yes", load: float = 1.0, **changes: Any) -> Event:
    return Event(event_id, at, changes.pop("known_at", at), (load,), ("r",), label)


@pytest.fixture
def schema(engine: Engine) -> Schema:
    with engine.begin() as connection:
        return define_task(connection, DEMAND, NOW)[0]


def read(engine: Engine, schema: Schema, cutoff: int) -> EventColumns:
    with engine.connect() as connection:
        return read_events(connection, schema.task_id, schema.task, cutoff)


def as_of(engine: Engine, schema: Schema, cutoff: int) -> EventColumns:
    return read(engine, schema, cutoff).as_of(cutoff)


def correct(engine: Engine, schema: Schema, row: Event, received_at: int) -> str:
    with engine.begin() as connection:
        return correct_event(connection, schema, row, from_micros(received_at))


def revisions(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(events).order_by(events.c.event_id, events.c.revision)))


def test_a_correction_changes_no_training_set_as_of_a_cutoff_before_it(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event("a", START), event("b", START + 1)], NOW)
    corrected_at = START + 5 * HOUR
    before = {cutoff: as_of(engine, schema, cutoff).digest for cutoff in (START + HOUR, corrected_at - 1)}
    assert correct(engine, schema, event("a", START, label="no"), corrected_at) == "corrected"
    assert {cutoff: as_of(engine, schema, cutoff).digest for cutoff in before} == before
    for cutoff in (corrected_at, corrected_at + HOUR):
        found = as_of(engine, schema, cutoff)
        assert [found.classes[label] for label in found.labels] == ["no", "yes"]


def test_a_second_correction_of_the_same_content_writes_nothing(engine: Engine, schema: Schema) -> None:
    nan = float("nan")
    with engine.begin() as connection:
        append_events(connection, schema, [event(load=nan)], NOW)
    assert correct(engine, schema, event(load=nan), START + HOUR) == "duplicate"
    assert correct(engine, schema, event(label="no", load=nan), START + HOUR) == "corrected"
    assert correct(engine, schema, event(label="no", load=nan), START + 2 * HOUR) == "duplicate"
    assert correct(engine, schema, event(load=nan), START + 3 * HOUR) == "corrected"
    assert [(row.revision, row.label) for row in revisions(engine)] == [(1, "yes"), (2, "no"), (3, "yes")]


def test_a_resend_of_any_revision_is_a_duplicate_and_other_content_a_conflict(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event()], NOW)
    correct(engine, schema, event(label="no"), START + HOUR)
    with engine.begin() as connection:
        for label, outcome in (("yes", "duplicate"), ("no", "duplicate"), ("perhaps", "conflict")):
            assert append_events(connection, schema, [event(label=label)], NOW) == [outcome]


def test_a_correction_may_move_an_event_into_another_window(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event(at=START + 3 * HOUR)], NOW)
    correct(engine, schema, event(at=START), START + 5 * HOUR)
    found = read(engine, schema, START + 9 * HOUR)
    assert len(found.in_window(START, START + HOUR)) == 1
    assert len(found.in_window(START + 3 * HOUR, START + 4 * HOUR)) == 0
    assert as_of(engine, schema, START + 4 * HOUR).at.tolist() == [START + 3 * HOUR]
    assert as_of(engine, schema, START + 5 * HOUR).at.tolist() == [START]


def test_an_event_of_an_older_schema_is_corrected_in_the_new_one(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event()], NOW)
        newer, _ = define_task(connection, with_features("load", "speed"), NOW)
    row = Event("e", START, START, (3.0, 2.0), ("r",), "yes")
    assert correct(engine, newer, row, START + HOUR) == "corrected"
    assert as_of(engine, schema, START + HOUR - 1).numbers.tolist() == [[1.0]]
    # The row of the newer form has all that the older one asks for (`store.events.row_forms`).
    assert as_of(engine, schema, START + HOUR).numbers.tolist() == [[3.0]]
    assert as_of(engine, newer, START + HOUR).numbers.tolist() == [[3.0, 2.0]]


def test_the_same_values_under_other_names_are_a_correction(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event()], NOW)
        newer, _ = define_task(connection, with_features("weight"), NOW)
    assert correct(engine, newer, event(), START + HOUR) == "corrected"
    assert len(as_of(engine, newer, START + HOUR)) == 1


def test_what_is_not_stored_cannot_be_corrected(engine: Engine, schema: Schema) -> None:
    with pytest.raises(NotFound):
        correct(engine, schema, event(), START)
    assert revisions(engine) == []


def test_corrections_at_once_each_become_a_revision_and_one_is_current(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event()], NOW)
    ready = threading.Barrier(4)

    def send(number: int) -> str:
        ready.wait()
        return correct(engine, schema, event(load=float(number)), START + HOUR)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(send, range(10, 14))) == ["corrected"] * 4
    stored = revisions(engine)
    assert [row.revision for row in stored] == [1, 2, 3, 4, 5]
    assert [row.superseded_at is None for row in stored] == [False] * 4 + [True]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    known_at=st.integers(0, 4),
    corrections=st.lists(st.tuples(st.integers(-2, 6), st.sampled_from(["yes", "no"])), max_size=6),
)
def test_from_the_moment_it_is_known_exactly_one_revision_of_an_event_is_visible(
    engine: Engine, schema: Schema, known_at: int, corrections: list[tuple[int, str]]
) -> None:
    """Whatever the clocks of the processes that took event and corrections say."""
    name = uuid4().hex
    first = event(name, START - 100, known_at=START + known_at)
    with engine.begin() as connection:
        append_events(connection, schema, [first], from_micros(START + 1))
    for received_at, label in corrections:
        before = {
            micros: as_of(engine, schema, START + micros).digest for micros in range(-3, max(received_at, known_at))
        }
        correct(engine, schema, event(name, START - 100, label=label), START + received_at)
        after = {micros: as_of(engine, schema, START + micros).digest for micros in before}
        assert after == before
    mine = [row for row in revisions(engine) if row.event_id == name]
    for micros in range(-3, 10):
        moment = from_micros(START + micros)
        visible = [
            row for row in mine if row.known_at <= moment and (row.superseded_at is None or row.superseded_at > moment)
        ]
        assert len(visible) == (1 if micros >= known_at else 0)
    labels = [label for _, label in corrections]
    assert mine[-1].label == (labels[-1] if labels else "yes")


def body(**changes: Any) -> dict[str, Any]:
    sent = an_event(**changes)
    del sent["event_id"]
    return sent


@pytest.mark.anyio
async def test_a_correction_is_known_when_it_is_received(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_event())
    began = datetime.now(UTC)
    answer = await client.put("/events/e1?task=flights", json=body(label="late", known_at="2026-01-07T00:00:00Z"))
    assert (answer.status_code, answer.json()) == (200, {"event_id": "e1", "status": "corrected"})
    first, second = revisions(engine)
    assert first.superseded_at == second.known_at == second.received_at
    assert began <= second.known_at <= datetime.now(UTC)
    assert (first.label, second.label) == ("on_time", "late")
    again = await client.put("/events/e1", json=an_event(label="late"))
    assert again.json() == {"event_id": "e1", "status": "duplicate"}
    metrics = (await client.get("/metrics")).text
    assert 'morrow_events_total{outcome="corrected"} 1.0' in metrics


@pytest.mark.anyio
async def test_a_label_given_early_is_not_known_earlier_by_being_corrected(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    await client.post("/events", json=an_event(at=at.isoformat()))
    await client.put("/events/e1", json=body(at=at.isoformat(), label="late"))
    first, second = revisions(engine)
    assert second.known_at == first.known_at == at + timedelta(hours=6)


@pytest.mark.anyio
async def test_a_refused_correction_names_its_fields_and_is_kept(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_event())
    refused = [
        (body(features={"distance": True}), {"features.distance", "features.carrier"}),
        (an_event("other"), {"event_id"}),
        (body(label="never"), {"label"}),
        ([body()], {"event"}),
    ]
    for sent, fields in refused:
        answer = await client.put("/events/e1", json=sent)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert {fault["field"] for fault in answer.json()["errors"]} == fields
    with engine.connect() as connection:
        kept = list(connection.execute(select(rejected_events).order_by(rejected_events.c.id)))
    # What is of two ids at once is neither's row: erasing the one would leave what the other's row says.
    assert [json.loads(row.payload) for row in kept] == [sent for sent, fields in refused if fields != {"event_id"}]
    assert {row.event_id for row in kept} == {"e1"}
    assert len(revisions(engine)) == 1


@pytest.mark.anyio
async def test_a_correction_of_what_is_not_there_is_a_404_and_a_broken_body_a_400(client: httpx.AsyncClient) -> None:
    missing = await client.put("/events/e1", json=body())
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/not-found")
    assert (await client.put("/events/e1?task=none", json=body())).status_code == 404
    assert (await client.put("/events/e1?force=true", json=body())).status_code == 422
    broken = await client.put("/events/e1", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400
    for name in ("%00", "%0a", "x" * 300):
        assert (await client.put(f"/events/{name}", json=body())).status_code == 422


@pytest.mark.anyio
async def test_an_id_with_slashes_is_corrected_too(client: httpx.AsyncClient) -> None:
    await client.post("/events", json=an_event("a/b c/1"))
    answer = await client.put("/events/a%2Fb%20c%2F1", json=body(label="late"))
    assert answer.json() == {"event_id": "a/b c/1", "status": "corrected"}


@pytest.mark.anyio
async def test_without_a_database_a_correction_is_503(tmp_path: Path) -> None:
    dead = "postgresql+psycopg://someone:secret@127.0.0.1:9/morrow"
    async with serving(service_settings(dead, tmp_path)) as client:
        answer = await client.put("/events/e1?task=flights", json=body())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "secret" not in answer.text
