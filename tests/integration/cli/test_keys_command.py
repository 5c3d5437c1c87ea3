"""Who is answered: keys with scopes and rates, judged before the body is read and remembered without a database."""

import base64
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from cli.main import app
from contracts.errors import Conflict, InvalidInput, NotFound
from service.app import make_app
from store.api_keys import Scope, digest_key, list_keys, revoke_key
from tests.integration.api_keys import NOW, make_key, problem, sent
from tests.integration.published_versions import define, history, note
from tests.integration.service_app import TASK, an_event, post_scope, service_settings, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def test_without_a_key_the_loopback_answers_anyone(client: httpx.AsyncClient) -> None:
    assert (await client.put("/tasks/flights", json=TASK)).status_code == 201


async def test_elsewhere_nobody_is_answered_before_there_is_a_key(
    database_url: str, tmp_path: Path, engine: Engine
) -> None:
    async with serving(service_settings(database_url, tmp_path, host="0.0.0.0")) as client:
        for path in ("/tasks", "/predict", "/docs", "/openapi.json", "/metrics", "/"):
            refused = await client.get(path)
            assert problem(refused) == (503, "not-ready")
            assert "morrow keys add" in refused.json()["detail"]
        assert (await client.get("/livez")).status_code == 200
        key = make_key(engine, "admin")
        await anyio.sleep(1.1)
        assert (await client.get("/tasks", headers=sent(key))).status_code == 200
    async with serving(service_settings(database_url, tmp_path, host="0.0.0.0", allow_anonymous=True)) as client:
        assert problem(await client.get("/tasks")) == (401, "unauthenticated")


async def test_what_stands_in_front_may_know_who_asks(database_url: str, tmp_path: Path) -> None:
    async with serving(service_settings(database_url, tmp_path, host="0.0.0.0", allow_anonymous=True)) as client:
        assert (await client.get("/tasks")).status_code == 200


REQUESTS: list[tuple[str, str, Scope | None]] = [
    ("GET", "/predict", "predict"),
    ("POST", "/predict", "predict"),
    ("POST", "/events", "ingest"),
    ("PUT", "/events/e1", "ingest"),
    ("PUT", "/tasks/flights", "admin"),
    ("POST", "/tasks/flights/cycles", "admin"),
    ("POST", "/tasks/flights/rollback", "admin"),
    ("POST", "/tasks/flights/override", "admin"),
    ("GET", "/tasks", None),
    ("GET", "/tasks/flights", None),
    ("GET", "/metrics", None),
    ("GET", "/docs", None),
    ("GET", "/openapi.json", None),
    ("GET", "/", None),
    ("GET", "/nowhere", None),
    ("DELETE", "/nowhere", "admin"),
]


async def keys_are_known(client: httpx.AsyncClient, keys: Iterable[str]) -> None:
    """Wait for the look that finds them: until there is one, a service that only this machine reaches answers all."""
    asked: list[dict[str, str]] = [{}, *(sent(key) for key in keys)]
    with anyio.fail_after(60):
        while [(await client.get("/tasks", headers=headers)).status_code == 401 for headers in asked].count(True) != 1:
            await anyio.sleep(0.05)


@pytest.mark.parametrize(("method", "path", "scope"), REQUESTS)
async def test_a_request_needs_a_key_with_its_scope(
    client: httpx.AsyncClient, engine: Engine, method: str, path: str, scope: Scope | None
) -> None:
    keys: dict[Scope, str] = {name: make_key(engine, name, name=name) for name in ("ingest", "predict", "admin")}
    await keys_are_known(client, keys.values())
    assert problem(await client.request(method, path)) == (401, "unauthenticated")
    for name, key in keys.items():
        status = (await client.request(method, path, headers=sent(key))).status_code
        assert (status == 403) == (scope is not None and name not in (scope, "admin"))
        assert status != 401


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer morrow-",
        "Bearer morrow--",
        "Bearer nothing",
        "Basic",
        "Basic !!",
        "Basic bW9ycm93",
        "Digest x",
        "Bearer " + "x" * 5000,
        "Bearer \u00e9",
    ],
)
async def test_what_is_no_key_is_refused(client: httpx.AsyncClient, engine: Engine, header: str) -> None:
    make_key(engine, "admin")
    await anyio.sleep(0.3)
    refused = await client.get("/tasks", headers=[(b"authorization", header.encode("latin-1"))])
    assert problem(refused) == (401, "unauthenticated")
    assert refused.headers["www-authenticate"] == "Bearer"


async def test_a_key_with_another_secret_is_refused(client: httpx.AsyncClient, engine: Engine) -> None:
    key = make_key(engine, "admin")
    await anyio.sleep(0.3)
    assert (await client.get("/tasks", headers=sent(key))).status_code == 200
    for wrong in (key[:-1], key + "x", key[:-1] + ("A" if key[-1] != "A" else "B")):
        assert problem(await client.get("/tasks", headers=sent(wrong))) == (401, "unauthenticated")


async def test_a_browser_that_opens_a_page_is_shown_where_to_put_the_key(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    make_key(engine, "predict")
    await anyio.sleep(0.3)
    for path in ("/", "/pages/flights", "/docs"):
        refused = await client.get(path, headers={"Accept": "text/html,*/*"})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert 'id="key-form"' in refused.text
    assert problem(await client.get("/")) == (401, "unauthenticated")
    assert (await client.get("/static/morrow.js")).status_code == 200
    assert (await client.get("/static/%2e%2e/pages.py")).status_code == 404


async def test_what_a_page_of_another_site_sends_is_refused_even_where_anyone_may_ask(
    client: httpx.AsyncClient,
) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 404), ("none", 404)):
        sent_by_browser = {"Sec-Fetch-Site": site, "Content-Type": "application/json"}
        assert (await client.post("/tasks/none/cycles", headers=sent_by_browser)).status_code == status


async def test_a_browser_asks_for_the_key_as_a_password(client: httpx.AsyncClient, engine: Engine) -> None:
    key = make_key(engine, "predict")
    await anyio.sleep(0.3)
    refused = await client.get("/metrics", headers={"Accept": "text/html,*/*"})
    assert refused.headers["www-authenticate"].startswith("Basic ")
    password = base64.b64encode(f"me:{key}".encode()).decode()
    assert (await client.get("/", headers={"Authorization": f"Basic {password}"})).status_code == 200


async def test_a_key_may_ask_only_so_often(client: httpx.AsyncClient, engine: Engine) -> None:
    slow, quick = make_key(engine, "predict", name="slow", rate=2), make_key(engine, "predict", name="quick")
    await anyio.sleep(0.3)
    answers = [await client.get("/tasks", headers=sent(slow)) for _ in range(5)]
    assert [answer.status_code for answer in answers][:2] == [200, 200]
    refused = answers[-1]
    assert problem(refused) == (429, "throttled")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await client.get("/tasks", headers=sent(quick))).status_code == 200
    await anyio.sleep(0.6)
    assert (await client.get("/tasks", headers=sent(slow))).status_code == 200


async def test_a_body_without_a_key_is_not_read(database_url: str, tmp_path: Path, engine: Engine) -> None:
    make_key(engine, "ingest")
    app = make_app(service_settings(database_url, tmp_path))
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    async def send(message: Any) -> None:
        messages.append(message)

    scope = post_scope("/events", (b"content-length", b"104857600"))
    async with app.router.lifespan_context(app):
        await anyio.sleep(0.3)
        await app(scope, receive, send)
    assert messages[0]["status"] == 401
    assert (b"connection", b"close") in messages[0]["headers"]


@pytest.mark.parametrize(
    ("public", "opened"),
    [((), set()), (("metrics",), {"/metrics"}), (("docs", "metrics"), {"/docs", "/openapi.json", "/metrics"})],
)
async def test_docs_and_metrics_are_closed_unless_they_are_public(
    database_url: str, tmp_path: Path, engine: Engine, public: tuple[str, ...], opened: set[str]
) -> None:
    make_key(engine, "admin")
    async with serving(service_settings(database_url, tmp_path, public=public)) as client:
        for path in ("/docs", "/openapi.json", "/metrics"):
            assert (await client.get(path)).status_code == (200 if path in opened else 401)
        assert (await client.get("/redoc")).status_code == 401


async def test_the_record_names_the_key(client: httpx.AsyncClient, engine: Engine) -> None:
    schema = define(engine)
    note(engine, schema, "7", "release")
    key = make_key(engine, "admin", name="ops")
    await anyio.sleep(0.3)
    for body in ({"version": "7", "reason": "a strike"}, {"version": "7", "reason": "a strike", "actor": "Ada"}):
        answer = await client.post(f"/tasks/{schema.task.name}/override", json=body, headers=sent(key))
        assert answer.status_code == 200
    assert [row.actor for row in history(engine, schema)][:2] == ["Ada (key ops)", "ops"]


async def test_the_key_is_in_no_log_and_no_answer(
    database_url: str, tmp_path: Path, engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    key = make_key(engine, "predict")
    async with serving(service_settings(database_url, tmp_path)) as client:
        texts = [
            (await client.get("/tasks", headers=sent(key))).text,
            (await client.get("/tasks", headers=sent(key + "x"))).text,
            (await client.post("/events", json=an_event(), headers=sent(key))).text,
        ]
    secret = key.split("-", 2)[2]
    out, err = capfd.readouterr()
    assert not any(secret in said for said in [*texts, out, err])


def test_the_store_holds_a_digest_and_never_a_key(engine: Engine) -> None:
    key = make_key(engine, "ingest", "predict")
    with engine.connect() as connection:
        (row,) = connection.execute(text("SELECT * FROM api_keys")).mappings()
        assert bytes(row["digest"]) == digest_key(key)
        assert key not in json.dumps(dict(row), default=str)
        (listed,) = list_keys(connection)
    assert (listed.name, listed.scopes) == ("one", ("ingest", "predict"))


def test_a_name_stands_for_one_valid_key(engine: Engine) -> None:
    make_key(engine, "admin")
    with pytest.raises(Conflict):
        make_key(engine, "ingest")
    with engine.begin() as connection:
        revoke_key(connection, "one", NOW)
    with engine.begin() as connection, pytest.raises(NotFound):
        revoke_key(connection, "one", NOW)
    make_key(engine, "ingest")
    with engine.connect() as connection:
        assert [key.scopes for key in list_keys(connection)] == [("ingest",)]
        assert len(list_keys(connection, with_revoked=True)) == 2


def test_a_name_is_listed_letter_by_letter(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    name = "front [end] of [/all]"
    assert CliRunner().invoke(app, ["keys", "add", name, "--scope", "predict"]).exit_code == 0
    listed = CliRunner().invoke(app, ["keys", "list"])
    assert (listed.exit_code, name in listed.stdout) == (0, True)


def test_keys_of_which_none_holds_admin_are_warned_of(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    assert "There is no key" in CliRunner().invoke(app, ["keys", "list"]).stdout
    assert "No key has the scope admin" in CliRunner().invoke(app, ["keys", "add", "shop", "--scope", "predict"]).stderr
    assert "No key has the scope admin" not in CliRunner().invoke(app, ["keys", "add", "me", "--scope", "admin"]).stderr
    assert (
        "No key has the scope admin" not in CliRunner().invoke(app, ["keys", "add", "till", "--scope", "ingest"]).stderr
    )
    left = [CliRunner().invoke(app, ["keys", "revoke", name]).stderr for name in ("shop", "me", "till")]
    assert ["There is no key" in told for told in left] == [False, False, True]


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "\x1b[31mred"])
def test_a_name_that_no_line_can_show_is_refused(engine: Engine, name: str) -> None:
    with pytest.raises(InvalidInput, match="name: is empty, or holds a character"):
        make_key(engine, "predict", name=name)
    with engine.connect() as connection:
        assert list_keys(connection) == []
