"""The page with the list of tasks in a real browser: its pages, its search, and warnings behind a sign."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, expect
from sqlalchemy import Engine, update

from contracts.clock import format_moment
from store.database import cycles
from tests.e2e.browser import api, watch
from tests.e2e.dashboard_data import define, fill
from tests.integration.artefacts import WEEK
from tests.integration.service_app import DEAD_REGISTRY


def test_a_long_list_is_searched_and_warnings_open_behind_a_sign(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    for place in range(14):
        define(engine, f"store_{place:02d}", now)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(url)
        expect(page.locator(".strip")).to_have_text("14 without model")
        page.get_by_label("Find a task").fill("e_1")
        expect(page.locator(".list li.row:visible")).to_have_count(4)
        expect(page.get_by_label("Find a task")).to_be_focused()
        row = page.locator(".row[data-name=store_10]")
        warning = "Following the registry is degraded"
        expect(row.get_by_text(warning)).to_be_hidden()
        row.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(row.get_by_text(warning)).to_be_visible()
        page.keyboard.press("Escape")
        expect(row.get_by_text(warning)).to_be_hidden()
        assert watched.errors == []


def test_a_list_of_many_tasks_has_pages_and_is_narrowed_to_a_state(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    for place in range(53):
        define(engine, f"store_{place:02d}", now)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(url)
        rows = page.locator(".list li.row")
        expect(rows).to_have_count(50)
        pages = page.get_by_role("navigation", name="Pages of the list")
        expect(pages).to_contain_text("1–50 of 54")
        pages.get_by_role("link", name="Next").click()
        expect(rows).to_have_count(4)
        expect(rows.last).to_contain_text("flights")
        page.get_by_role("link", name="1 valid").click()
        expect(rows).to_have_count(1)
        expect(page.get_by_role("link", name="1 valid")).to_have_attribute("aria-current", "true")
        with page.expect_navigation():  # what is typed into a page that is being left is lost
            page.get_by_role("link", name="1 valid").click()
        page.get_by_label("Find a task").fill("no such task")
        expect(page.locator("#tasks")).to_contain_text("No task matches")
        assert watched.errors == []


def test_the_last_cycle_is_as_old_as_its_end_and_links_lead_to_its_run(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    schema = define(engine, "flights", now)
    cutoff = fill(engine, schema, tmp_path, now)
    ended = now - timedelta(minutes=90)
    with engine.begin() as connection:
        connection.execute(update(cycles).values(run_id="c0ffee", ended_at=ended))
    with api(database_url, tmp_path, DEAD_REGISTRY) as url:
        page = watch(browser).open(url)
        last = page.locator(".row[data-name=flights] .last")
        expect(last).to_have_text("Held 90 minutes ago")
        title = last.locator("time").get_attribute("title")
        assert title is not None
        assert title.startswith(f"Ended {ended:%Y-%m-%d %H:%M}")
        assert title.endswith(f"cutoff {format_moment(cutoff + WEEK)[:10]} 00:00:00Z")
        page.goto(f"{url}/pages/flights")
        run = f"{DEAD_REGISTRY}/#/runs/c0ffee"
        links = page.locator("#board").get_by_role("link", name="MLflow run")
        assert {link.get_attribute("href") for link in links.all()} == {run}
        assert page.locator("article").get_by_role("link", name="MLflow run").count() == 4
        version = page.get_by_role("region", name="Validity").get_by_role("link", name="7", exact=True)
        expect(version).to_have_attribute("href", f"{DEAD_REGISTRY}/#/models/flights/versions/7")
