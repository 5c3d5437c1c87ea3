"""What workers remember of keys, together and without a database, and how soon they forget."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import httpx
import pytest
from sqlalchemy import Engine, QueuePool, event, text

from service.database import Store
from service.errors import Throttled, Unauthenticated
from service.web.keys.api_keys import FILE, ApiKeys
from store.api_keys import id_of, revoke_key
from tests.integration.api_keys import NOW, make_key, problem, sent
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def test_workers_grant_the_rate_of_a_key_together(engine: Engine, tmp_path: Path) -> None:
    rate, seconds, num_workers = 8.0, 10, 4
    moment, store = [0.0], Store(engine, places=2, seconds=5)
    rings = [ApiKeys(store, tmp_path, 1.0, lambda: moment[0], share=1 / num_workers) for _ in range(num_workers)]
    key, num_granted = make_key(engine, "predict", rate=rate), 0
    for tick in range(20 * seconds):
        moment[0] = tick / 20
        for ring in rings:
            with suppress(Throttled):
                await ring.admit(key, "predict")
                num_granted += 1
    assert 0.9 * rate * seconds <= num_granted <= rate * (seconds + 1)


async def test_replicas_grant_the_rate_of_a_key_together(database_url: str, engine: Engine, tmp_path: Path) -> None:
    key = make_key(engine, "predict", rate=4)
    settings = [service_settings(database_url, tmp_path / str(k), replicas=4) for k in range(4)]
    statuses = []
    for one in settings:
        async with serving(one) as client:
            answers = [await client.get("/predict", headers=sent(key)) for _ in range(4)]
            statuses.append([answer.status_code for answer in answers])
    # Each grants a request, and one more as soon as a second has passed.
    assert all(each[0] == 404 and 429 in each for each in statuses), statuses
    assert "Retry-After" in answers[-1].headers


async def test_keys_are_remembered_without_a_database(database_url: str, tmp_path: Path, engine: Engine) -> None:
    key = make_key(engine, "predict")
    async with serving(service_settings(database_url, tmp_path)) as client:
        assert (await client.get("/tasks", headers=sent(key))).status_code == 200
    remembered = tmp_path / FILE
    assert remembered.stat().st_mode & 0o077 == 0
    assert key not in remembered.read_text()
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        assert problem(await client.get("/predict", headers=sent(key))) == (404, "not-found")
        assert problem(await client.get("/predict")) == (401, "unauthenticated")


async def test_a_home_that_cannot_be_written_to_holds_the_keys_of_now_as_soon_as_it_can_be(
    database_url: str, tmp_path: Path, engine: Engine
) -> None:
    home = tmp_path / "home"
    key = make_key(engine, "predict")
    async with serving(service_settings(database_url, home)) as client:
        assert problem(await client.get("/predict", headers=sent(key))) == (404, "not-found")
        home.rename(tmp_path / "former")
        home.write_bytes(b"in the way")
        with engine.begin() as connection:
            revoke_key(connection, "one", NOW)
        other = make_key(engine, "predict", name="other")
        await anyio.sleep(1.2)
        assert problem(await client.get("/predict", headers=sent(other))) == (404, "not-found")
        home.unlink()
        (tmp_path / "former").rename(home)
        with anyio.fail_after(20):
            while str(id_of(key)) in (home / FILE).read_text():
                await anyio.sleep(0.05)
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []
    async with serving(service_settings(DEAD_DATABASE, home)) as client:
        assert problem(await client.get("/predict", headers=sent(other))) == (404, "not-found")
        assert problem(await client.get("/predict", headers=sent(key))) == (401, "unauthenticated")


async def test_keys_that_cannot_be_read_any_more_are_remembered_too(client: httpx.AsyncClient, engine: Engine) -> None:
    key = make_key(engine, "predict")
    assert problem(await client.get("/predict", headers=sent(key))) == (404, "not-found")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE api_keys RENAME COLUMN digest TO sum"))
    await anyio.sleep(0.5)
    assert problem(await client.get("/predict", headers=sent(key))) == (404, "not-found")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE api_keys RENAME COLUMN sum TO digest"))
    other = make_key(engine, "predict", name="other")
    await anyio.sleep(1.2)
    assert problem(await client.get("/predict", headers=sent(other))) == (404, "not-found")


async def test_strangers_who_come_together_wait_for_one_look(engine: Engine, tmp_path: Path) -> None:
    known, strange = make_key(engine, "predict", name="known"), make_key(engine, "predict", name="strange")
    with engine.begin() as connection:
        revoke_key(connection, "strange", NOW)
    store = Store(engine, places=4, seconds=1.5)
    api_keys = ApiKeys(store, tmp_path, poll_seconds=60.0)
    await api_keys.admit(known, "predict")
    await anyio.sleep(1.1)
    looks: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _k, statement, *_: looks.append(statement))
    refused: list[Exception] = []

    async def ask() -> None:
        with pytest.raises(Unauthenticated) as error:
            await api_keys.admit(strange, "predict")
        refused.append(error.value)

    with engine.begin() as blocker:
        blocker.execute(text("LOCK TABLE api_keys"))
        looks.clear()
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(ask)
    assert len(refused) == 8
    assert sum("api_keys" in statement for statement in looks) == 1
    assert isinstance(engine.pool, QueuePool)
    while engine.pool.checkedout():  # the thread of the look that was given up
        await anyio.sleep(0.05)


@pytest.mark.parametrize("content", [b"", b"[", b'{"a": 1}', b"\xff"])
async def test_a_damaged_memory_lets_nobody_in(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    async with serving(service_settings(DEAD_DATABASE, tmp_path, host="0.0.0.0")) as client:
        assert problem(await client.get("/tasks")) == (503, "unavailable")
        assert problem(await client.get("/tasks", headers=sent("morrow-abc-def"))) == (503, "unavailable")


async def test_a_new_key_is_known_at_once_and_a_revoked_one_soon_forgotten(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    make_key(engine, "admin", name="first")
    await anyio.sleep(1.1)
    key = make_key(engine, "predict", name="second")
    await anyio.sleep(1.1)
    assert (await client.get("/tasks", headers=sent(key))).status_code == 200
    with engine.begin() as connection:
        revoke_key(connection, "second", NOW)
    await anyio.sleep(0.5)
    assert problem(await client.get("/tasks", headers=sent(key))) == (401, "unauthenticated")


async def test_a_revoked_last_key_opens_nothing_beyond_the_loopback(
    database_url: str, tmp_path: Path, engine: Engine
) -> None:
    key = make_key(engine, "admin")
    async with serving(service_settings(database_url, tmp_path, host="0.0.0.0")) as client:
        assert (await client.get("/tasks", headers=sent(key))).status_code == 200
        with engine.begin() as connection:
            revoke_key(connection, "one", NOW)
        await anyio.sleep(0.5)
        assert (await client.get("/tasks", headers=sent(key))).status_code == 503
