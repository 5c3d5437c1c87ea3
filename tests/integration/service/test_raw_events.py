"""POST /events answers and counts the same however a body is sent, and never reaches the framework."""

import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, func, select, text

from service.app import App, make_app
from store.database import events
from tests.integration.service_app import TASK, an_event, post_scope, running, service_settings

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}
JSON_IN_UTF8 = {"content-type": "application/json; charset=utf-8"}


@dataclass(frozen=True)
class House:
    """An app with a task, and a client of it."""

    app: App
    client: httpx.AsyncClient

    async def figures(self) -> dict[str, float]:
        """What was counted of /events."""
        lines = (await self.client.get("/metrics")).text.splitlines()
        wanted = [line for line in lines if line.startswith(("morrow_events_total", "morrow_requests_total"))]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in wanted if "/metrics" not in line}


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    app = make_app(service_settings(database_url, tmp_path))
    async with running(app) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201
        yield House(app, client)


BODIES: dict[str, Any] = {
    "created": an_event("new"),
    "duplicate": an_event("known"),
    "conflict": an_event("known", label="late"),
    "refused": an_event("wrong", label=1),
    "a field too many": an_event("more", extra=1),
    "an array": [an_event("known")],
}
RAW = {
    "not JSON": b"{",
    "space before": b' {"event_id":1}',
    "NaN": b'{"event_id":NaN}',
    "nothing": b"",
    "a text": b'"{"',
}


@pytest.mark.parametrize("query", ["", "?task=flights", "?task=none", "?atomic=true", "?task=flights&task=flights"])
async def test_a_body_in_pieces_is_answered_and_counted_as_one_that_is_sent_whole(house: House, query: str) -> None:
    await house.client.post("/events", json=an_event("known"))
    for name, body in {**{name: json.dumps(body).encode() for name, body in BODIES.items()}, **RAW}.items():
        one, two = (body.replace(b'"new"', new) for new in (b'"one"', b'"two"'))
        before = await house.figures()
        whole = await house.client.post(f"/events{query}", content=one, headers=JSON)
        between = await house.figures()
        pieces = await house.client.post(f"/events{query}", content=in_pieces(two), headers=JSON_IN_UTF8)
        after = await house.figures()
        assert (whole.status_code, whole.headers) == (pieces.status_code, pieces.headers), name
        assert whole.content.replace(b'"one"', b'"two"') == pieces.content, name
        assert _growth(before, between) == _growth(between, after), name


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 7):
        yield body[start : start + 7]


def _growth(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {line: figure - before.get(line, 0) for line, figure in after.items() if figure != before.get(line, 0)}


async def test_a_bug_is_counted_and_answered_as_a_problem_without_detail(house: House, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE events ADD CHECK (event_id <> 'never')"))
    before = await house.figures()
    answer = await house.client.post("/events", json=an_event("never"))
    after = await house.figures()
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal")
    assert "never" not in answer.text
    line = 'morrow_requests_total{method="POST",route="/events",status="500"}'
    assert _growth(before, after) == {line: 1}


async def test_no_event_reaches_the_framework(house: House) -> None:
    async def fail(*_given: Any) -> None:
        raise AssertionError("the framework is asked")

    house.app.middleware_stack = fail
    assert (await house.client.post("/events", json=an_event("e"))).status_code == 200
    assert (await house.client.post("/events", json=[an_event("e")])).status_code == 200
    assert (await house.client.put("/events/e", json=an_event("e", label="late"))).status_code == 200
    assert (await house.client.post("/events", content=b"{")).status_code == 400


@pytest.mark.parametrize(
    ("path", "allowed"), [("/events", "POST"), ("/events/e", "GET, HEAD, PUT"), ("/predict", "GET, HEAD, POST")]
)
async def test_a_method_that_a_raw_path_does_not_take_is_405_and_names_those_it_takes(
    house: House, path: str, allowed: str
) -> None:
    for method in ("DELETE", "OPTIONS", "PATCH"):
        before = await house.figures()
        answer = await house.client.request(method, path)
        assert (answer.status_code, answer.json()["type"]) == (405, "/problems/method-not-allowed")
        assert answer.headers["allow"] == allowed
        route = "/events/{event_id}" if path == "/events/e" else path
        line = f'morrow_requests_total{{method="{method}",route="{route}",status="405"}}'
        assert _growth(before, await house.figures()) == {line: 1}


async def test_a_body_may_be_packed_and_is_refused_from_another_site(house: House, engine: Engine) -> None:
    packed = gzip.compress(json.dumps(an_event("packed")).encode())
    answer = await house.client.post("/events", content=packed, headers=JSON | {"content-encoding": "gzip"})
    assert answer.json()["created"] == 1
    strange = await house.client.post("/events", json=an_event("strange"), headers={"sec-fetch-site": "cross-site"})
    assert strange.status_code == 403
    words = await house.client.post("/events", content=b"{}", headers={"content-type": "text/plain"})
    assert words.status_code == 415
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(events)).scalar_one() == 1


async def test_a_body_of_which_nothing_comes_is_given_up(database_url: str, tmp_path: Path) -> None:
    app = make_app(service_settings(database_url, tmp_path, body_seconds=0.2))
    messages: list[Any] = []
    num_waits = 0

    async def receive() -> Any:
        nonlocal num_waits
        num_waits += 1
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        messages.append(message)

    scope = post_scope("/events", (b"content-type", b"application/json"), (b"content-length", b"100"))
    async with app.router.lifespan_context(app):
        with anyio.fail_after(20):
            await app(scope, receive, send)
    assert (num_waits, messages[0]["status"]) == (1, 408)
    assert (b"connection", b"close") in [(name.lower(), value) for name, value in messages[0]["headers"]]
