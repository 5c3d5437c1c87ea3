"""A real headless Chromium, the API that it looks at, and what every page is held to in it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.e2e.processes import impatient_environment, process, wait_for

_UNANSWERED = ("Failed to load resource", "Response Status Error Code")
WAIT = 60_000  # milliseconds
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """The system's browser; a test is skipped if there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"needs a browser on the PATH, one of: {', '.join(PROGRAMS)}")
    expect.set_options(timeout=WAIT)
    with sync_playwright() as playwright:
        # As root, as in a container, Chromium has no sandbox of its own; it only opens our own pages.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def api(database_url: str, home: Path, mlflow_url: str = "") -> Iterator[str]:
    """The address of a real API process that has loaded what lies in its home."""
    environment = impatient_environment(database_url, mlflow_url, home)
    url, log = f"http://127.0.0.1:{environment['MORROW_PORT']}", home / "api.log"
    with process("service", environment, log):
        wait_for("the API", lambda: _answers(url), log)
        yield url


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@dataclass
class Watched:
    """A page, what it asked for, and what went wrong on it: script errors, and what the policy refused."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """Go there, and wait until its scripts have run."""
        self.page.goto(url, wait_until="networkidle")
        return self.page


def watch(browser: Browser, *, scheme: str = "light", width: int = 1200) -> Watched:
    """A page of a new context, with empty storage."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    watched = Watched(context.new_page())
    watched.page.on("request", lambda request: watched.requests.append(request.url))
    watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
    # A refused or missing answer is told by the console as well; those are for each test to expect.
    watched.page.on(
        "console",
        lambda message: (
            watched.errors.append(message.text)
            if message.type == "error" and not message.text.startswith(_UNANSWERED)
            else None
        ),
    )
    return watched


def ask(page: Page, **features: str) -> None:
    """Unfold the form, fill it in and press its button."""
    page.locator("#ask-box").evaluate("element => { element.open = true; }")
    for name, value in features.items():
        page.fill(f"#ask-{name}", value)
    page.get_by_role("button", name="Predict").click()


def press(page: Page, name: str) -> None:
    """Press the button of an action, in the menu if it is there."""
    if page.locator("#more").get_by_role("button", name=name, exact=True, include_hidden=True).count():
        page.locator("#more-open").click()
    page.get_by_role("button", name=name, exact=True).first.click()


def act(page: Page, name: str, *, reason: str | None = None) -> None:
    """Press the button of an action, and confirm it in the dialog that opens."""
    press(page, name)
    dialog = page.get_by_role("dialog", name=name)
    expect(dialog).to_be_visible()
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=name, exact=True).click()


def contrast(page: Page, selector: str) -> float:
    """The least contrast (WCAG 2) between text and what is painted behind it, of all visible elements of a selector."""
    found: float = page.evaluate(_CONTRAST, selector)
    return found


def unnamed(page: Page) -> list[str]:
    """Elements that a screen reader could not name: fields, buttons, links, pictures and regions without a name."""
    found: list[str] = page.evaluate(_UNNAMED)
    return found


# Colours are painted on a canvas and read back, so that whatever notation a browser computes them in counts.
_CONTRAST = """selector => {
  const context = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
  const read = colours => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const behind = element => element
    ? [...behind(element.parentElement), getComputedStyle(element).backgroundColor] : ["#fff"];
  const light = ([r, g, b]) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, place) => {
    const share = [r, g, b][place] / 255;
    return sum + weight * (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
  }, 0);
  const ratios = [...document.querySelectorAll(selector)].filter(element => element.checkVisibility()).map(element => {
    const back = behind(element), [one, other] = [light(read(back)),
      light(read([...back, getComputedStyle(element).color]))].sort((a, b) => a - b);
    return (other + 0.05) / (one + 0.05);
  });
  return Math.min(...ratios);
}"""

_UNNAMED = """() => [...document.querySelectorAll(
    "input, select, button, a, summary, [role=img], [role=region], section[aria-labelledby]")]
  .filter(element => element.type !== "hidden" && element.checkVisibility())
  .filter(element => {
    const labelled = (element.getAttribute("aria-labelledby") ?? "").split(" ")
      .map(id => document.getElementById(id)?.textContent ?? "").join("");
    const label = [...(element.labels ?? [])].map(one => one.textContent).join("");
    return !(element.getAttribute("aria-label") ?? labelled ?? "").trim() && !label.trim()
      && !(["BUTTON", "A", "SUMMARY"].includes(element.tagName) && element.textContent.trim());
  }).map(element => element.outerHTML.slice(0, 120))"""
