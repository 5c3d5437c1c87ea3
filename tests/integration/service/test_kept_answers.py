"""What a client may keep of GET /predict: an answer that it asks about again, never one that has ceased to hold."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from contracts.calibration import Calibration
from contracts.clock import format_moment
from store.releases import Overlay
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.one_version import OPEN, ROW, ask, ask_many, everywhere, placed, quantiles, unnamed
from tests.integration.published_versions import note, publish_and_release, wait_for
from tests.integration.service.test_logged_answers import await_rows, read_rows
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio

AT = CUTOFF + WEEK // 2
LATER = CUTOFF + 3 * WEEK // 2
NOW_TOO = Overlay(CUTOFF + 20_000 * WEEK, None)
CALIBRATED = Calibration(1.0, [quantiles(0, *everywhere(0.9, 0.99))])


async def ask_again(client: httpx.AsyncClient, tag: str, at: int = AT, **given: Any) -> httpx.Response:
    params = {"at": format_moment(at), **ROW, **given}
    return await client.get("/predict", params=params, headers={"If-None-Match": tag})


@pytest.fixture
async def client(
    database_url: str, engine: Engine, mlflow_url: str, schema: Schema, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that follows one task."""
    version = publish_and_release(mlflow_url, engine, schema, tmp_path / "published")
    async with serving(service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url)) as client:
        await wait_for_version(client, schema, version)
        yield client


async def wait_for_version(client: httpx.AsyncClient, schema: Schema, version: str) -> None:
    await wait_for(
        client, f"/tasks/{schema.task.name}", lambda found: (found["champion"] or {}).get("version") == version
    )


async def wait_for_bound(client: httpx.AsyncClient, schema: Schema, valid_until: int) -> None:
    bound = format_moment(valid_until)
    await wait_for(client, f"/tasks/{schema.task.name}", lambda found: found["champion"]["valid_until"] == bound)


async def test_an_answer_about_a_moment_may_be_kept_by_its_client_and_is_asked_about_again(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        ways: list[dict[str, Any]] = [{}, {"rate": "true"}, {"task": "flights"}]  # fast and slow
        for given in ways:
            answer = await ask(client, AT, **given)
            assert answer.headers["cache-control"] == "private, no-cache"
            assert answer.headers["vary"] == "authorization"
            again = await ask_again(client, answer.headers["etag"], **given)
            assert (again.status_code, again.content) == (304, b"")
            for name in ("etag", "cache-control", "vary"):
                assert again.headers[name] == answer.headers[name]


async def test_what_still_holds_is_logged_once(client: httpx.AsyncClient, engine: Engine) -> None:
    first = await ask(client, AT)
    for _ in range(3):
        assert (await ask_again(client, first.headers["etag"])).status_code == 304
    last = await ask(client, AT)
    assert [str(row.id) for row in await await_rows(engine, 2)] == [first.json()["id"], last.json()["id"]]
    assert len(read_rows(engine)) == 2


async def test_tags_are_compared_as_the_standard_says(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        tag = (await ask(client, AT)).headers["etag"]
        assert tag.startswith('W/"')
        for same in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*", " * "):
            assert (await ask_again(client, same)).status_code == 304, same
        for other in ('W/"other"', tag.strip('W/"'), tag.replace('"', ""), ""):
            assert (await ask_again(client, other)).status_code == 200, other


async def test_a_question_that_is_refused_is_refused_whatever_tag_it_names(tmp_path: Path) -> None:
    async with placed(tmp_path) as client:
        tag = (await ask(client, AT)).headers["etag"]
        for named in (tag, "*"):
            assert (await ask_again(client, named, CUTOFF + 3 * WEEK)).status_code == 422
            assert (await ask_again(client, named, color="red")).status_code == 422
            assert (await ask_again(client, named, coverage="0.9")).json()["type"] == "/problems/coverage-unsupported"
            assert (await ask_again(client, named, task="trains")).status_code == 404


async def test_an_answer_about_now_and_a_refusal_are_not_kept(tmp_path: Path) -> None:
    async with placed(tmp_path, NOW_TOO) as client:
        now = await client.get("/predict", params=ROW, headers={"If-None-Match": "*"})
        assert (now.status_code, now.headers["cache-control"]) == (200, "no-store")
        assert "etag" not in now.headers
        for path in ("/predict?at=x", "/nowhere", "/tasks/nothing", "/v2/models/nothing"):
            refused = await client.get(path)
            assert (refused.status_code >= 400, refused.headers["cache-control"]) == (True, "no-store"), path
        many = await ask_many(client, [AT])
        assert not {"etag", "cache-control"} & {*many.headers}


async def test_a_swap_changes_the_tag(
    client: httpx.AsyncClient, engine: Engine, mlflow_url: str, schema: Schema, tmp_path: Path
) -> None:
    first = await ask(client, AT)
    version = publish_and_release(mlflow_url, engine, schema, tmp_path / "published", bias=1.0)
    await wait_for_version(client, schema, version)
    second = await ask_again(client, first.headers["etag"])
    assert (second.status_code, second.json()["version"]) == (200, version)
    assert second.headers["etag"] != first.headers["etag"]


async def test_a_closed_horizon_changes_the_tag_and_ends_what_lies_beyond_it(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    inside, beyond = await ask(client, AT), await ask(client, LATER)
    assert inside.headers["etag"] == beyond.headers["etag"]
    note(engine, schema, inside.json()["version"], "close", valid_until=CUTOFF + WEEK)
    await wait_for_bound(client, schema, CUTOFF + WEEK)
    assert (await ask_again(client, beyond.headers["etag"], LATER)).json()["type"] == "/problems/outside-horizon"
    again = await ask_again(client, inside.headers["etag"])
    assert (again.status_code, again.json()["valid_until"]) == (200, format_moment(CUTOFF + WEEK))
    assert again.headers["etag"] != inside.headers["etag"]


async def test_a_tag_names_calibration_and_bound_and_is_the_same_in_every_process(tmp_path: Path) -> None:
    overlays = [OPEN, OPEN, Overlay(OPEN.valid_until - WEEK, None), Overlay(OPEN.valid_until, CALIBRATED)]
    tags, answers = [], []
    for place, overlay in enumerate(overlays):
        async with placed(tmp_path / str(place), overlay) as client:
            answer = await ask(client, AT)
            tags.append(answer.headers["etag"])
            answers.append(unnamed(answer.json()))
    assert (tags[0], answers[0]) == (tags[1], answers[1])
    assert len({*tags}) == 3
