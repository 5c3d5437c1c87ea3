"""The files, headings, pictures, tests and commands that the pages point at exist."""

import re
from pathlib import Path

import pytest

from handbook.__main__ import PICTURE_FOLDER
from handbook.commands import commands_page

HOUSE = Path(__file__).parents[3]
PAGES = sorted([*HOUSE.glob("docs/**/*.md"), *HOUSE.glob("*.md")])
FOLDERS = {file.parent.name for file in HOUSE.glob("*/__init__.py")} | {"docs", "docker", "tests", ".ci"}
# Drawn by no code of ours: a screenshot of a browser.
SCREENSHOTS = {"task-page.png"}
SHOWN = re.compile(r"!\[[^\]]{20,}\]\((?:\.\./)*(?:docs/)?pictures/([^)]+)\)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
NAME = re.compile(r"[a-z]\w*(?:\.\w+)+")
WORD_OF = re.compile(r"\[`(\w+)`\]\(([\w./-]+\.py)\)")
CODE = re.compile(r"`(tests/[\w/.]+\.py)`")
TEST = re.compile(r"`(test_[a-z0-9_]+)`")
COMMAND = re.compile(r"^\$ (?:\w+=\S+ )?(morrow [a-z]+(?: [a-z]+)?)", re.MULTILINE)
README_LINES = 130

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOUSE)))


def anchors(page: Path) -> set[str]:
    """As a page of Markdown on the web names its headings."""
    headings = HEADING.findall(page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def spans(page: Path) -> list[str]:
    """What the page writes in backticks, outside blocks of code."""
    return SPAN.findall(FENCE.sub("", page.read_text("utf-8")))


@each_page
def test_a_page_links_only_to_what_is_there(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@each_page
def test_a_path_of_the_code_that_a_page_names_exists(page: Path) -> None:
    paths = [span for span in spans(page) if FILE.fullmatch(span) and span.split("/")[0] in FOLDERS and "/" in span]
    assert [path for path in paths if not (HOUSE / path).exists()] == []


@each_page
def test_a_dotted_name_of_the_code_that_a_page_names_exists(page: Path) -> None:
    names = [span for span in spans(page) if NAME.fullmatch(span) and span.split(".")[0] in FOLDERS]
    assert [name for name in names if not is_defined(name)] == []


@each_page
def test_a_name_that_links_to_a_module_is_defined_there(page: Path) -> None:
    links = WORD_OF.findall(page.read_text("utf-8"))
    assert [
        (name, file)
        for name, file in links
        if not re.search(
            rf"^\s*(?:def|async def|class) {name}\b|^{name}\b", (page.parent / file).read_text(), re.MULTILINE
        )
    ] == []


def is_defined(name: str) -> bool:
    """Whether a dotted name is a package, a module, or a word of the module that it begins with."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = HOUSE.joinpath(*parts[:length])
        if place.is_dir():
            return length == len(parts)
        if place.with_suffix(".py").exists():
            code = place.with_suffix(".py").read_text("utf-8")
            return all(re.search(rf"\b{word}\b", code) for word in parts[length:])
    return False


def test_every_picture_that_is_drawn_is_there_and_shown_and_no_other_is() -> None:
    shown = {name for page in PAGES for name in SHOWN.findall(page.read_text("utf-8"))}
    drawn = set(re.findall(r'"(\w+\.png)"', (HOUSE / "handbook" / "pictures.py").read_text("utf-8")))
    assert len(drawn) == 5
    assert shown == drawn | SCREENSHOTS == {file.name for file in PICTURE_FOLDER.iterdir()}
    for file in PICTURE_FOLDER.iterdir():
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size < 100_000


def test_every_test_that_a_page_names_exists() -> None:
    named = HOUSE / "docs" / "asked.md"
    text = named.read_text("utf-8")
    assert len(CODE.findall(text)) > 20
    defined = "\n".join(file.read_text("utf-8") for file in (HOUSE / "tests").rglob("test_*.py"))
    assert [file for file in CODE.findall(text) if not (HOUSE / file).exists()] == []
    assert [name for name in TEST.findall(text) if f"def {name}(" not in defined] == []


def test_every_page_below_docs_is_reached_from_the_map() -> None:
    folder = HOUSE / "docs"
    linked = {(folder / target.split("#")[0]).resolve() for target in LINK.findall((folder / "README.md").read_text())}
    pages = {page for page in folder.rglob("*.md") if "decisions" not in page.parts and page != folder / "README.md"}
    assert pages - linked == set()


def test_each_decision_has_a_number_of_its_own_which_its_heading_repeats() -> None:
    records = sorted((HOUSE / "docs" / "decisions").glob("*.md"))
    numbers = [int(record.name[:4]) for record in records]
    assert numbers == list(range(1, len(records) + 1))
    assert [int(re.findall(r"^# (\d+)\. ", record.read_text("utf-8"))[0]) for record in records] == numbers


def test_every_command_that_a_page_shows_exists() -> None:
    known = {heading for heading in HEADING.findall(commands_page()) if heading.startswith("morrow ")}
    groups = {" ".join(name.split()[:2]) for name in known if len(name.split()) == 3}
    shown = [found for page in PAGES for found in COMMAND.findall(page.read_text("utf-8"))]
    assert len(shown) > 10
    for found in shown:
        name = found if " ".join(found.split()[:2]) in groups else " ".join(found.split()[:2])
        assert name in known, found


def test_the_readme_is_short_and_shows_no_command_that_is_not_run_elsewhere() -> None:
    readme = (HOUSE / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= README_LINES
    run = "\n".join((HOUSE / "docs" / name).read_text("utf-8") for name in ("tutorial.md", "how-to/curl.md"))
    run += "$ make demo\n$ make test\n$ make up\n"
    shown = [re.sub(r"\s+#.*", "", line[2:]) for line in readme.splitlines() if line.startswith("$ ")]
    assert len(shown) >= 8
    assert [line for line in shown if line not in run] == []
