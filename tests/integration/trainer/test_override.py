"""An admin's word over the judge's: a closed horizon reopened, a held candidate released, and both written down."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment
from contracts.failure import REGISTRY_UNREACHABLE
from store.cycles.leases import claim_cycle, end_cycle
from store.cycles.requests import request_cycle
from store.tasks.catalog import Schema, define_task
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.published_versions import LEASE, NOW, define, history, note, run_cycle, wait_for
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(database_url: str, schema: Schema, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A service that holds version 7 of the task."""
    place_version(tmp_path, "7", task=schema.task.name)
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def override(client: httpx.AsyncClient, schema: Schema, **body: Any) -> httpx.Response:
    return await client.post(f"/tasks/{schema.task.name}/override", json={"reason": "a strike", **body})


async def test_an_override_reopens_a_closed_horizon(client: httpx.AsyncClient, engine: Engine, schema: Schema) -> None:
    note(engine, schema, "7", "release")
    note(engine, schema, "7", "close", valid_until=CUTOFF + WEEK)
    question = {"task": schema.task.name, "distance": "0", "carrier": "UA", "at": format_moment(CUTOFF + 3 * WEEK // 2)}
    closed = await wait_for(client, "/predict", lambda found: found.get("status") == 422, params=question)
    assert closed["valid_until"] == format_moment(CUTOFF + WEEK)
    answer = await override(client, schema, actor="Ada")
    assert answer.status_code == 200
    row = answer.json()
    assert (row["action"], row["version"], row["actor"], row["reason"]) == ("override", "7", "Ada", "a strike")
    assert row["valid_until"] == format_moment(CUTOFF + 2 * WEEK)
    assert row["verdict"]["replaced_valid_until"] == format_moment(CUTOFF + WEEK)
    reopened = await wait_for(client, "/predict", lambda found: "prediction" in found, params=question)
    assert reopened["valid_until"] == format_moment(CUTOFF + 2 * WEEK)
    status = (await client.get(f"/tasks/{schema.task.name}")).json()
    assert (status["closed"], status["override"]["actor"]) == (None, "Ada")


@pytest.mark.parametrize(
    ("valid_until", "status"),
    [
        (CUTOFF, 200),
        (CUTOFF + WEEK, 200),
        (CUTOFF + 4 * WEEK, 200),
        (CUTOFF + 4 * WEEK + 1, 422),
        (CUTOFF - 1, 422),
    ],
)
async def test_an_override_stays_between_the_cutoff_and_the_longest_horizon(
    client: httpx.AsyncClient, engine: Engine, schema: Schema, valid_until: int, status: int
) -> None:
    note(engine, schema, "7", "release")
    answer = await override(client, schema, version="7", valid_until=format_moment(valid_until))
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["valid_until"] == format_moment(valid_until)
    else:
        assert answer.json()["errors"][0]["field"] == "valid_until"
        assert len(history(engine, schema)) == 1


async def test_an_override_that_names_no_bound_never_shortens(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    note(engine, schema, "7", "release")
    longer = format_moment(CUTOFF + 3 * WEEK)
    for given in ({"valid_until": longer}, {}, {"version": "7"}):
        assert (await override(client, schema, **given)).json()["valid_until"] == longer


async def test_an_override_counts_the_windows_that_the_version_was_released_with(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    note(engine, schema, "7", "release")
    halved = schema.task.model_copy(update={"window": schema.task.window / 2})
    with engine.begin() as connection:
        define_task(connection, halved, NOW)
    for valid_until, status in ((CUTOFF + 4 * WEEK, 200), (CUTOFF + 4 * WEEK + 1, 422)):
        assert (
            await override(client, schema, version="7", valid_until=format_moment(valid_until))
        ).status_code == status


async def test_a_release_that_names_no_cutoff_is_not_stretched(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    note(engine, schema, "7", "release", verdict={"passed": True})
    for valid_until, status in ((CUTOFF + 2 * WEEK, 200), (CUTOFF + 2 * WEEK + 1, 422)):
        assert (await override(client, schema, valid_until=format_moment(valid_until))).status_code == status


async def test_what_was_never_released_is_not_overridden(client: httpx.AsyncClient, schema: Schema) -> None:
    assert (await override(client, schema)).status_code == 404
    assert (await override(client, schema, version="8")).status_code == 404
    assert (await override(client, schema, cycle=1)).status_code == 404
    for body in ({"cycle": 1, "version": "7"}, {"cycle": "1"}, {"cycle": 0}, {"cycle": 1.5}, {"reason": None}):
        assert (await override(client, schema, **body)).status_code == 422


async def test_a_held_cycle_is_tried_again_with_the_word_of_the_admin(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    held = run_cycle(engine, schema, CUTOFF, "held", "the newest window is suspect")
    answer = await override(client, schema, cycle=held.cycle_id, actor="Ada")
    assert answer.status_code == 202
    asked = answer.json()
    assert (asked["attempt"], asked["state"], asked["cutoff"]) == (2, "requested", format_moment(CUTOFF))
    assert asked["override"] == {"actor": "Ada", "reason": "a strike"}
    again = await override(client, schema, cycle=held.cycle_id)
    assert (again.json()["id"], again.json()["override"]["actor"]) == (asked["id"], "admin")
    with engine.begin() as connection:
        claimed = claim_cycle(connection, "lease", NOW, LEASE)
    assert claimed is not None
    assert (claimed.override_actor, claimed.override_reason) == ("admin", "a strike")
    running = await override(client, schema, cycle=held.cycle_id)
    assert running.status_code == 409


async def test_an_override_outlives_an_attempt_that_fails_but_not_one_that_ends(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    held = run_cycle(engine, schema, CUTOFF, "held", "suspect")
    await override(client, schema, cycle=held.cycle_id, actor="Ada")
    for state, inherits in (("failed", True), ("held", False)):
        with engine.begin() as connection:
            claimed = claim_cycle(connection, "lease", NOW, LEASE)
            assert claimed is not None
            end_cycle(connection, claimed, state, REGISTRY_UNREACHABLE, NOW)  # type: ignore[arg-type]  # any of the states
            again = request_cycle(connection, schema.task_id, CUTOFF, NOW)
        assert (again.override_actor == "Ada") is inherits


@pytest.mark.parametrize(
    ("rule", "status"),
    [("newest_window", 202), ("withheld_rows", 202), ("horizon", 409), ("min_pairs", 409)],
)
async def test_an_override_opens_no_gate_and_says_which_one_holds(
    client: httpx.AsyncClient, engine: Engine, schema: Schema, rule: str, status: int
) -> None:
    decisions = [
        {"rule": "min_rows", "passed": True, "value": 500, "threshold": 100, "reason": None},
        {"rule": rule, "passed": False, "value": 0, "threshold": 1, "reason": "it is so"},
    ]
    verdict = {"passed": False, "reason": "it is so", "decisions": decisions}
    held = run_cycle(engine, schema, CUTOFF, "held", "it is so", verdict=verdict)
    answer = await override(client, schema, cycle=held.cycle_id)
    assert answer.status_code == status
    if status == 409:
        assert f"the gate {rule} (it is so)" in answer.json()["detail"]


async def test_only_a_held_cycle_without_a_newer_release_is_overridden(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    skipped = run_cycle(engine, schema, CUTOFF - WEEK, "skipped", "too few rows")
    held = run_cycle(engine, schema, CUTOFF, "held", "suspect")
    other = define(engine)
    assert (await override(client, schema, cycle=skipped.cycle_id)).status_code == 409
    assert (await override(client, other, cycle=held.cycle_id)).status_code == 404
    run_cycle(engine, schema, CUTOFF + WEEK, "released", version="8")
    newer = await override(client, schema, cycle=held.cycle_id)
    assert newer.status_code == 409
    assert "version 8" in newer.json()["detail"]


async def test_the_page_offers_only_what_an_override_may_release(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    async def offered() -> set[int]:
        page = (await client.get(f"/pages/{schema.task.name}")).text
        return {int(cycle) for cycle in re.findall(r'<option value="(\d+)">\d+: ', page)}

    def broken(rule: str) -> dict[str, Any]:
        return {"decisions": [{"rule": rule, "passed": False, "value": 0, "threshold": 1, "reason": "it is so"}]}

    suspect = run_cycle(engine, schema, CUTOFF, "held", "suspect", verdict=broken("newest_window"))
    run_cycle(engine, schema, CUTOFF + WEEK, "held", "no age is validated", verdict=broken("horizon"))
    assert await offered() == {suspect.cycle_id}
    run_cycle(engine, schema, CUTOFF + 2 * WEEK, "released", version="8")
    assert await offered() == set()
