"""The client is a distribution of its own: one package, two dependencies, and nothing of the service."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "client"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=CLIENT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_one_package_with_its_types_and_the_licence(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"morrow"}
    assert "morrow/py.typed" in wheel.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_it_needs_httpx_and_msgspec_as_morrow_does(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    needed = [line for line in wheel.read(metadata).decode().splitlines() if line.startswith("Requires-Dist")]
    assert [line.split()[1].split("<")[0].split(">")[0] for line in needed] == ["httpx", "msgspec"]
    own, morrow = (tomllib.loads((folder / "pyproject.toml").read_text("utf-8")) for folder in (CLIENT, ROOT))
    assert set(own["project"]["dependencies"]) <= set(morrow["project"]["dependencies"])
    assert own["project"]["version"] == morrow["project"]["version"]


def test_importing_it_imports_no_data_library_and_nothing_of_the_service() -> None:
    code = "import sys, morrow; print(*{name.split('.')[0] for name in sys.modules})"
    environment = {**os.environ, "PYTHONPATH": str(CLIENT)}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd="/", check=True, capture_output=True, text=True
    )
    loaded = set(said.stdout.split())
    assert {"httpx", "msgspec", "morrow"} <= loaded
    assert not loaded & {"numpy", "pandas", "polars", "pydantic", "contracts", "service", "sqlalchemy"}
