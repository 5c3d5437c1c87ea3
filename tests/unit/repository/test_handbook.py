"""The reference says what the code says: each page is as `python -m handbook` would write it, nothing left out."""

import re
from pathlib import Path

import pytest

from benchmarks.result_files import Figure, load, names
from handbook.__main__ import FOLDER
from handbook.pages import PAGES, write_page
from handbook.results.pages import RESULT_PAGES, TABLES, fill, tables_of

HOUSE = Path(__file__).parents[3]
PARTS = ("contracts", "service", "trainer", "cli", "migrations", "benchmarks", "tests")
VARIABLE = re.compile(r"\bMORROW_[A-Z]+(?:_[A-Z]+)*\b")
ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)
SPREAD = re.compile(r"\d+(?:\.\d+)? ± \d+(?:\.\d+)?")
# `|` is a cell's end unless it is escaped.
BAR = re.compile(r"(?<!\\)\|")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_tells_what_the_code_tells(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text("utf-8") == write_page(name), "run `python -m handbook`"


def test_there_is_no_page_that_nothing_writes() -> None:
    assert {file.stem for file in FOLDER.glob("*.md")} == set(PAGES)


def test_every_variable_that_is_read_anywhere_is_a_setting_on_its_page() -> None:
    files = [file for part in PARTS for file in (HOUSE / part).rglob("*.py")]
    files += [*HOUSE.glob("docker-compose*.yml"), *(HOUSE / "docker").glob("*.Dockerfile"), HOUSE / ".env.example"]
    named = {name for file in files for name in VARIABLE.findall(file.read_text("utf-8"))}
    assert len(named) > 20
    assert named - set(VARIABLE.findall(write_page("settings"))) == set()


@pytest.mark.parametrize("name", ["settings", "task", "metrics", "problems"])
def test_every_line_of_a_table_has_a_meaning(name: str) -> None:
    page = write_page(name).split("## Compose")[0]
    rows = [[cell.strip() for cell in BAR.split(row)] for row in ROW.findall(page)]
    assert len(rows) > 15
    meaning = 2 if name == "problems" else -1
    assert [row for row in rows if not row[meaning]] == []


def test_every_command_and_every_operation_says_what_it_does() -> None:
    assert not re.search(r"^## .*\n\n\n", write_page("commands"), re.MULTILINE)
    assert not re.search(r"^## .*\n\n\|", write_page("api"), re.MULTILINE)


@pytest.mark.parametrize("file", RESULT_PAGES, ids=lambda file: file.name)
def test_a_page_of_results_prints_what_was_measured(file: Path) -> None:
    page = file.read_text("utf-8")
    assert page == fill(page), "run `python -m handbook`"


def test_a_table_replaces_what_stood_below_its_marker() -> None:
    page = "before\n\n<!-- table: demo -->\n\n| old |\n| --- |\n| 1 |\n\nafter\n"
    filled = fill(page)
    assert filled == f"before\n\n<!-- table: demo -->\n\n{TABLES['demo']()}\nafter\n"
    assert fill(filled) == filled == fill("before\n\n<!-- table: demo -->\n\nafter\n")


def test_a_table_that_nothing_prints_is_refused() -> None:
    with pytest.raises(KeyError, match="dmeo"):
        fill("<!-- table: dmeo -->\n")


def test_every_table_of_results_stands_on_a_page() -> None:
    asked = [name for file in RESULT_PAGES for name in tables_of(file.read_text("utf-8"))]
    assert set(TABLES) == set(asked)


@pytest.mark.parametrize("file", RESULT_PAGES, ids=lambda file: file.name)
def test_a_mean_with_its_deviation_in_the_text_was_measured(file: Path) -> None:
    text = "\n".join(line for line in file.read_text("utf-8").splitlines() if not line.startswith("|"))
    measured = {text for name in names() for figure in load(name).figures for text in spreads_of(figure)}
    assert set(SPREAD.findall(text)) - measured == set()


def spreads_of(figure: Figure) -> set[str]:
    """A figure, and its yardstick, with one decimal and with two."""
    both = ((figure.value, figure.std), (figure.yardstick, figure.yardstick_std))
    return {
        f"{mean:.{digits}f} ± {std:.{digits}f}"
        for mean, std in both
        if mean is not None and std is not None
        for digits in (1, 2)
    }
