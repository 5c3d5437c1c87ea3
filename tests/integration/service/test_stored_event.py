"""One stored event, in the form in which a correction takes it back."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio

SALES = {
    "window": "P1D",
    "features": [
        {"name": "price", "kind": "number", "optional": True},
        {"name": "day", "kind": "integer"},
        {"name": "open", "kind": "boolean"},
        {"name": "city", "kind": "category", "optional": True},
    ],
    "target": {"name": "sold", "kind": "regression"},
}
EVENT = {
    "event_id": "a/1 ü",
    "at": "2026-01-01T12:00:00+01:00",
    "known_at": "2026-01-03T00:00:00Z",
    "features": {"price": 2.5, "day": 3, "open": True, "city": "Zürich"},
    "label": 7.25,
}
PATH = "/events/a%2F1%20%C3%BC?task=sales"


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        assert (await client.put("/tasks/sales", json=SALES)).status_code == 201
        assert (await client.post("/events", params={"task": "sales"}, json=EVENT)).status_code == 200
        yield client


async def test_an_event_is_shown_as_it_was_sent_with_its_etag(client: httpx.AsyncClient) -> None:
    answer = await client.get(PATH)
    found = answer.json()
    assert (answer.status_code, answer.headers["etag"], found["revision"], found["import"]) == (200, '"1"', 1, None)
    assert found["event"] == {**EVENT, "at": "2026-01-01T11:00:00Z"}
    assert (type(found["event"]["features"]["day"]), type(found["event"]["features"]["open"])) == (int, bool)
    assert (await client.get("/events/a%2F1%20%C3%BC")).json() == found  # the only task


async def test_what_is_shown_can_be_sent_back_as_a_correction(client: httpx.AsyncClient) -> None:
    found = await client.get(PATH)
    same = await client.put(PATH, json=found.json()["event"], headers={"If-Match": found.headers["etag"]})
    assert same.json()["status"] == "duplicate"
    changed = {**found.json()["event"], "features": {"day": 4, "open": False}, "label": 9}
    assert (await client.put(PATH, json=changed, headers={"If-Match": '"1"'})).json()["status"] == "corrected"
    found = await client.get(PATH)
    assert (found.headers["etag"], found.json()["event"]["label"]) == ('"2"', 9.0)
    assert found.json()["event"]["features"] == {"price": None, "day": 4, "open": False, "city": None}
    again = await client.put(PATH, json=found.json()["event"])
    assert again.json()["status"] == "duplicate"


async def test_an_event_of_an_earlier_form_keeps_its_names(client: httpx.AsyncClient) -> None:
    features = [*SALES["features"][:2], {"name": "weather", "kind": "category", "optional": True}]  # type: ignore[index]  # JSON
    assert (await client.put("/tasks/sales", json={**SALES, "features": features})).status_code == 200
    assert (await client.get(PATH)).json()["event"]["features"] == EVENT["features"]


async def test_an_event_that_is_not_there_erased_or_retracted_is_not_found(client: httpx.AsyncClient) -> None:
    begun = (await client.post("/tasks/sales/imports", json={"source": "a.csv"})).json()["id"]
    await client.post("/events", params={"task": "sales", "import": begun}, json={**EVENT, "event_id": "b"})
    assert (await client.get("/events/b?task=sales")).json()["import"] == begun
    await client.post(f"/tasks/sales/imports/{begun}/retract", json={"reason": "mistaken"})
    await client.post("/tasks/sales/erasures", json={"event_ids": ["a/1 ü"], "reason": "asked"})
    for path, reason in (
        (PATH, "This event is erased"),
        ("/events/b?task=sales", "There is no event"),
        ("/events/c?task=sales", "There is no event"),
        ("/events/%00?task=sales", "There is no event"),
        ("/events/%01?task=sales", "There is no event"),
        ("/events/b?task=other", "There is no task"),
    ):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found"), path
        assert reason in answer.json()["detail"]
    assert (await client.get("/events/b?task=sales&x=1")).status_code == 422


async def test_stored_events_are_listed_page_by_page_newest_first(client: httpx.AsyncClient) -> None:
    rows = [
        {**EVENT, "event_id": f"e{k}", "at": f"2026-01-0{1 + k // 2}T12:00:00Z", "known_at": "2026-01-05T00:00:00Z"}
        for k in range(6)
    ]
    begun = (await client.post("/tasks/sales/imports", json={"source": "a.csv"})).json()["id"]
    stored = await client.post("/events", params={"task": "sales", "import": begun}, json=rows)
    assert stored.json()["created"] == 6
    await client.put("/events/e5?task=sales", json={**rows[5], "label": 9})
    await client.post("/tasks/sales/erasures", json={"event_ids": ["e4"], "reason": "asked"})

    async def page(**params: str | int) -> tuple[list[str], str | None]:
        answer = await client.get("/tasks/sales/events", params=params)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        for one in found["events"]:
            path = f"/events/{quote(one['event']['event_id'], safe='')}?task=sales"
            assert (await client.get(path)).json() == one
        return [one["event"]["event_id"] for one in found["events"]], found["next"]

    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        ids, following = await page(limit=2, **after)
        seen += ids
        if following is None:
            break
        after = {"after": following}
    assert seen == ["e5", "e3", "e2", "e1", "e0", EVENT["event_id"]]
    assert await page(**{"from": "2026-01-02T00:00:00Z", "until": "2026-01-03T12:00:00Z"}) == (["e3", "e2"], None)
    assert await page(**{"from": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}) == ([], None)


@pytest.mark.parametrize(
    ("query", "status"),
    [("after=none", 404), ("limit=0", 422), ("limit=1001", 422), ("from=2026-01-01", 422), ("to=x", 422)],
)
async def test_a_list_of_events_names_what_it_cannot_read(client: httpx.AsyncClient, query: str, status: int) -> None:
    refused = await client.get(f"/tasks/sales/events?{query}")
    assert refused.status_code == status
    assert query.split("=", maxsplit=1)[0] in refused.text or status == 404
