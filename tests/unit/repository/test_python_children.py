"""Python children import nothing from the working directory, and in tests they import this checkout."""

import re
import subprocess
from pathlib import Path

import pytest

from contracts.runtime.python_process import protect_imports_of_children, python_command

ROOT = Path(__file__).parents[3]
PACKAGES = ("benchmarks", "cli", "contracts", "estimators", "handbook", "migrations", "service", "store", "trainer")
# uv is told for which interpreter it makes an environment; no Python is started by that.
EXEMPT = {("benchmarks/serving/servers.py", '"--python", sys.executable')}


def test_one_function_alone_writes_the_command_line_of_a_python_child() -> None:
    lines = [
        (file.relative_to(ROOT).as_posix(), line)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if "sys.executable" in line
    ]
    found = {file for file, line in lines if not any(file == name and words in line for name, words in EXEMPT)}
    assert found == {"contracts/runtime/python_process.py"}


@pytest.mark.parametrize("arguments", [("-c", "import contracts"), ("-m", "contracts")], ids=["code", "module"])
def test_a_child_does_not_import_from_the_working_directory(arguments: tuple[str, ...], tmp_path: Path) -> None:
    _place_decoy(tmp_path)
    ended = subprocess.run(python_command(*arguments), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "decoy" not in ended.stderr


def test_a_child_of_a_library_does_not_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a child is started by a command line of its own, with our environment."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    _place_decoy(tmp_path)
    plain = [word for word in python_command("-c", "import contracts") if word != "-P"]
    assert "decoy" in subprocess.run(plain, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    protect_imports_of_children()
    subprocess.run(plain, cwd=tmp_path, check=True)


def test_a_child_can_load_torch_although_the_working_directory_was_removed(tmp_path: Path) -> None:
    """MKL ends a process in such a folder with code 2."""
    inner = python_command("-c", "import torch; torch.ones(2, 2) @ torch.ones(2, 2)")
    started = (
        "import os, subprocess; from contracts.runtime.python_process import find_start_folder\n"
        "assert find_start_folder() is None; os.rmdir(os.getcwd())\n"
        f"subprocess.run({inner!r}, cwd=find_start_folder(), check=True)"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    subprocess.run(python_command("-c", started), cwd=gone, check=True)


def test_a_child_imports_the_checkout_that_is_tested(tmp_path: Path) -> None:
    """In safe-path mode it finds what is installed: this checkout, where the environment is its own."""
    command = python_command("-c", "import cli, service, trainer; print(cli.__path__[0])")
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(ROOT / "cli")


@pytest.mark.parametrize("dockerfile", sorted((ROOT / "docker").glob("*.Dockerfile")), ids=lambda file: file.stem)
def test_every_python_of_an_image_is_in_safe_path_mode(dockerfile: Path) -> None:
    assert re.search(r"^(ENV|   ).* ?PYTHONSAFEPATH=1", dockerfile.read_text(), re.MULTILINE)


def _place_decoy(folder: Path) -> None:
    (folder / "contracts").mkdir()
    (folder / "contracts" / "__init__.py").write_text('raise RuntimeError("decoy")\n')
