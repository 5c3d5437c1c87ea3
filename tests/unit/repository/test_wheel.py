"""The wheel and the images hold all of Morrow that runs, and nothing that only measures or documents it."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
# These run from a checkout only.
TOOLS = {"benchmarks", "handbook", "tests"}
# Files that a process opens by name; an import would not miss them.
DATA = (
    "cli/demo/flights.toml",
    "migrations/script.py.mako",
    "migrations/versions/0001_baseline.py",
    "service/static/morrow.css",
    "service/static/vendor/htmx.min.js",
    "service/templates/layout.html",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_the_packages_that_the_project_names_and_no_other(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES


def test_every_package_of_the_repository_is_in_the_wheel_or_a_tool() -> None:
    found = {file.parent.name for file in ROOT.glob("*/__init__.py")} | {"tests"}
    assert found == PACKAGES | TOOLS
    assert not PACKAGES & TOOLS


def test_the_wheel_holds_every_file_of_its_packages(wheel: zipfile.ZipFile) -> None:
    files = {
        file.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files <= set(wheel.namelist())
    assert set(DATA) <= files


def test_the_wheel_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    assert "License-Expression: Apache-2.0\n" in wheel.read(metadata).decode()
    assert wheel.read(metadata.replace("METADATA", "licenses/LICENSE")) == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("name", ["api", "trainer"])
def test_an_image_is_built_from_the_packages_of_the_wheel(name: str) -> None:
    copied = _copied(name)
    assert {place for place in copied if (ROOT / place).is_dir()} == PACKAGES
    assert {"README.md", "LICENSE"} <= copied  # the metadata of the wheel names both


@pytest.mark.parametrize("name", ["api", "trainer", "mlflow"])
def test_what_an_image_copies_exists_and_is_sent_to_docker(name: str) -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for place in _copied(name):
        assert (ROOT / place).exists()
        assert Path(place).parts[0] in sent


def _copied(name: str) -> set[str]:
    """Files and folders of the repository that a Dockerfile copies."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker" / f"{name}.Dockerfile").read_text(), re.MULTILINE)
    return {place for line in lines for place in line.split()}
