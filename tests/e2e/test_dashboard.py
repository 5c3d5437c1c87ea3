"""The dashboard in a real browser: every screen, a prediction, keys, and the buttons that steer."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Dialog, Page, expect
from sqlalchemy import Engine

from contracts.clock import format_moment, to_micros
from store.api_keys import Scope, add_key
from store.cycles import list_cycles
from store.releases import list_releases
from store.tasks.catalog import Schema
from store.tasks.changes import list_changes
from tests.e2e.browser import api, contrast, open_browser, unnamed, watch
from tests.e2e.dashboard_data import HORIZON, MARKUP, REFUSAL, define, fill, post_events
from tests.e2e.processes import wait_for
from tests.integration.artefacts import WEEK
from tests.integration.published_versions import note, publish_and_release, run_cycle
from tests.integration.service_app import DEAD_DATABASE

WAIT = 60_000  # milliseconds
TEXTS = "p, li, span:not(.key), time, td, th, dt, dd, small, label, a, h1, h2, h3, button, summary, .badge, output"
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


def make_key(engine: Engine, name: str, *scopes: Scope) -> str:
    with engine.begin() as connection:
        return add_key(connection, name, scopes, None, datetime.now(UTC))


def ask(page: Page, **features: str) -> None:
    """Unfold the form, fill it in and press its button."""
    page.locator("#ask-box").evaluate("element => { element.open = true; }")
    for name, value in features.items():
        page.fill(f"#ask-{name}", value)
    page.get_by_role("button", name="Predict").click()


def act(page: Page, name: str, *, reason: str | None = None) -> None:
    """Press the button of an action, and confirm it in the dialog that opens."""
    page.get_by_role("button", name=name, exact=True).first.click()
    dialog = page.get_by_role("dialog", name=name)
    expect(dialog).to_be_visible()
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=name, exact=True).click()


def test_every_screen_is_named_readable_and_fits(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "valid", now), tmp_path, now)
    fill(engine, define(engine, "closed", now), tmp_path, now, is_closed=True)
    fill(engine, define(engine, "expired", now), tmp_path, now - timedelta(days=4000))
    define(engine, "empty", now)
    young = define(engine, "young", now)
    post_events(engine, young, young.task.clock.window_start(to_micros(now)), num_windows=2)
    said = {
        "": "Version 7 expired at",
        "pages/valid": "Version 7 answers for moments from",
        "pages/closed": "The horizon of version 7 was closed at",
        "pages/expired": "Now lies",
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


def test_pictures_stand_beside_the_same_figures(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    cutoff = fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        page = watch(browser).open(f"{url}/pages/flights")
        assert page.locator(".timeline .bar").count() == 4
        assert page.locator(".timeline .bar.champion").count() == page.locator(".timeline .now").count() == 1
        assert page.locator(".timeline .lost").count() == 1
        expect(page.locator("[data-chart=errors] canvas")).to_have_count(1)
        assert page.locator(".bars .count").count() == 20
        expect(page.locator("#events")).to_contain_text("Rows refused in the last day: 1")
        newest = page.locator(".heat tbody tr").nth(-2)
        expect(newest.locator("th")).to_have_text(format_moment(cutoff - WEEK)[:10])
        expect(newest.locator("td").nth(-1)).to_have_text("0.4500*")
        expect(newest.locator("td").nth(-2)).to_have_text("0.4200")
        assert len(page.locator(".wide:visible").all()) == 2  # ages and matrix
        page.set_viewport_size({"width": 400, "height": 900})
        matrix = page.locator(".wide.more:has(.heat)")
        expect(matrix).to_have_count(1)
        page.set_viewport_size({"width": 1200, "height": 900})
        page.get_by_text("Verdict: 3 rules").click()
        broken = page.get_by_role("row", name="newest window broken")
        expect(broken).to_contain_text("0.7100")
        expect(broken).to_contain_text(MARKUP)
        page.get_by_text("The newest of them, and why").click()
        expect(page.locator("#refused-table").get_by_role("row", name="bad")).to_contain_text(MARKUP)


def test_a_prediction_is_drawn_up_to_the_horizon(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    cutoff = fill(engine, define(engine, "flights", now), tmp_path, now)
    fill(engine, define(engine, "prices", now, target={"name": "price", "kind": "regression"}), tmp_path, now)
    until = format_moment(cutoff + HORIZON * WEEK)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        for task in ("flights", "prices"):
            page = watched.open(f"{url}/pages/{task}")
            ask(page, distance="-3000", carrier="<b>UA</b>", wind="2.5")
            rows = page.locator("#answer .wide tbody tr")
            expect(rows).to_have_count(7)
            expect(page.locator("#answer canvas")).to_have_count(1)
            expect(rows.last.locator("th")).to_have_text(until.replace("T", " "))
            asked = {"task": task, "at": until, "distance": "-3000", "carrier": "<b>UA</b>", "wind": "2.5"}
            answer = httpx.get(f"{url}/predict", params={**asked, "coverage": "0.9"}).json()
            cells = [cell.inner_text() for cell in rows.last.locator("td").all()]
            if task == "flights":
                assert float(cells[2]) == pytest.approx(answer["probabilities"]["on_time"], rel=1e-3)
                assert cells[3] == ", ".join(answer["prediction_set"])
            else:
                assert float(cells[0]) == pytest.approx(answer["mean"], rel=1e-3)
                assert [float(end) for end in cells[1].split(" … ")] == pytest.approx(answer["interval"], rel=1e-3)
        page.fill("#ask-at", format_moment(cutoff + 52 * WEEK)[:19])
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#answer")).to_contain_text("outside the validated horizon")
        counted = watched.open(url).get_by_role("row", name="/predict").locator("td").all_inner_texts()
        assert counted == ["4", "1", "0"]  # two by the page and two by this test, and the one outside
        assert watched.errors == []


def test_health_comes_first_with_errors_against_naive_and_rivals_and_one_next_step(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        page = watch(browser).open(f"{url}/pages/flights")
        assert page.locator("main section").first.get_attribute("id") == "state"
        expect(page.get_by_role("region", name="Validity")).to_contain_text(re.compile(r"\d+ (days|hours) left"))
        quality = page.get_by_role("region", name="Quality")
        expect(quality).to_contain_text("33 % better than naive")
        expect(quality).to_contain_text("9 % better than the best rival, gbdt")
        skill = httpx.get(f"{url}/tasks/flights").json()["skill"]
        shown = [row.locator("td").nth(1).inner_text() for row in quality.get_by_role("row").all()[1:]]
        assert [float(error) for error in shown] == pytest.approx(
            [skill["error"], skill["naive"], skill["rivals"][0]["error"]], rel=1e-3
        )
        expect(page.get_by_role("region", name="Cycles", exact=True)).to_contain_text("Held")
        step = page.get_by_role("region", name="Next step")
        expect(step).to_contain_text("Release its candidate")
        expect(step.locator("code")).to_have_text('morrow override flights --cycle 4 --reason "…"')
        expect(page.locator(".refused")).to_contain_text(f"Age 3 was refused: {REFUSAL}")


def test_the_form_is_folded_and_filled_with_the_newest_event(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        page = watch(browser).open(f"{url}/pages/flights")
        expect(page.get_by_role("button", name="Predict")).to_be_hidden()
        page.get_by_text("Ask for a prediction").click()
        values = [page.locator(f"#ask-{name}").input_value() for name in ("distance", "carrier", "wind")]
        assert values == ["1400", "UA", "3.5"]
        assert page.locator("#known-carrier option").evaluate_all("all => all.map(one => one.value)") == ["UA"]
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#answer .answer")).to_have_text(re.compile(r"^on_time · \d+ %$"))
        expect(page.locator("#answer")).to_contain_text("valid until")


def test_a_path_meets_all_phases_of_a_day_or_always_the_same_one(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    with api(database_url, tmp_path) as url:
        page = watch(browser).open(url)
        hour, day = 3_600_000, 86_400_000
        for hours in (1, 30, 24 * 30, 24 * 102, 24 * 400, 24 * 4000, 24 * 40_000):
            found = page.evaluate(
                "async end => (await import('/static/ask.js')).spread(1234000, 1234000 + end, 1500)", hours * hour
            )
            step, moments = found["step"], found["at"]
            assert day % step == 0 or step % (7 * day) == 0, hours
            assert 2 <= len(moments) <= 1500, hours
            assert moments[-1] > moments[-2]
        assert page.evaluate("async () => (await import('/static/ask.js')).spread(1234000, 1234000, 1500).at") == [
            "1970-01-01T00:20:34.000Z"
        ]


def test_an_action_asks_before_it_acts(browser: Browser, database_url: str, engine: Engine, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/pages/flights")
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
        for name, words in (("Retrain", "newest window"), ("Roll back", "earlier version"), ("Override", "version 7")):
            page.get_by_role("button", name=name, exact=True).first.click()
            dialog = page.get_by_role("dialog", name=name)
            expect(dialog).to_contain_text(words)
            dialog.get_by_role("button", name="Cancel").click()
            expect(dialog).to_be_hidden()
        assert sent == []
        assert watched.errors == []


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
        row = page.locator(".row[data-name=store_10]")
        warning = "Following the registry is degraded"
        expect(row.get_by_text(warning)).to_be_hidden()
        row.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(row.get_by_text(warning)).to_be_visible()
        page.keyboard.press("Escape")
        expect(row.get_by_text(warning)).to_be_hidden()
        assert watched.errors == []


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


def test_what_changes_shows_by_itself_and_disturbs_nothing(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    schema = define(engine, "flights", now)
    cutoff = fill(engine, schema, tmp_path, now)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/pages/flights")
        page.get_by_text("Verdict: 3 rules").click()
        page.get_by_role("button", name="Roll back").click()
        page.fill("#rollback-reason", "still being written")
        note(engine, schema, "7", "close", valid_until=cutoff, reason="an error above its limit")
        run_cycle(engine, schema, cutoff - 3 * WEEK, "requested")
        expect(page.locator("#state")).to_contain_text("was closed at")
        expect(page.locator("#board")).to_contain_text("requested")
        expect(page.locator("#board")).to_contain_text("an error above its limit")
        expect(page.get_by_role("row", name="newest window broken")).to_be_visible()
        expect(page.locator("#rollback-reason")).to_have_value("still being written")
        expect(page.locator("[data-chart=errors] canvas")).to_have_count(1)
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
        page.get_by_role("button", name="Pause").click()
        page.fill("#pause-reason", "new sensors")
        page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        expect(page.locator("#state")).to_contain_text("The task is paused")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.get_by_role("button", name="Rename").click()
        page.fill("#rename-name", "delays")
        page.fill("#rename-reason", "clearer")
        page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("delays")
        asked: list[str] = []

        def accept(dialog: Dialog) -> None:
            asked.append(dialog.message)
            dialog.accept()

        page.once("dialog", accept)
        page.get_by_role("button", name="Delete").click()
        page.fill("#delete-reason", "a trial")
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator("main")).to_contain_text("No task yet")
        assert asked == ["Delete delays for ever? It holds 0 events, 0 refused rows, 0 cycles and 0 versions."]
        assert watched.errors == []
    with engine.connect() as connection:
        assert [change.action for change in list_changes(connection, 1)] == ["delete", "rename", "pause"]


def _version(url: str, schema: Schema) -> str | None:
    champion = httpx.get(f"{url}/tasks/{schema.task.name}", timeout=20).json()["champion"]
    return None if champion is None else str(champion["version"])


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
