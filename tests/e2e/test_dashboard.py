"""Every screen in a real browser: readable, reached by the keyboard, and there without a database."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from playwright.sync_api import Browser, expect
from sqlalchemy import Engine

from contracts.clock import to_micros
from tests.e2e.browser import api, ask, contrast, unnamed, watch
from tests.e2e.dashboard_data import define, fill, post_events
from tests.integration.service_app import DEAD_DATABASE

LONGEST = "a_name_" + "of_63_characters" * 3 + "_at_most"
TEXTS = "p, li, span:not(.key), time, td, th, dt, dd, small, label, a, h1, h2, h3, button, summary, .badge, output"


def test_every_screen_is_named_readable_and_fits(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "valid", now), tmp_path, now)
    fill(engine, define(engine, "closed", now), tmp_path, now, is_closed=True)
    fill(engine, define(engine, "expired", now), tmp_path, now - timedelta(days=4000))
    fill(engine, define(engine, LONGEST, now), tmp_path, now)
    define(engine, "empty", now)
    young = define(engine, "young", now)
    post_events(engine, young, young.task.clock.window_start(to_micros(now)), num_windows=2)
    said = {
        "": "Version 7 expired at",
        "pages/valid": "Version 7 answers for moments from",
        f"pages/{LONGEST}": "Version 7 answers for moments from",
        "pages/closed": "The horizon of version 7 was closed at",
        "pages/expired": "The present moment is",
        "pages/empty": "No event is stored.",
        "pages/young": "2 more complete windows with events are needed",
        "docs": "/tasks/{task}/override",
    }
    with api(database_url, tmp_path) as url:
        for scheme, width in (("light", 1200), ("dark", 1200), ("light", 400)):
            watched = watch(browser, scheme=scheme, width=width)
            for path, words in said.items():
                page = watched.open(f"{url}/{path}")
                where = f"/{path}, {scheme}, {width} pixels wide"
                expect(page.locator("main")).to_contain_text(words)
                for details in page.locator("details").all():
                    details.evaluate("element => { element.open = true; }")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, where
                assert unnamed(page) == [], where
                assert contrast(page, TEXTS) >= 4.5, where
                assert "`" not in page.locator("main").inner_text(), where
                assert page.title() != "owned"
            assert watched.errors == []
            assert {re.sub(r"^(https?://[^/]+).*", r"\1", asked) for asked in watched.requests} == {url}


def test_every_operation_shows_a_request_to_copy_and_its_answer(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    define(engine, "flights", datetime.now(UTC))
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/docs")
        operations = page.locator(".operation")
        document = httpx.get(f"{url}/openapi.json").json()
        assert operations.count() == sum(map(len, document["paths"].values()))
        shown = [one.inner_text() for one in operations.locator("h3 code").all()]
        assert shown[:4] == ["/predict", "/predict", "/events", "/events/{event_id}"]
        for operation in operations.all():
            request, answer = operation.locator(".sample pre").all_inner_texts()
            assert request.startswith("curl ")
            assert f"'{url}/" in request
            assert answer
            assert operation.locator(".copy").first.get_attribute("data-copy") == request
        links = page.locator("a[href^='#']").evaluate_all("all => all.map(one => one.getAttribute('href').slice(1))")
        assert page.evaluate("ids => ids.filter(id => !document.getElementById(id))", links) == []
        assert watched.errors == []


def test_without_a_database_a_page_says_so_and_still_predicts(browser: Browser, engine: Engine, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(DEAD_DATABASE, tmp_path) as url:
        watched = watch(browser)
        expect(watched.open(url).locator("main")).to_contain_text("Predictions continue from local copies.")
        page = watched.open(f"{url}/pages/flights")
        expect(page.locator("#state")).to_contain_text("history and events cannot be shown")
        expect(page.locator("[data-chart=errors] canvas")).to_have_count(1)
        ask(page, distance="900", carrier="UA")
        expect(page.locator("#answer .wide tbody tr")).to_have_count(7)
        expect(page.locator("#events")).to_contain_text("cannot be counted")
        assert watched.errors == []
    expect(page.locator("#lost")).to_contain_text("Morrow does not answer")


def test_all_of_it_is_reached_by_the_keyboard(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        page = watch(browser, width=400).open(f"{url}/pages/flights")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        wanted = page.locator("main a, main input:not([type=hidden]), main select, main button, main summary").all()
        reached = set()
        for _ in range(120):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        for element in wanted:
            if element.is_visible():
                assert element.evaluate("element => element.id || element.textContent.trim()") in reached
        page.get_by_role("button", name="Use a key").press("Enter")
        expect(page.get_by_label("Key", exact=True)).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_role("button", name="Use a key")).to_be_focused()
