"""POST /events against a real PostgreSQL: nothing lost, nothing twice, every refusal kept and named."""

import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, Table, func, select, text

from store.database import events, rejected_events
from tests.integration.service_app import TASK, an_event, service_settings, serving

pytestmark = pytest.mark.anyio


def count(engine: Engine, table: Table = events) -> int:
    with engine.connect() as connection:
        found: int = connection.execute(select(func.count()).select_from(table)).scalar_one()
        return found


async def test_an_event_is_created_once_and_a_resend_is_a_duplicate(client: httpx.AsyncClient, engine: Engine) -> None:
    first = await client.post("/events", params={"task": "flights"}, json=an_event())
    again = await client.post("/events", json=an_event())
    assert first.json() == {
        "created": 1,
        "duplicates": 0,
        "conflicts": 0,
        "rejected": 0,
        "results": [{"event_id": "e1", "status": "created"}],
    }
    assert again.json()["duplicates"] == 1
    assert count(engine) == 1
    with engine.connect() as connection:
        row = connection.execute(select(events)).one()
    assert (row.numbers, row.categories, row.label) == ([1400.0, 3.5], ["UA"], "on_time")
    assert row.at.isoformat() == "2026-01-05T11:00:00+00:00"
    assert (row.known_at - row.at).total_seconds() == 6 * 3600


async def test_one_event_with_other_content_is_a_conflict(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_event())
    answer = await client.post("/events", json=an_event(label="late"))
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].endswith("/conflict")
    assert "e1" in answer.json()["detail"]
    assert count(engine) == 1


async def test_a_batch_stores_its_valid_rows_and_keeps_the_refused_one(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    batch = [an_event(f"e{i}") for i in range(10)]
    batch[5]["features"] = {"distance": True, "Carrier": "UA"}
    answer = await client.post("/events", json=batch)
    body = answer.json()
    assert (answer.status_code, body["created"], body["rejected"]) == (200, 9, 1)
    assert [row["event_id"] for row in body["results"]] == [f"e{i}" for i in range(10)]
    assert {fault["field"] for fault in body["results"][5]["errors"]} == {
        "features.distance",
        "features.Carrier",
    }
    with engine.connect() as connection:
        kept = connection.execute(select(rejected_events)).one()
    assert kept.event_id == "e5"
    assert "features.Carrier: is not one of this task's features: write carrier" in kept.reason
    assert json.loads(kept.payload) == batch[5]


async def test_a_refused_event_alone_is_422_and_kept_as_sent(client: httpx.AsyncClient, engine: Engine) -> None:
    sent = '{"event_id": "e1", "at": "2026-01-05T12:00:00", "features": {"distance": NaN, "carrier": "\\ud800"}}'
    answer = await client.post("/events", content=sent, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert {fault["field"] for fault in answer.json()["errors"]} == {
        "at",
        "features.distance",
        "features.carrier",
    }
    assert count(engine) == 0
    with engine.connect() as connection:
        assert connection.execute(select(rejected_events.c.payload)).scalar_one() == sent


async def test_a_page_of_refused_rows_stays_small_however_long_their_ids_are(client: httpx.AsyncClient) -> None:
    await client.post("/events", params={"task": "flights"}, json=[an_event("x" * 1_000_000), an_event("y", label=1)])
    page = (await client.get("/pages/flights/events")).text
    assert "event_id: is longer than 256 characters" in page
    assert "xxxxxxxx" in page
    assert "<td>y</td>" in page
    assert len(page) < 10_000


async def test_atomic_stores_nothing_beside_a_refused_or_conflicting_row(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    refused = await client.post("/events", params={"atomic": "true"}, json=[an_event("a"), an_event("b", label=1)])
    assert refused.status_code == 422
    assert refused.json()["errors"] == [{"field": "events[1].label", "reason": "is a number, not a string"}]
    assert (count(engine), count(engine, rejected_events)) == (0, 1)
    await client.post("/events", json=an_event("a"))
    conflicting = await client.post(
        "/events", params={"atomic": "true"}, json=[an_event("c"), an_event("a", label="late")]
    )
    assert conflicting.status_code == 409
    assert count(engine) == 1
    whole = await client.post("/events", params={"atomic": "true"}, json=[an_event("c"), an_event("a")])
    assert (whole.json()["created"], whole.json()["duplicates"]) == (1, 1)


async def test_of_two_rows_with_one_id_in_a_batch_the_first_counts(client: httpx.AsyncClient) -> None:
    answer = await client.post("/events", json=[an_event(), an_event(label="late"), an_event()])
    assert [row["status"] for row in answer.json()["results"]] == ["created", "conflict", "duplicate"]


async def test_an_empty_array_is_an_empty_answer(client: httpx.AsyncClient) -> None:
    assert (await client.post("/events", json=[])).json()["results"] == []


async def test_mixed_offsets_are_stored_as_one_time_line(client: httpx.AsyncClient, engine: Engine) -> None:
    batch = [an_event("w", at="2026-01-05T12:00:00+01:00"), an_event("s", at="2026-07-05T12:00:00+02:00")]
    assert (await client.post("/events", json=batch)).json()["created"] == 2
    with engine.connect() as connection:
        hours = [row.at.hour for row in connection.execute(select(events.c.at).order_by(events.c.at))]
    assert hours == [11, 10]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400),
        (b'{"event_id": "e1"} trailing', 400),
        (b"\xef\xbb\xbf{}", 422),
        (b'"\xff"', 400),
        (b"", 400),
        (b"[{},", 400),
        (b"[{} {}]", 400),
        (b'{"event_id": ' + b"1" * 5000 + b"}", 422),
        (b'{"event_id": "a", "event_id": "b"}', 422),
        (b'{"features": {"distance": 1e400}}', 422),
        (b"17", 422),
        (b"null", 422),
    ],
)
async def test_a_broken_body_is_a_problem_and_never_a_500(client: httpx.AsyncClient, body: bytes, status: int) -> None:
    answer = await client.post("/events", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_other_content_is_refused(client: httpx.AsyncClient) -> None:
    for headers in ({"content-type": "text/csv"}, {"content-type": "application/json", "content-encoding": "br"}):
        assert (await client.post("/events", content=b"[]", headers=headers)).status_code == 415


ENCODINGS = {
    "br": "br",
    "deflate": "deflate",
    "zstd": "zstd",
    "gzip, br": "gzip, br",
    "gzip,gzip": "gzip, gzip",
    "Identity, X-Compress": "x-compress",
    "utf-8": "utf-8",
}
BODIES = [
    ("POST", "/events?task=flights", "application/json"),
    ("POST", "/events?task=flights", "application/x-ndjson"),
    ("PUT", "/events/e?task=flights", "application/json"),
    ("POST", "/predict?task=flights", "application/json"),
    ("PUT", "/tasks/other", "application/json"),
    ("POST", "/tasks/flights/cycles", "application/json"),
    ("POST", "/tasks/flights/erasures", "application/json"),
    ("POST", "/tasks/flights/imports", "application/json"),
    ("POST", "/tasks/flights/pause", "application/json"),
    ("POST", "/tasks/flights/rollback", "application/json"),
]


@pytest.mark.parametrize(("method", "path", "kind"), BODIES)
async def test_an_encoding_that_is_not_supported_is_named(
    client: httpx.AsyncClient, method: str, path: str, kind: str
) -> None:
    for encoding, named in ENCODINGS.items():
        headers = {"content-type": kind, "content-encoding": encoding}
        answer = await client.request(method, path, content=b"[]", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (415, "/problems/unsupported-content"), encoding
        assert f"Content-Encoding: {named}. Send it plain, or once with gzip." in answer.json()["detail"]
        assert answer.headers["accept-encoding"] == "gzip"
    lines: list[tuple[str, str]] = [("content-type", kind), ("content-encoding", "gzip"), ("content-encoding", "br")]
    assert (await client.request(method, path, content=b"[]", headers=lines)).status_code == 415


@pytest.mark.parametrize(
    "encoding", ["gzip", "GZIP", "x-gzip", "identity, gzip", ",gzip ,", "identity", "", "Identity"]
)
async def test_a_list_of_encodings_that_means_gzip_or_none_is_taken(client: httpx.AsyncClient, encoding: str) -> None:
    body = json.dumps(an_event()).encode()
    sent = gzip.compress(body) if "gzip" in encoding.lower() else body
    answer = await client.post(
        "/events?task=flights", content=sent, headers={"content-type": "application/json", "content-encoding": encoding}
    )
    assert answer.status_code == 200, answer.text


async def test_a_body_over_the_limit_is_refused_before_it_is_read(database_url: str, tmp_path: Path) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024
            yield b" " * 1024

    async with serving(service_settings(database_url, tmp_path, max_body_bytes=10_000, max_rows=3)) as client:
        await client.put("/tasks/flights", json=TASK)
        headers = {"content-type": "application/json"}
        streamed = await client.post("/events", content=endless(), headers=headers)
        declared = await client.post("/events", content=b" " * 20_000, headers=headers)
        many = await client.post("/events", json=[an_event(f"e{i}") for i in range(4)])
    assert (streamed.status_code, declared.status_code, many.status_code) == (413, 413, 413)
    assert sent <= 12_000


@pytest.mark.parametrize(
    "query", ["atomik=true", "task=flights&task=flights", "atomic=perhaps", "task=none", "task=%00"]
)
async def test_parameters_that_are_not_understood_are_refused(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.post(f"/events?{query}", json=an_event())
    assert answer.status_code == (404 if query in ("task=none", "task=%00") else 422)


async def test_the_task_must_be_named_where_there_are_two(client: httpx.AsyncClient) -> None:
    await client.put("/tasks/other", json=TASK)
    answer = await client.post("/events", json=an_event())
    assert answer.status_code == 422
    assert "flights, other" in answer.json()["detail"]


async def test_concurrent_resends_store_each_event_once(client: httpx.AsyncClient, engine: Engine) -> None:
    statuses: list[dict[str, Any]] = []

    async def send() -> None:
        answer = await client.post("/events", json=[an_event(f"e{i}") for i in range(50)])
        statuses.append(answer.json())

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(send)
    assert sum(status["created"] for status in statuses) == 50
    assert sum(status["duplicates"] for status in statuses) == 350
    assert count(engine) == 50


async def test_the_front_page_counts_corrections(client: httpx.AsyncClient) -> None:
    """One that the API refuses is answered too; the name of the row is the path as people write it."""
    answer = await client.put("/events/never-sent", json=an_event())
    assert answer.status_code // 100 == 4
    page = (await client.get("/")).text
    cells = re.search(r"/events/\{event_id\}(?:<[^>]*>|\s)*(\d+)(?:<[^>]*>|\s)*(\d+)(?:<[^>]*>|\s)*(\d+)", page)
    assert cells is not None
    assert cells.groups() == ("0", "1", "0")


async def test_without_a_database_events_are_503_with_retry_after_and_say_no_host(tmp_path: Path) -> None:
    dead = "postgresql+psycopg://someone:secret@127.0.0.1:9/morrow"
    async with serving(service_settings(dead, tmp_path)) as client:
        answer = await client.post("/events", params={"task": "flights"}, json=an_event())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "127.0.0.1" not in answer.text
        assert "secret" not in answer.text
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503


async def test_a_statement_that_takes_too_long_is_503_and_leaves_nothing(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    async with serving(service_settings(database_url, tmp_path, database_seconds=0.5)) as client:
        await client.put("/tasks/flights", json=TASK)
        with engine.begin() as blocker:
            blocker.execute(text("LOCK TABLE events IN ACCESS EXCLUSIVE MODE"))
            answer = await client.post("/events", json=an_event())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        await anyio.sleep(0.6)
        assert count(engine) == 0
        assert (await client.post("/events", json=an_event())).json()["created"] == 1
