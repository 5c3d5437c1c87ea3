"""The picture and the tables of `docs/architecture.md` and `CONTRIBUTING.md` show the code as it is."""

import re
from pathlib import Path

import grimp
import pytest

HOUSE = Path(__file__).parents[3]
PAGE = HOUSE / "docs" / "architecture.md"
NODE = re.compile(r'^ +(\w+)\["<b>\1</b>: [^<\n]*(?:<br/>)?(.*)"\]$', re.MULTILINE)
ARROW = re.compile(r"^ +(\w+) --> (\w+)$", re.MULTILINE)
ROOM = re.compile(r"^\| \[`([\w/]+)`\]", re.MULTILINE)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*packages(), cache_dir=None)


def packages() -> dict[str, set[str]]:
    """Each package of the picture, with the rooms that its node names."""
    nodes = NODE.findall(PAGE.read_text("utf-8"))
    return {name: set(re.findall(r"\w+", label.replace("<br/>", " "))) for name, label in nodes}


def rooms_of(package: str) -> set[str]:
    """The sub-packages of a package, `versions` of migrations aside, which is no package."""
    return {folder.parent.name for folder in (HOUSE / package).glob("*/__init__.py")}


def test_every_solid_arrow_is_an_import_and_every_import_an_arrow(graph: grimp.ImportGraph) -> None:
    imported = {
        (module.split(".")[0], other.split(".")[0])
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
    }
    drawn = set(ARROW.findall(PAGE.read_text("utf-8")))
    assert len(packages()) == 7
    assert drawn == {(package, other) for package, other in imported if package != other}


def test_the_picture_names_every_room() -> None:
    assert packages() == {package: rooms_of(package) for package in packages()}


def test_the_table_describes_every_room() -> None:
    rooms = {f"{package}/{room}" for package in packages() for room in rooms_of(package)}
    described = ROOM.findall(PAGE.read_text("utf-8"))
    assert sorted(described) == sorted(rooms | {"contracts", "store", "migrations", "estimators"})
