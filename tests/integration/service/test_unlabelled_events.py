"""Events that arrive without a label: kept apart, completed later, and read by no fit until then."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, select, text

from contracts.clock import to_micros
from store.database import events, incomplete_events
from store.events.reading.columns import read_events
from store.tasks.catalog import find_task
from tests.integration.service_app import an_event

pytestmark = pytest.mark.anyio

END = to_micros(datetime(2027, 1, 1, tzinfo=UTC))
NDJSON = {"content-type": "application/x-ndjson"}


def an_input(event_id: str = "e1", **changes: Any) -> dict[str, Any]:
    """The event without its label."""
    return {name: value for name, value in an_event(event_id, **changes).items() if name != "label"}


async def counts(client: httpx.AsyncClient) -> tuple[int, int]:
    """The numbers of events with and without a label."""
    status = (await client.get("/tasks/flights")).json()
    return status["num_events"], status["num_unlabelled"]


def stored(engine: Engine) -> tuple[list[Any], list[Any]]:
    with engine.connect() as connection:
        return [*connection.execute(select(events)).all()], [*connection.execute(select(incomplete_events)).all()]


async def test_an_event_without_a_label_is_kept_once_and_counted_apart(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    first = await client.post("/events", json=an_input())
    again = await client.post("/events", json=an_input())
    assert first.json() == {
        "created": 0,
        "duplicates": 0,
        "conflicts": 0,
        "rejected": 0,
        "results": [{"event_id": "e1", "status": "unlabelled"}],
        "unlabelled": 1,
    }
    assert again.json()["results"] == [{"event_id": "e1", "status": "duplicate"}]
    whole, kept = stored(engine)
    assert (whole, len(kept), kept[0].numbers) == ([], 1, [1400.0, 3.5])
    assert await counts(client) == (0, 1)


async def test_another_input_of_the_same_id_is_a_conflict(client: httpx.AsyncClient) -> None:
    await client.post("/events", json=an_input())
    answer = await client.post("/events", json=an_input(at="2026-01-05T13:00:00Z"))
    assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (409, "conflict")


@pytest.mark.parametrize("as_lines", [False, True])
async def test_rows_of_one_body_may_have_labels_or_not(client: httpx.AsyncClient, as_lines: bool) -> None:
    rows = [an_event("a"), an_input("b"), an_input("b"), an_input("a"), an_input("c", features={"distance": True})]
    if as_lines:
        body = "\n".join(map(json.dumps, rows))
        answer = (await client.post("/events", content=body, headers=NDJSON)).json()
    else:
        answer = (await client.post("/events", json=rows)).json()
        statuses = [row["status"] for row in answer["results"]]
        assert statuses == ["created", "unlabelled", "duplicate", "duplicate", "rejected"]
    assert [answer[name] for name in ("created", "unlabelled", "duplicates", "rejected")] == [1, 1, 2, 1]
    assert await counts(client) == (1, 1)


async def test_an_atomic_body_with_a_conflict_keeps_no_input(client: httpx.AsyncClient) -> None:
    await client.post("/events", json=an_input("a"))
    rows = [an_input("b"), an_input("a", at="2026-01-06T00:00:00Z")]
    answer = await client.post("/events", params={"atomic": "true"}, json=rows)
    assert (answer.status_code, await counts(client)) == (409, (0, 1))


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (None, "is missing; send an event once its label is known, or leave label out"),
        (float("nan"), "is NaN; send an event once its label is known, or leave label out"),
        ("", "is empty"),
    ],
)
async def test_an_empty_label_is_a_mistake_and_no_absent_one(
    client: httpx.AsyncClient, label: Any, reason: str
) -> None:
    answer = await client.post("/events", content=json.dumps(an_event(label=label)))
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert (fault["field"], fault["reason"].startswith(reason)) == ("label", True), fault
    assert await counts(client) == (0, 0)


async def test_a_misspelt_label_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/events", json=an_input() | {"lable": "late"})
    assert answer.json()["errors"] == [
        {"field": "lable", "reason": "is not one of the fields of an event: write label"}
    ]


async def test_known_at_belongs_to_a_label(client: httpx.AsyncClient) -> None:
    answer = await client.post("/events", json=an_input(known_at="2026-01-09T00:00:00Z"))
    assert answer.json()["errors"] == [
        {"field": "known_at", "reason": "says when the label was known, and there is no label: leave it out"}
    ]


async def test_a_whole_event_takes_the_place_of_its_input(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_input())
    answer = await client.post("/events", json=an_event())
    assert answer.json()["results"] == [{"event_id": "e1", "status": "created"}]
    whole, kept = stored(engine)
    assert (len(whole), kept, await counts(client)) == (1, [], (1, 0))
    assert (await client.post("/events", json=an_input())).json()["duplicates"] == 1


async def test_the_release_before_stores_a_whole_event_in_place_of_an_input(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    await client.post("/events", json=[an_input("a"), an_input("b")])
    with engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO events
                    (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
                SELECT task_id, event_id, 1, at, at, received_at, schema_id, numbers, categories, 'late'
                FROM incomplete_events WHERE event_id = 'a'
            """)
        )
    assert await counts(client) == (1, 1)
    assert [row.event_id for row in stored(engine)[1]] == ["b"]


async def test_no_fit_reads_an_input(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=[an_event("a"), an_input("b")])
    with engine.connect() as connection:
        schema = find_task(connection, "flights")
        read = read_events(connection, schema.task_id, schema.task, END)
    assert len(read.at) == 1


async def test_an_input_is_shown_and_completed_by_a_correction(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_input())
    found = await client.get("/events/e1")
    assert (found.headers["etag"], found.json()["revision"]) == ('"0"', 0)
    assert found.json()["event"] == an_input(at="2026-01-05T11:00:00Z")
    changed = found.json()["event"] | {"features": {"distance": 7, "carrier": "UA"}}
    corrected = await client.put("/events/e1", json=changed, headers={"If-Match": '"0"'})
    assert (corrected.json()["status"], corrected.headers["etag"]) == ("corrected", '"-1"')
    assert (await client.put("/events/e1", json=changed)).json()["status"] == "duplicate"
    late = await client.put("/events/e1", json=changed | {"label": "late"}, headers={"If-Match": '"0"'})
    assert (late.status_code, await counts(client)) == (412, (0, 1))
    done = await client.put("/events/e1", json=changed | {"label": "late"}, headers={"If-Match": '"-1"'})
    assert (done.json()["status"], done.headers["etag"], await counts(client)) == ("corrected", '"1"', (1, 0))
    ((row,), _) = stored(engine)
    assert (row.revision, row.label, row.numbers[0]) == (1, "late", 7.0)


async def test_a_label_that_comes_late_is_known_then(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=[an_input("a"), an_input("b"), an_input("c", at="2999-01-01T00:00:00Z")])
    said = an_event(at="2026-01-05T11:00:00Z", known_at="2026-01-07T00:00:00Z")
    del said["event_id"]
    await client.put("/events/a", json=said)
    await client.put("/events/b", json=an_event("b"))
    await client.put("/events/c", json=an_event("c", at="2999-01-01T00:00:00Z"))
    rows = {row.event_id: row for row in stored(engine)[0]}
    assert rows["a"].known_at.isoformat() == "2026-01-07T00:00:00+00:00"
    assert rows["b"].known_at == rows["b"].received_at
    assert rows["c"].known_at - rows["c"].at == timedelta(hours=6)


async def test_a_correction_cannot_take_a_label_away(client: httpx.AsyncClient) -> None:
    await client.post("/events", json=an_event())
    answer = await client.put("/events/e1", json=an_input())
    assert answer.json()["errors"] == [{"field": "label", "reason": "is required, because the event has one"}]
    assert (await client.put("/events/e2", json=an_input("e2"))).status_code == 404


async def test_an_erased_input_bars_its_id(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_input(features={"distance": 4, "carrier": "secret"}))
    answer = await client.post("/tasks/flights/erasures", json={"event_ids": ["e1"], "reason": "asked"})
    assert (answer.json()["num_events"], answer.json()["results"][0]["status"]) == (1, "erased")
    assert await counts(client) == (0, 0)
    assert (await client.post("/events", json=an_input())).status_code == 409
    assert (await client.post("/events", json=an_event())).status_code == 409
    assert (await client.put("/events/e1", json=an_input())).status_code == 409
    whole, kept = stored(engine)
    assert kept == []
    assert all("secret" not in row.categories and row.superseded_at is not None for row in whole)


async def test_a_retraction_takes_the_inputs_of_its_import(client: httpx.AsyncClient) -> None:
    begun = (await client.post("/tasks/flights/imports", json={"source": "x.csv"})).json()["id"]
    await client.post("/events", params={"import": begun}, json=[an_event("a"), an_input("b"), an_input("c")])
    await client.put("/events/c", json=an_event("c"))
    assert (await client.get(f"/tasks/flights/imports/{begun}")).json()["num_events"] == 3
    path = f"/tasks/flights/imports/{begun}/retract"
    answer = (await client.post(path, json={"reason": "wrong"})).json()
    assert (answer["num_events"], answer["num_retracted"], await counts(client)) == (0, 3, (0, 0))


async def test_a_deleted_task_takes_its_inputs_along(client: httpx.AsyncClient) -> None:
    await client.post("/events", json=an_input())
    contents = (await client.get("/tasks/flights/contents")).json()
    assert (contents["num_events"], contents["num_unlabelled"], contents["num_waiting"]) == (0, 1, 0)


async def test_metrics_and_page_count_inputs(client: httpx.AsyncClient) -> None:
    await client.post("/events", json=[an_input("a"), an_input("b")])
    metrics = ""
    with anyio.fail_after(10):
        while 'morrow_unlabelled_events{task="flights"} 2.0' not in metrics:
            metrics = (await client.get("/metrics")).text
            await anyio.sleep(0.05)
    assert 'morrow_events_total{outcome="unlabelled"} 2.0' in metrics
    page = (await client.get("/pages/flights/events")).text
    assert "2 events without a label" in page
