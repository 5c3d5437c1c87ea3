"""An event that is sent again is compared by what its producer said, also where the task has changed in between."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, select

from service.database import Store
from store.database import events
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema
from tests.integration.published_versions import NOW
from tests.integration.service_app import TASK, an_event

pytestmark = pytest.mark.anyio
NUMBER, CATEGORY = {"kind": "number"}, {"kind": "category"}


async def define(client: httpx.AsyncClient, features: Mapping[str, Mapping[str, Any]], **changes: Any) -> None:
    """Another revision of the task, with these features."""
    given = [{"name": name, **kind} for name, kind in features.items()]
    assert (await client.put("/tasks/flights", json=TASK | {"features": given} | changes)).status_code == 200


async def send(client: httpx.AsyncClient, features: Mapping[str, Any], **changes: Any) -> str:
    """What becomes of an event by itself, which is also what becomes of it in a batch, once and twice."""
    one = an_event(features=features, **changes)
    alone = await client.post("/events", json=one)
    batch = (await client.post("/events", json=[one, one])).json()["results"]
    outcome = alone.json()["results"][0]["status"] if alone.status_code == 200 else "conflict"
    assert alone.status_code in (200, 409)
    assert [row["status"] for row in batch] == [outcome if outcome == "conflict" else "duplicate"] * 2
    return str(outcome)


async def test_a_value_under_a_new_name_is_no_duplicate_of_one_under_the_old_name(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    await define(client, {"distance": NUMBER, "carrier": CATEGORY})
    assert await send(client, {"distance": 1.0, "carrier": "UA"}) == "created"
    await define(client, {"miles": NUMBER, "carrier": CATEGORY})
    assert await send(client, {"miles": 1.0, "carrier": "UA"}) == "conflict"
    assert await send(client, {"miles": 2.0, "carrier": "UA"}) == "conflict"
    corrected = await client.put("/events/e1", json=an_event(features={"miles": 1.0, "carrier": "UA"}))
    assert corrected.json()["status"] == "corrected"
    assert await send(client, {"miles": 1.0, "carrier": "UA"}) == "duplicate"
    with engine.connect() as connection:
        assert len(connection.execute(select(events.c.revision)).all()) == 2


async def test_features_that_were_exchanged_are_compared_by_name(client: httpx.AsyncClient) -> None:
    await define(client, {"low": NUMBER, "high": NUMBER})
    assert await send(client, {"low": 1.0, "high": 2.0}) == "created"
    await define(client, {"high": NUMBER, "low": NUMBER})
    assert await send(client, {"low": 1.0, "high": 2.0}) == "duplicate"
    assert await send(client, {"low": 2.0, "high": 1.0}) == "conflict"


async def test_a_feature_that_is_new_counts_only_where_it_is_sent(client: httpx.AsyncClient) -> None:
    await define(client, {"distance": NUMBER})
    assert await send(client, {"distance": 1.0}) == "created"
    new = {"wind": NUMBER | {"optional": True}, "gate": CATEGORY | {"optional": True}}
    await define(client, {"gate": new["gate"], "wind": new["wind"], "distance": NUMBER})
    assert await send(client, {"distance": 1.0}) == "duplicate"
    assert await send(client, {"distance": 1.0, "wind": None}) == "duplicate"
    assert await send(client, {"distance": 1.0, "wind": 3.0}) == "conflict"
    assert await send(client, {"distance": 1.0, "gate": "A1"}) == "conflict"


async def test_a_feature_that_was_dropped_does_not_count(client: httpx.AsyncClient) -> None:
    await define(client, {"distance": NUMBER, "wind": NUMBER, "carrier": CATEGORY})
    assert await send(client, {"distance": 1.0, "wind": 2.0, "carrier": "UA"}) == "created"
    await define(client, {"wind": NUMBER})
    assert await send(client, {"wind": 2.0}) == "duplicate"
    assert await send(client, {"wind": 1.0}) == "conflict"


async def test_a_name_of_another_kind_is_another_feature(client: httpx.AsyncClient) -> None:
    await define(client, {"distance": NUMBER, "gate": NUMBER})
    assert await send(client, {"distance": 1.0, "gate": 7.0}) == "created"
    await define(client, {"distance": NUMBER, "gate": CATEGORY})
    assert await send(client, {"distance": 1.0, "gate": "7.0"}) == "conflict"


async def test_a_label_of_another_target_is_never_the_same(client: httpx.AsyncClient) -> None:
    await define(client, {"distance": NUMBER})
    assert await send(client, {"distance": 1.0}) == "created"
    fewer = {"name": "outcome", "kind": "classification"}
    await define(client, {"distance": NUMBER}, target=fewer)
    assert await send(client, {"distance": 1.0}) == "duplicate"
    await define(client, {"distance": NUMBER}, target=fewer | {"name": "arrival"})
    assert await send(client, {"distance": 1.0}) == "conflict"


async def test_when_a_label_was_known_counts_only_where_the_producer_says_it(client: httpx.AsyncClient) -> None:
    features = {"distance": 1.0, "carrier": "UA"}
    assert await send(client, features) == "created"
    kept = [{key: feature[key] for key in feature} for feature in TASK["features"]]
    await define(client, {one.pop("name"): one for one in kept}, label_delay="PT12H")
    assert await send(client, features) == "duplicate"
    assert await send(client, features, known_at=None) == "duplicate"
    assert await send(client, features, known_at="2026-01-05T17:00:00Z") == "duplicate"
    assert await send(client, features, known_at="2026-01-05T23:00:00Z") == "conflict"


async def test_within_a_batch_a_row_that_leaves_out_when_it_was_known_repeats_one_that_says_it(
    client: httpx.AsyncClient,
) -> None:
    said, other = "2026-01-06T00:00:00Z", "2026-01-07T00:00:00Z"
    batch = [an_event(known_at=said), an_event(), an_event(known_at=said), an_event(known_at=other)]
    answer = await client.post("/events", json=batch)
    assert [row["status"] for row in answer.json()["results"]] == ["created", "duplicate", "duplicate", "conflict"]


def test_rows_that_are_deleted_under_their_producers_are_stored_again(engine: Engine, schema: Schema) -> None:
    batch = [Event(f"e{k:02}", k, k, (1.0, 2.0), ("UA",), "late") for k in range(20)]
    done = threading.Event()

    store = Store(engine, places=3, seconds=60)

    def produce(producer: int) -> list[str]:
        outcomes: list[str] = []
        for first in range(40):
            rows = (batch[first % 20 :] + batch[: first % 20])[:: 1 - 2 * (producer % 2)]
            outcomes += store.transact(partial(append_events, schema=schema, rows=rows, received_at=NOW))
        return outcomes

    def delete() -> int:
        num_deleted = 0
        while not done.is_set():
            with engine.begin() as connection:
                num_deleted += connection.execute(events.delete()).rowcount
        return num_deleted

    with ThreadPoolExecutor(4) as pool:
        deleting = pool.submit(delete)
        try:
            outcomes = [outcome for row in pool.map(produce, range(3)) for outcome in row]
        finally:
            done.set()
        num_deleted = deleting.result()
    with engine.connect() as connection:
        num_left = len(connection.execute(select(events.c.event_id)).all())
    assert {*outcomes} <= {"created", "duplicate"}
    assert outcomes.count("created") == num_deleted + num_left
