"""What the pages do, in a real browser: dialogs and their questions, keys, and requests to the API."""

from datetime import UTC, datetime
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Dialog, expect
from sqlalchemy import Engine

from contracts.clock import to_micros
from store.api_keys import Scope, add_key
from store.cycles.ledger import list_cycles
from store.releases import list_releases
from store.tasks.catalog import Schema
from store.tasks.changes import list_changes
from tests.e2e.browser import act, api, ask, press, watch
from tests.e2e.dashboard_data import define, fill, post_events
from tests.e2e.processes import wait_for
from tests.integration.artefacts import WEEK
from tests.integration.published_versions import publish_and_release, run_cycle


def make_key(engine: Engine, name: str, *scopes: Scope) -> str:
    with engine.begin() as connection:
        return add_key(connection, name, scopes, None, datetime.now(UTC))


def test_an_action_asks_before_it_acts(browser: Browser, database_url: str, engine: Engine, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/pages/flights")
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
        for name, words in (("Retrain", "newest window"), ("Roll back", "earlier version"), ("Override", "version 7")):
            press(page, name)
            dialog = page.get_by_role("dialog", name=name)
            expect(dialog).to_contain_text(words)
            dialog.get_by_role("button", name="Cancel").click()
            expect(dialog).to_be_hidden()
        assert sent == []
        assert watched.errors == []


def test_a_page_asks_for_a_key_and_keeps_it_in_the_tab(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    reader, admin = make_key(engine, "reader", "predict"), make_key(engine, "boss", "admin")
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/pages/flights")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert "Version 7" not in page.content()
        page.keyboard.type("morrow-none-none")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("This key is not valid.")
        page.get_by_label("Key", exact=True).fill(reader)
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_contain_text("Version 7 answers")
        expect(page.locator("[data-chart=errors] canvas")).to_have_count(1)
        ask(page, distance="900", carrier="UA")
        expect(page.locator("#answer .wide tbody tr")).to_have_count(7)
        act(page, "Retrain")
        expect(page.locator("form[data-post$=cycles] output")).to_contain_text("The key does not allow this")
        page.keyboard.press("Escape")
        with engine.connect() as connection:
            assert len(list_cycles(connection, 1)) == 4
        page.get_by_role("button", name="Key in use").click()
        page.get_by_label("Key", exact=True).fill(admin)
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#state")).to_contain_text("Version 7 answers")
        act(page, "Override", reason="looked at it")
        expect(page.locator("form:has(#override-reason) output")).to_contain_text("Done: override of version 7")
        expect(page.locator("#state")).to_contain_text(", by override of boss")
        page.keyboard.press("Escape")
        with engine.connect() as connection:
            newest = list_releases(connection, 1)[0]
        assert (newest.action, newest.actor, newest.reason) == ("override", "boss", "looked at it")
        kept = page.evaluate("[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie].join()")
        assert kept.count(admin) == 1
        assert page.evaluate("sessionStorage.getItem('morrow.key')") == admin
        assert not [asked for asked in watched.requests if "morrow-" in asked]
        page.get_by_role("button", name="Key in use").click()
        page.get_by_role("button", name="Forget it").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert page.evaluate("sessionStorage.getItem('morrow.key')") is None
        assert watched.errors == []


def test_buttons_steer_through_the_api(
    browser: Browser, database_url: str, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    schema = define(engine, f"flights_{now:%H%M%S%f}", now)
    post_events(engine, schema, to_micros(now) // WEEK * WEEK - 3 * WEEK, num_windows=2)
    former = publish_and_release(mlflow_url, engine, schema, tmp_path / "former")
    newer = publish_and_release(mlflow_url, engine, schema, tmp_path / "newer")
    held = {"decisions": [{"rule": "newest_window", "passed": False, "reason": "suspect"}]}
    suspect = run_cycle(engine, schema, to_micros(now) // WEEK * WEEK - 3 * WEEK, "held", "suspect", verdict=held)
    home = tmp_path / "home"
    home.mkdir()
    with api(database_url, home, mlflow_url) as url:
        wait_for("the newer version", lambda: _version(url, schema) == newer, home / "api.log")
        watched = watch(browser)
        page = watched.open(f"{url}/pages/{schema.task.name}")
        act(page, "Release it", reason="it is right")
        expect(page.locator("#board")).to_contain_text("Overruled by admin: it is right")
        page.keyboard.press("Escape")
        act(page, "Retrain")
        expect(page.locator("form[data-post$=cycles] output")).to_contain_text("is requested")
        page.keyboard.press("Escape")
        act(page, "Roll back", reason="worse")
        expect(page.locator("form[data-post$=rollback] output")).to_contain_text(f"Done: rollback of version {former}")
        expect(page.locator("#state")).to_contain_text(f"Version {former} expired")
        with engine.connect() as connection:
            cycles = list_cycles(connection, schema.task_id)
        again = [cycle for cycle in cycles if cycle.cutoff == suspect.cutoff and cycle.state == "requested"]
        assert [cycle.override_reason for cycle in again] == ["it is right"]
        assert watched.errors == []


def test_a_task_is_paused_renamed_and_deleted_after_a_question(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    define(engine, "flights", now)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/pages/flights")
        press(page, "Pause")
        page.fill("#pause-reason", "new sensors")
        page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        expect(page.locator("#state")).to_contain_text("The task is paused")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        press(page, "Rename")
        page.fill("#rename-name", "delays")
        page.fill("#rename-reason", "clearer")
        page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("delays")
        assert httpx.post(f"{url}/events?task=delays", json={"event_id": "e1"}, timeout=20).status_code == 422
        asked: list[str] = []

        def accept(dialog: Dialog) -> None:
            asked.append(dialog.message)
            dialog.accept()

        page.once("dialog", accept)
        press(page, "Delete")
        page.fill("#delete-reason", "a trial")
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator("main")).to_contain_text("No task yet")
        assert asked == ["Delete delays for ever? It holds 0 events, 1 refused row, 0 cycles and 0 versions."]
        assert watched.errors == []
    with engine.connect() as connection:
        assert [change.action for change in list_changes(connection, 1)] == ["delete", "rename", "pause"]


def _version(url: str, schema: Schema) -> str | None:
    champion = httpx.get(f"{url}/tasks/{schema.task.name}", timeout=20).json()["champion"]
    return None if champion is None else str(champion["version"])


def test_the_menu_of_actions_opens_by_key_and_closes_on_escape(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        page = watch(browser).open(f"{url}/pages/flights")
        shown = [one.inner_text() for one in page.locator(".actions button:visible").all()]
        assert shown == ["Retrain"]
        page.locator("#more-open").focus()
        page.keyboard.press("Enter")
        menu = page.locator("#more").get_by_role("button")
        assert menu.all_inner_texts() == ["More", "Roll back", "Override", "Pause", "Archive", "Rename", "Delete"]
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Roll back")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#more-open")).to_be_focused()
        expect(page.get_by_role("button", name="Roll back")).to_be_hidden()
        act(page, "Pause", reason="maintenance")
        expect(page.locator(".actions > button")).to_have_text("Resume")
