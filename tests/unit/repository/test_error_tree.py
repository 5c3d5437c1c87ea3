"""All errors of Morrow form one tree, drawn where its root stands."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import contracts.errors
from contracts.errors import MorrowError

ROOT = Path(__file__).parents[3]
MODULES = (
    "contracts.errors",
    "store.errors",
    "service.errors",
    "trainer.tracking.errors",
    "cli.errors",
    "benchmarks.errors",
)
PACKAGES = ("contracts", "store", "service", "trainer", "cli", "estimators", "migrations", "benchmarks", "handbook")


def defined_errors() -> list[type[MorrowError]]:
    for module in MODULES:
        importlib.import_module(module)
    found, waiting = [MorrowError], [MorrowError]
    while waiting:
        leaves = waiting.pop().__subclasses__()
        found += leaves
        waiting += leaves
    return [error for error in found if error.__module__ in MODULES]


def drawn_parents() -> dict[str, str | None]:
    """Every name of the drawing with the name above it."""
    assert contracts.errors.__doc__ is not None
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for indent, name in re.findall(r"^    ([│├└─ ]*)([A-Z]\w+)", contracts.errors.__doc__, re.MULTILINE):
        del path[len(indent) // 4 :]
        parents[name] = path[-1] if path else None
        path.append(name)
    return parents


def test_the_drawing_shows_every_error_below_its_parent() -> None:
    parents = {error.__name__: error.__base__.__name__ for error in defined_errors() if error.__base__ is not None}
    assert drawn_parents() == {**parents, "MorrowError": None}


@pytest.mark.parametrize("package", PACKAGES)
def test_errors_stand_in_the_errors_module_of_their_package(package: str) -> None:
    names = {error.__name__ for error in defined_errors()}
    strays = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in (ROOT / package).rglob("*.py")
        if file.name != "errors.py"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and names & {base.id for base in node.bases if isinstance(base, ast.Name)}
    ]
    assert strays == []
