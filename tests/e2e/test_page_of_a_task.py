"""The page of a task in a real browser: its health, its pictures, and the form that asks it."""

import re
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect
from sqlalchemy import Engine

from contracts.clock import format_moment
from tests.e2e.browser import api, ask, press, watch
from tests.e2e.dashboard_data import HORIZON, MARKUP, REFUSAL, define, fill
from tests.integration.artefacts import WEEK
from tests.integration.published_versions import note, run_cycle


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
        page.get_by_text("Refused rows by reason").click()
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
        assert counted == ["4", "1", "0", "0"]  # two by the page and two by this test, and the one outside
        assert watched.errors == []


def test_a_moment_whose_rows_the_version_knows_is_answered_without_an_interval(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    cutoff = fill(engine, define(engine, "prices", now, target={"name": "price", "kind": "regression"}), tmp_path, now)
    at = format_moment(cutoff - WEEK)
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/pages/prices")
        ask(page, at=at[:19], distance="900", carrier="UA", wind="2.5")
        asked = {"task": "prices", "at": at, "distance": "900", "carrier": "UA", "wind": "2.5"}
        found = httpx.get(f"{url}/predict", params=asked)
        assert float(page.locator("#answer .answer").inner_text()) == pytest.approx(found.json()["mean"], rel=1e-3)
        expect(page.locator("#answer")).to_contain_text("No interval or set")
        assert watched.errors == []


def test_of_many_classes_the_likeliest_are_shown_and_the_others_counted(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    names = [f"class_{place}" for place in range(200)]
    shares = {name: 0.5 if name == "class_150" else 0.5 / 199 for name in names}
    with api(database_url, tmp_path) as url:
        watched = watch(browser)
        page = watched.open(f"{url}/pages/flights")

        def answer(route: Route) -> None:
            """As the API does for a task of 200 classes."""
            asked = (route.request.post_data_json or {})["at"]
            same = {"prediction": "class_150", "probabilities": shares, "prediction_set": names, "coverage": 0.9}
            known = {"error_name": "log_loss", "expected_error": 0.4, "valid_until": asked[-1], "version": "7"}
            route.fulfill(json={"answers": [{"at": at, **same, **known} for at in asked]})

        page.route("**/predict?*", answer)
        ask(page)
        shown = page.locator("#answer")
        expect(shown).to_contain_text("class_150 · 50 %")
        expect(shown).to_contain_text("leave out 194 less likely classes")
        expect(shown).to_contain_text("class_5 and 194 more")
        expect(shown.locator("thead th")).to_have_count(4 + 6)
        expect(shown.locator("thead")).to_contain_text("P(class_150)")
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
        naive, rival = skill["compared"]
        assert (naive["ours"], naive["num_windows"]) == (rival["ours"], 4)
        expect(quality).to_contain_text("on the same 4 windows")
        expect(quality).to_contain_text(f"On all 9 windows the model has {skill['error']:.4f}")
        rows = [row.locator("td").all_inner_texts() for row in quality.get_by_role("row").all()[1:]]
        assert [float(cells[1]) for cells in rows] == pytest.approx(
            [naive["ours"], naive["error"], rival["error"]], rel=1e-3
        )
        assert [cells[2] for cells in rows] == ["", *(f"{one['skill']:.0f} %" for one in (naive, rival))]
        expect(quality.locator(".big")).to_have_text("good")
        assert httpx.get(f"{url}/tasks/flights").json()["trust"]["verdict"] == "good"
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


def test_numbers_may_be_typed_with_a_comma_and_a_refusal_names_what_was_typed(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        page = watch(browser).open(f"{url}/pages/flights")
        page.get_by_text("Ask for a prediction").click()
        distance, answer = page.locator("#ask-distance"), page.locator("#answer")
        for typed, told in (
            ("1400,5", "valid until"),
            (" 1400.5 ", "valid until"),
            ("1,210", "distance: is a string, not a number: it is 1,210, with a comma: write 1.210 if it is a decimal"),
            ("1.210,00", "it is 1.210,00, with marks between thousands: write 1210.00"),
        ):
            distance.fill(typed)
            with page.expect_response("**/predict?*"):
                page.get_by_role("button", name="Predict").click()
            expect(answer).to_contain_text(told)
        distance.fill("1400")
        page.locator("#ask-at").fill("1990-01-01T00:00:00")
        page.get_by_role("button", name="Predict").click()
        expect(answer).to_contain_text("Moment")
        expect(answer).not_to_contain_text("at[0]")


def test_a_late_answer_does_not_replace_that_of_a_newer_question(
    browser: Browser, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    fill(engine, define(engine, "flights", now), tmp_path, now)
    with api(database_url, tmp_path) as url:
        page = watch(browser).open(f"{url}/pages/flights")
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/predict?*", hold)
        for distance in ("1400", "far"):
            with page.expect_request("**/predict?*"):
                ask(page, distance=distance)
        expect(page.locator("#answer")).to_be_empty()
        first, second = held
        second.continue_()
        expect(page.locator("#answer")).to_contain_text("is a string, not a number")
        with page.expect_response("**/predict?*"):
            first.continue_()
        page.wait_for_timeout(500)
        expect(page.locator("#answer")).to_contain_text("is a string, not a number")


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
        press(page, "Roll back")
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
