"""Erasure on request: nothing that an event said is left in the store, its id stays taken, no training set has it."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, select, text

from contracts.errors import Conflict
from contracts.task import Task
from store.database import events, rejected_events
from store.events.erasures import erase_events, list_erasures
from store.events.reading.columns import read_events
from store.events.reading.counts import read_fingerprints
from store.events.writes import Rejection, append_events, correct_event, record_rejections
from store.tasks.catalog import Schema, define_task
from tests.integration.erased_events import erase
from tests.integration.live_job import append
from tests.integration.service_app import an_event
from tests.integration.store.test_corrections import DEMAND, HOUR, NOW, START, event, revisions, with_features
from trainer.data.snapshot import Reading

pytestmark = pytest.mark.anyio

# What the events of these tests say, wherever it might be found.
SECRETS = ("1400", "UA", "on_time")


@pytest.fixture
def schema(engine: Engine) -> Schema:
    with engine.begin() as connection:
        return define_task(connection, DEMAND, NOW)[0]


def dump(engine: Engine) -> str:
    """Every value of every row about events."""
    with engine.connect() as connection:
        queries = [text(f"SELECT {table}::text FROM {table}") for table in ("events", "rejected_events", "erasures")]  # noqa: S608
        return "\n".join(row for query in queries for row in connection.execute(query).scalars())


async def ask(client: httpx.AsyncClient, *event_ids: str, **changes: Any) -> httpx.Response:
    body = {"event_ids": list(event_ids), "reason": "the customer asked", **changes}
    return await client.post("/tasks/flights/erasures", json=body)


async def test_nothing_of_an_erased_event_is_left_in_the_store(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_event())
    await client.put("/events/e1", json=an_event(label="late"))
    await client.post("/events", json=[an_event(at="1400 UA on_time")])
    assert all(secret in dump(engine) for secret in (*SECRETS, "late", "2026-01-05 11:00:00"))

    answer = await ask(client, "e1", "nobody", actor="data protection")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["num_events"], told["num_revisions"], told["num_rejected"]) == (1, 2, 1)
    assert told["results"] == [
        {"event_id": "e1", "status": "erased"},
        {"event_id": "nobody", "status": "unknown"},
    ]
    assert told["versions"] == []
    left = dump(engine)
    assert not any(secret in left for secret in (*SECRETS, "late", "2026-01-05 11:00:00"))
    history = (await client.get("/tasks/flights/erasures")).json()["erasures"]
    assert history == [{name: told[name] for name in history[0]}]
    assert (told["actor"], told["reason"]) == ("data protection", "the customer asked")


async def test_an_erased_event_is_not_stored_again_by_any_way(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_event())
    await ask(client, "e1")
    before = dump(engine)

    alone = await client.post("/events", json=an_event())
    assert (alone.status_code, alone.json()["type"]) == (409, "/problems/conflict")
    assert alone.json()["detail"] == "Erased on request, and not stored again: 'e1'."
    corrected = await client.put("/events/e1", json=an_event(label="late"))
    assert (corrected.status_code, corrected.json()["type"]) == (409, "/problems/conflict")
    assert dump(engine) == before

    batch = [an_event(), an_event("e2"), an_event("e2", label="late")]
    atomic = await client.post("/events", params={"atomic": "true"}, json=[an_event(), an_event("e2")])
    assert (atomic.status_code, dump(engine)) == (409, before)
    mixed = (await client.post("/events", json=batch)).json()
    assert [result["status"] for result in mixed["results"]] == ["erased", "created", "conflict"]
    assert (mixed["created"], mixed["conflicts"], mixed["erased"]) == (1, 1, 1)
    lines = "\n".join(map(httpx_json, batch))
    streamed = await client.post("/events", content=lines, headers={"content-type": "application/x-ndjson"})
    assert [result["status"] for result in streamed.json()["results"]] == ["erased", "duplicate", "conflict"]
    assert 'morrow_events_total{outcome="erased"} 4.0' in (await client.get("/metrics")).text


async def test_a_faulty_resend_of_an_erased_event_is_not_kept_either(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_event())
    await ask(client, "e1")
    before, faulty, lines = dump(engine), an_event(at="1400 UA on_time"), {"content-type": "application/x-ndjson"}
    assert (await client.post("/events", json=faulty)).status_code == 422
    assert (await client.post("/events", json=[faulty])).json()["rejected"] == 1
    assert (await client.post("/events", params={"atomic": "true"}, json=[faulty])).status_code == 422
    assert (await client.post("/events", content=httpx_json(faulty), headers=lines)).json()["rejected"] == 1
    assert (await client.put("/events/e1", json=faulty)).status_code == 422
    assert dump(engine) == before
    await client.post("/events", content=json.dumps([faulty, an_event("e\udc00", at="kept")]))
    with engine.connect() as connection:
        assert connection.execute(select(rejected_events.c.event_id)).scalars().all() == ["e\\udc00"]


def httpx_json(event: dict[str, Any]) -> str:
    return httpx.Request("POST", "http://x", json=event).content.decode()


async def test_erasing_again_and_erasing_what_is_not_there_change_nothing(client: httpx.AsyncClient) -> None:
    await client.post("/events", json=an_event())
    await ask(client, "e1")
    again = (await ask(client, "e1", "e1", "e2")).json()
    assert [result["status"] for result in again["results"]] == ["erased_before", "unknown"]
    assert (again["num_events"], again["num_revisions"]) == (0, 0)
    assert (await client.post("/events", json=an_event("e2"))).json()["created"] == 1
    assert (await client.get("/tasks/flights")).json()["num_events"] == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reason": "r"}, "event_ids"),
        ({"event_ids": [], "reason": "r"}, "event_ids"),
        ({"event_ids": "e1", "reason": "r"}, "event_ids"),
        ({"event_ids": [7], "reason": "r"}, "event_ids"),
        ({"event_ids": ["x"] * 1001, "reason": "r"}, "event_ids"),
        ({"event_ids": ["e1"]}, "reason"),
    ],
)
async def test_a_request_without_ids_or_reason_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any], field: str
) -> None:
    answer = await client.post("/tasks/flights/erasures", json=body)
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["errors"]] == [field]


REGRESSION = Task.model_validate(DEMAND.model_dump() | {"name": "load", "target": {"name": "up", "kind": "regression"}})
LISTED = Task.model_validate(
    DEMAND.model_dump() | {"target": {"name": "up", "kind": "classification", "classes": ["no", "yes"]}}
)


@pytest.mark.parametrize("task", [DEMAND, LISTED, REGRESSION], ids=["free classes", "listed classes", "regression"])
def test_no_training_set_has_an_erased_event_and_every_count_goes_up(engine: Engine, task: Task) -> None:
    labels = ("1.0", "2.0") if task is REGRESSION else ("yes", "no")
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, NOW)
        append_events(connection, schema, [event(k, START + 7, labels[0]) for k in "abc"], NOW)
        correct_event(connection, schema, event("b", START + HOUR + 7, labels[1]), NOW)
        # A schema with a feature more: the rows of the former one are read in its form.
        newer, _ = define_task(connection, _with_speed(task), NOW)
    with engine.connect() as connection:
        before = read_fingerprints(connection, schema.task_id, newer.task, START + 3 * HOUR, since=START)
    assert erase(engine, newer, "a", "b") == ["erased", "erased"]
    for one in (schema, newer):
        for cutoff in (START + 1, START + HOUR, START + 2 * HOUR, START + 30 * HOUR):
            with engine.connect() as connection:
                found = read_events(connection, one.task_id, one.task, cutoff)
                counted = read_fingerprints(connection, one.task_id, one.task, cutoff, since=START)
            assert counted == Reading(one, cutoff, cutoff, found).fingerprints
            for origin in range(START, cutoff + 1, HOUR // 2):
                assert len(found.as_of(origin)) == (origin >= START + 7 and cutoff >= START + 7)
    assert before == {START: (2, 3), START + HOUR: (1, 1)}
    assert counted == {START: (1, 4), START + HOUR: (0, 2)}


def _with_speed(task: Task) -> Task:
    return Task.model_validate(
        task.model_dump() | {"features": [*task.model_dump()["features"], {"name": "speed", "kind": "number"}]}
    )


def test_only_the_window_of_an_erased_event_is_left_of_its_moments(engine: Engine) -> None:
    task = DEMAND.model_copy(update={"offset": DEMAND.window / 3})
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, NOW)
        rows = [event(str(at), at, known_at=at + HOUR) for at in (START + 7, START - 7, -62_000_000_000_000_007)]
        append_events(connection, schema, rows, datetime(2026, 1, 1, 0, 59, tzinfo=UTC))
    erase(engine, schema, *(row.event_id for row in rows))
    with engine.connect() as connection:
        left = connection.execute(select(events.c.event_id, events.c.at, events.c.known_at, events.c.superseded_at))
        for event_id, at, known_at, superseded_at in left:
            assert _micros(at) == task.clock.window_start(int(event_id))
            assert known_at == superseded_at
            assert _micros(known_at) == task.clock.window_start(int(event_id)) + HOUR


def _micros(at: datetime) -> int:
    return round((at - NOW).total_seconds() * 1e6) + START


def test_whoever_resends_and_corrects_while_an_event_is_erased_stores_nothing_of_it(
    engine: Engine, schema: Schema
) -> None:
    """Eight resends, corrections and erasures of one event at once, twenty times over."""
    for turn in range(20):
        event_id, barrier = f"e{turn}", threading.Barrier(8)
        append(engine, schema, [event(event_id)])

        def take_part(k: int, event_id: str = event_id, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            with engine.begin() as connection:
                if k < 2:
                    rows = [event(event_id)]
                    return append_events(connection, schema, rows, NOW)[0]
                if k < 6:
                    try:
                        return correct_event(connection, schema, event(event_id, label=f"label{k}"), NOW)
                    except Conflict:
                        return "refused"
                return erase_events(connection, schema, [event_id], actor="a", reason="r", now=NOW)[1][0]

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(take_part, range(8)))
        assert sorted(outcomes[6:]) == ["erased", "erased_before"]
        assert set(outcomes[:2]) <= {"duplicate", "erased"}
        assert set(outcomes[2:6]) <= {"corrected", "refused"}
    assert all((row.label, row.numbers[0] == row.numbers[0]) == ("", False) for row in revisions(engine))
    with engine.connect() as connection:
        told = list_erasures(connection, schema.task_id)
    assert sum(one.num_events for one in told) == 20
    assert sum(one.num_revisions for one in told) == len(revisions(engine)) - 20


def test_a_row_that_is_refused_while_its_event_is_erased_is_not_kept(engine: Engine, schema: Schema) -> None:
    """The refusal's transaction is open still when the erasure begins."""
    append(engine, schema, [event("e1")])
    with ThreadPoolExecutor(1) as pool, engine.connect() as connection:
        with connection.begin():
            record_rejections(connection, schema.task_id, [Rejection("e1", "why", "UA")], NOW)
            erasing = pool.submit(erase, engine, schema, "e1")
            with pytest.raises(TimeoutError):
                erasing.result(timeout=0.5)
        assert erasing.result(timeout=30) == ["erased"]
    assert "UA" not in dump(engine)


def test_erasures_of_crossing_ids_never_lock_each_other(engine: Engine, schema: Schema) -> None:
    ids = [f"e{k:03}" for k in range(100)]
    append(engine, schema, [event(event_id) for event_id in ids])
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda step: erase(engine, schema, *ids[::step]), (1, -1, 1, -1)))
    assert sum(outcome == "erased" for one in outcomes for outcome in one) == 100


def test_an_event_of_an_older_schema_is_erased_too(engine: Engine, schema: Schema) -> None:
    append(engine, schema, [event()])
    with engine.begin() as connection:
        newer, _ = define_task(connection, with_features("load", "speed"), NOW)
    assert erase(engine, newer, "e") == ["erased"]
    assert {(len(row.numbers), row.label) for row in revisions(engine)} == {(1, "")}


async def test_refused_rows_of_other_ids_stay(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=[an_event("e1", label="x"), an_event("e2", label="x")])
    assert (await ask(client, "e1")).json()["num_rejected"] == 1
    with engine.connect() as connection:
        assert connection.execute(select(rejected_events.c.event_id)).scalars().all() == ["e2"]
