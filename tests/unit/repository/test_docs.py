"""What the pages for people point at is there: files, headings, tests, commands."""

import re
from pathlib import Path

import pytest

from handbook.__main__ import PICTURE_FOLDER
from handbook.commands import commands_page

HOUSE = Path(__file__).parents[3]
PAGES = sorted([*HOUSE.glob("docs/**/*.md"), *HOUSE.glob("*.md")])
SHOWN = re.compile(r"!\[[^\]]{20,}\]\((?:\.\./)*(?:docs/)?pictures/([^)]+)\)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = re.compile(r"`(tests/[\w/.]+\.py)`")
TEST = re.compile(r"`(test_[a-z0-9_]+)`")
COMMAND = re.compile(r"^\$ (?:\w+=\S+ )?(morrow [a-z]+(?: [a-z]+)?)", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As a page of Markdown on the web names its headings."""
    headings = HEADING.findall(page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOUSE)))
def test_a_page_links_only_to_what_is_there(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_every_picture_that_is_drawn_is_there_and_shown_and_no_other_is() -> None:
    shown = {name for page in PAGES for name in SHOWN.findall(page.read_text("utf-8"))}
    drawn = set(re.findall(r'"(\w+\.png)"', (HOUSE / "handbook" / "pictures.py").read_text("utf-8")))
    assert len(drawn) == 5
    assert shown == drawn == {file.name for file in PICTURE_FOLDER.iterdir()}
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


def test_every_command_that_a_page_shows_exists() -> None:
    known = {heading for heading in HEADING.findall(commands_page()) if heading.startswith("morrow ")}
    groups = {" ".join(name.split()[:2]) for name in known if len(name.split()) == 3}
    shown = [found for page in PAGES for found in COMMAND.findall(page.read_text("utf-8"))]
    assert len(shown) > 10
    for found in shown:
        name = found if " ".join(found.split()[:2]) in groups else " ".join(found.split()[:2])
        assert name in known, found
