"""The fast path answers byte for byte as a task of its own does, is counted as it, and refuses the same."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import onnxruntime
import pytest
from starlette.types import Receive, Scope, Send

from contracts.clock import format_moment
from service.app import App, make_app
from service.web.keys.api_keys import FILE
from store.api_keys import Key, digest_key
from store.api_keys import Scope as KeyScope
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.one_version import without_ids
from tests.integration.service.test_predict import ROW, VALID_UNTIL
from tests.integration.service_app import DEAD_DATABASE, running, service_settings

pytestmark = pytest.mark.anyio

QUERY = {"task": "flights", "at": format_moment(CUTOFF + WEEK), **ROW}
COUNTED = 'morrow_requests_total{method="GET",route="/predict",status="200"}'
TIMED = 'morrow_predict_seconds_count{method="GET"}'


def a_key(name: str, *scopes: KeyScope, rate: float | None = None) -> Key:
    return Key(name, name, digest_key(f"morrow-{name}-secret"), scopes, rate, datetime(2026, 1, 1, tzinfo=UTC))


def sent(name: str, guessed: str = "") -> dict[str, str]:
    return {"Authorization": f"Bearer morrow-{name}-{guessed or 'secret'}"}


@dataclass(frozen=True)
class House:
    """An app that remembers keys and a version, and clients of it."""

    app: App
    client: httpx.AsyncClient
    slow_client: httpx.AsyncClient  # never asks the fast path

    async def figure(self, line: str) -> float:
        """A figure of /metrics; 0 where it is not there yet."""
        lines = (await self.client.get("/metrics", headers=sent("admin"))).text.splitlines()
        return next((float(found.rpartition(" ")[2]) for found in lines if found.startswith(line)), 0)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    place_version(tmp_path)
    keys = [
        a_key("asks", "predict"),
        a_key("admin", "admin"),
        a_key("brings", "ingest"),
        a_key("seldom", "predict", rate=0.001),
    ]
    (tmp_path / FILE).write_bytes(msgspec.json.encode(keys))
    app = make_app(service_settings(DEAD_DATABASE, tmp_path))
    slow = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with running(app) as client, httpx.AsyncClient(transport=slow, base_url="http://morrow") as slow_client:
        yield House(app, client, slow_client)


async def test_both_ways_give_the_same_bytes_and_headers(house: House) -> None:
    without_wind = {name: value for name, value in QUERY.items() if name != "wind"}
    for query in (QUERY, without_wind, {name: value for name, value in QUERY.items() if name != "task"}):
        fast = await house.client.get("/predict", params=query, headers=sent("asks"))
        slow = await house.slow_client.get("/predict", params=query, headers=sent("asks"))
        assert (fast.status_code, fast.headers) == (200, slow.headers)
        assert without_ids(fast.content) == without_ids(slow.content)


async def test_no_question_reaches_the_framework_and_each_is_counted_and_timed(house: House) -> None:
    reached: list[str] = []
    framework = house.app.build_middleware_stack()

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["path"])
        await framework(scope, receive, send)

    house.app.middleware_stack = note
    for count, client in enumerate((house.client, house.client, house.slow_client), start=1):
        assert (await client.get("/predict", params=QUERY, headers=sent("asks"))).status_code == 200
        assert (await house.figure(COUNTED), await house.figure(TIMED)) == (count, count)
    assert set(reached) == {"/metrics"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (sent("asks", "guess"), 401),
        (sent("nobody"), 401),
        (sent("brings"), 403),
        ({"Authorization": "Bearer morrow-asks"}, 401),
        (sent("admin"), 200),
    ],
)
async def test_both_ways_refuse_the_same_keys(house: House, headers: dict[str, str], status: int) -> None:
    assert (await house.client.get("/predict", params=QUERY, headers=headers)).status_code == status
    assert (await house.slow_client.get("/predict", params=QUERY, headers=headers)).status_code == status


async def test_a_key_with_a_rate_is_counted(house: House) -> None:
    asked = [await house.client.get("/predict", params=QUERY, headers=sent("seldom")) for _ in range(2)]
    assert [answer.status_code for answer in asked] == [200, 429]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"at": format_moment(VALID_UNTIL + 1)}, 422),
        ({"distance": "1e400"}, 422),
        ({"color": "red"}, 422),
        ({"task": "trains"}, 404),
        ({"coverage": "0.5"}, 422),
    ],
)
async def test_both_ways_refuse_a_question_with_the_same_problem(
    house: House, changes: dict[str, str], status: int
) -> None:
    fast = await house.client.get("/predict", params=QUERY | changes, headers=sent("asks"))
    slow = await house.slow_client.get("/predict", params=QUERY | changes, headers=sent("asks"))
    assert fast.headers["content-type"] == "application/problem+json"
    assert (fast.status_code, fast.json()) == (status, slow.json())


async def test_a_graph_that_breaks_is_a_problem_without_detail(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_given: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", run)
    answer = await house.client.get("/predict", params=QUERY, headers=sent("asks"))
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal")
    assert "memory" not in answer.text
