"""Ingest at scale: events that share a commit, streams of lines, compressed bodies, and clients that misbehave."""

import gzip
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, func, select, text

from service.app import make_app
from service.web.bodies import NUM_LINES_PER_CHUNK
from store.database import events, rejected_events
from tests.integration.service_app import TASK, an_event, post_scope, service_settings, serving

pytestmark = pytest.mark.anyio
NDJSON = {"content-type": "application/x-ndjson"}
GZIP = {"content-type": "application/json", "content-encoding": "gzip"}


def stored(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(events.c.event_id).order_by(events.c.event_id)).scalars())


def num_rejected(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(rejected_events)).scalar_one()


async def post_all(client: httpx.AsyncClient, bodies: Sequence[Any]) -> list[httpx.Response]:
    answers: dict[int, httpx.Response] = {}

    async def post(place: int, body: Any) -> None:
        answers[place] = await client.post("/events", json=body)

    async with anyio.create_task_group() as group:
        for place, body in enumerate(bodies):
            group.start_soon(post, place, body)
    return [answers[place] for place in range(len(bodies))]


async def test_events_that_wait_side_by_side_share_a_commit(client: httpx.AsyncClient, engine: Engine) -> None:
    answers = await post_all(client, [an_event(f"e{i:03}") for i in range(200)])
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json()["results"][0]["event_id"] for answer in answers] == [f"e{i:03}" for i in range(200)]
    assert len(stored(engine)) == 200
    with engine.connect() as connection:
        moments = connection.execute(select(func.count(events.c.received_at.distinct()))).scalar_one()
    assert moments < 50


async def test_each_of_a_group_gets_its_own_answer(client: httpx.AsyncClient, engine: Engine) -> None:
    first = await client.post("/events", json=an_event("known"))
    assert first.json()["created"] == 1, first.text
    other = await client.put("/tasks/other", json=TASK)
    assert other.status_code == 201, other.text
    bodies = [
        an_event("new"),
        an_event("known"),
        an_event("known", label="late"),
        an_event("wrong", label=1),
        an_event("twice"),
        an_event("twice"),
    ]
    answers: dict[int, httpx.Response] = {}

    async def post(place: int, path: str, content: bytes) -> None:
        answers[place] = await client.post(path, content=content, headers={"content-type": "application/json"})

    requests = [("/events?task=flights", json.dumps(body).encode()) for body in bodies]
    requests += [("/events?task=none", requests[0][1]), ("/events", requests[0][1]), ("/events?task=flights", b"{")]
    requests += [("/events?task=other", requests[0][1])]
    async with anyio.create_task_group() as group:
        for place, (path, content) in enumerate(requests):
            group.start_soon(post, place, path, content)
    said = [answers[place].status_code for place in range(len(requests))]
    assert said == [200, 200, 409, 422, 200, 200, 404, 422, 400, 200]
    assert [answers[place].json()[status] for place, status in ((0, "created"), (1, "duplicates"))] == [1, 1]
    assert sorted(answers[place].json()["created"] for place in (4, 5)) == [0, 1]
    assert stored(engine) == ["known", "new", "new", "twice"]
    assert num_rejected(engine) == 1


async def test_what_a_known_event_says_is_told_by_the_store_and_not_by_the_row_before_it(
    client: httpx.AsyncClient,
) -> None:
    await client.post("/events", json=an_event("known"))
    batch = [an_event("known", label="late"), an_event("known"), an_event("known", label="late")]
    batch += [an_event("new", label="late"), an_event("new"), an_event("new", label="late")]
    answer = (await client.post("/events", json=batch)).json()
    said = [result["status"] for result in answer["results"]]
    assert said == ["conflict", "duplicate", "conflict", "created", "conflict", "duplicate"]


async def test_an_event_that_breaks_the_statement_breaks_no_other(client: httpx.AsyncClient, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE events ADD CHECK (event_id <> 'e7')"))
    answers = await post_all(client, [an_event(f"e{i}") for i in range(20)])
    assert [i for i, answer in enumerate(answers) if answer.status_code == 500] == [7]
    assert len(stored(engine)) == 19
    assert "CHECK" not in answers[7].text.upper()


async def test_more_than_may_wait_are_503_and_the_others_are_stored(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    async with serving(service_settings(database_url, tmp_path, queue_size=5)) as client:
        await client.put("/tasks/flights", json=TASK)
        answers = await post_all(client, [an_event(f"e{i:02}") for i in range(60)])
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert len(stored(engine)) == 60 - len(refused)


async def test_a_client_that_leaves_takes_no_other_event_along(client: httpx.AsyncClient, engine: Engine) -> None:
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(0.001):
            await client.post("/events", json=an_event("left"))
        group.start_soon(lambda: client.post("/events", json=an_event("stays")))
    assert "stays" in stored(engine)


def lines(count: int) -> list[bytes]:
    return [json.dumps(an_event(f"e{i:05}")).encode() for i in range(count)]


async def test_a_stream_of_lines_is_stored_and_each_line_that_is_not_created_is_named(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    given = lines(2 * NUM_LINES_PER_CHUNK + 500)
    given[10] = b"{"
    given[1500] = b"[" + given[1501] + b"]"
    given[1700] = json.dumps(an_event("wrong", label=7)).encode()
    given[1800] = given[1799]
    given.insert(3, b"   ")
    answer = await client.post("/events", content=b"\n".join(given), headers=NDJSON)
    assert answer.status_code == 200
    document = answer.json()
    assert (document["created"], document["duplicates"], document["rejected"]) == (2496, 1, 3)
    assert [(row["line"], row["status"]) for row in document["results"]] == [
        (12, "rejected"),
        (1502, "rejected"),
        (1702, "rejected"),
        (1802, "duplicate"),
    ]
    assert document["results"][2]["errors"] == [{"field": "label", "reason": "is a number, not a string"}]
    assert (len(stored(engine)), num_rejected(engine)) == (2496, 3)


async def test_lines_may_be_cut_anywhere_and_the_last_needs_no_end(client: httpx.AsyncClient) -> None:
    body = b"\r\n".join(lines(7))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 11):
            yield body[start : start + 11]

    assert (await client.post("/events", content=pieces(), headers=NDJSON)).json()["created"] == 7


async def test_a_stream_that_fails_says_what_is_stored_and_can_be_sent_again(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION USING ERRCODE = '57P01'; END $$"
            )
        )
        connection.execute(
            text(
                "CREATE TRIGGER fails BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.event_id = 'e01500') "
                "EXECUTE FUNCTION fail()"
            )
        )
    body = b"\n".join(lines(2000))
    refused = await client.post("/events", content=body, headers=NDJSON)
    assert refused.status_code == 503
    assert "1,000 lines before line 1001 are stored" in refused.json()["detail"]
    assert len(stored(engine)) == 1000
    with engine.begin() as connection:
        connection.execute(text("DROP TRIGGER fails ON events"))
    again = (await client.post("/events", content=body, headers=NDJSON)).json()
    assert (again["created"], again["duplicates"]) == (1000, 1000)
    assert len(again["results"]) == 1000


async def test_a_line_over_the_limit_is_413_and_atomic_is_no_word_for_streams(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(service_settings(database_url, tmp_path, max_body_bytes=2048)) as client:
        await client.put("/tasks/flights", json=TASK)
        long = await client.post("/events", content=b"x" * 5000, headers=NDJSON)
        assert (long.status_code, long.json()["type"]) == (413, "/problems/too-large")
        assert (await client.post("/events", content=b"\n".join(lines(100)), headers=NDJSON)).json()["created"] == 100
        atomic = await client.post("/events", params={"atomic": True}, content=b"", headers=NDJSON)
        assert atomic.json()["errors"][0]["field"] == "atomic"


async def test_gzip_is_inflated_for_every_kind_of_body(client: httpx.AsyncClient, engine: Engine) -> None:
    one = gzip.compress(json.dumps(an_event("one")).encode())
    assert (await client.post("/events", content=one, headers=GZIP)).json()["created"] == 1
    many = gzip.compress(json.dumps([an_event(f"m{i}") for i in range(500)]).encode())
    assert (await client.post("/events", content=many, headers=GZIP)).json()["created"] == 500
    stream = b"".join(gzip.compress(line + b"\n") for line in lines(50))
    answer = await client.post("/events", content=stream, headers={**NDJSON, "content-encoding": "gzip"})
    assert answer.json()["created"] == 50
    assert len(stored(engine)) == 551


@pytest.mark.parametrize(
    "body",
    [b"", b"plain", gzip.compress(b"[]" * 100)[:-9], gzip.compress(b"[]") + b"tail"],
    ids=["nothing", "no gzip", "cut off", "a tail"],
)
async def test_broken_gzip_is_400(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/events", content=body, headers=GZIP)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed")


async def test_what_inflates_beyond_the_limit_is_413(client: httpx.AsyncClient) -> None:
    bomb = gzip.compress(b" " * 200_000_000)
    assert len(bomb) < 200_000
    assert (await client.post("/events", content=bomb, headers=GZIP)).status_code == 413


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_gzip_members_that_hold_nothing_come_to_an_end(client: httpx.AsyncClient, kind: str) -> None:
    num_sent = 0

    async def nothing_for_ever() -> AsyncIterator[bytes]:
        nonlocal num_sent
        empty = gzip.compress(b"") * 3000
        while True:
            num_sent += 1
            yield empty

    with anyio.fail_after(60):
        headers = {"content-type": kind, "content-encoding": "gzip"}
        answer = await client.post("/events", content=nothing_for_ever(), headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed")
    assert num_sent * 60_000 < 3_000_000


async def test_some_empty_gzip_members_are_no_matter(client: httpx.AsyncClient) -> None:
    empty = gzip.compress(b"") * 1000
    body = empty + gzip.compress(json.dumps(an_event("one")).encode()) + empty
    assert (await client.post("/events", content=body, headers=GZIP)).json()["created"] == 1


async def test_a_body_that_stalls_is_408(database_url: str, tmp_path: Path) -> None:
    app = make_app(service_settings(database_url, tmp_path, body_seconds=0.2))
    messages: list[Any] = []
    given = [{"type": "http.request", "body": b'{"event', "more_body": True}]

    async def receive() -> Any:
        if not given:
            await anyio.sleep_forever()
        return given.pop()

    async def send(message: Any) -> None:
        messages.append(message)

    scope = post_scope("/events", (b"content-type", b"application/json"))
    async with app.router.lifespan_context(app):
        with anyio.fail_after(20):
            await app(scope, receive, send)
    assert messages[0]["status"] == 408
