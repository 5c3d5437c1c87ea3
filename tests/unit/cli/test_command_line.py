"""What every command of `morrow` has in common: `--json`, and completion by the shell."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from cli.main import app

# They run until they are stopped, or do a thing and say so in a sentence; there are no facts to read.
WITHOUT_FACTS = {"up", "serve", "trainer", "migrate", "completion"}
# They run for minutes, show how they go meanwhile, and write their figures to the file that --json names.
WITH_A_FILE = {"demo", "replay"}
# As the installed command: its name is part of what completion goes by.
AS_MORROW = 'from cli.main import app; app(prog_name="morrow")'
# Where no database answers: none is asked before the options are judged.
NOWHERE = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"
SCRIPT_SHELLS = ("bash", "zsh", "fish")


def commands() -> dict[str, Any]:
    """Every command by its words."""
    root: Any = typer.main.get_command(app)
    return dict(_walk(root, ""))


def _walk(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _walk(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


@pytest.mark.parametrize("name", sorted(set(commands()) - WITHOUT_FACTS))
def test_a_command_that_prints_facts_prints_them_as_json_too(name: str) -> None:
    found = [parameter for parameter in commands()[name].params if "--json" in parameter.opts]
    assert [parameter.is_flag for parameter in found] == [name not in WITH_A_FILE]


def test_a_terminal_that_knows_ascii_alone_ends_no_command(tmp_path: Path) -> None:
    environment = os.environ | {
        "MORROW_HOME": str(tmp_path / "日本"),
        "PYTHONIOENCODING": "ascii",
        "MORROW_DATABASE_URL": "",
        "MORROW_MLFLOW_URL": "",
    }
    command = [sys.executable, "-c", AS_MORROW, "doctor"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert "Traceback" not in ended.stderr
    assert "\\u65e5" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["keys", "add", "shop", "--scope", "nope"], "--scope"),
        (["keys", "add", "shop", "--scope", "predict", "--rate", "0"], "--rate"),
        (["replay", "flights", "--from", "2026-11-01"], "--from"),
    ],
)
def test_whoever_finds_an_option_at_fault_names_it_and_ends_with_2(
    words: list[str], option: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, words, env={"MORROW_HOME": str(tmp_path), "MORROW_DATABASE_URL": NOWHERE})
    assert (done.exit_code, option in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("shell", SCRIPT_SHELLS)
def test_completion_scripts_are_what_their_shell_can_read(shell: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["completion", shell])
    assert (done.exit_code, "_MORROW_COMPLETE" in done.stdout) == (0, True)
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.stdout)
        subprocess.run([shell, "-n", str(script)], check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to complete in")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    morrow = tmp_path / "morrow"
    morrow.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{AS_MORROW}' \"$@\"\n")
    morrow.chmod(0o700)
    script = """
eval "$(morrow completion bash)"
COMP_WORDS=(morrow events im) COMP_CWORD=2 && _morrow_completion morrow && echo "${COMPREPLY[@]}"
COMP_WORDS=(morrow events import --f) COMP_CWORD=3 && _morrow_completion morrow && echo "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[0] == "import"
    assert set(done.stdout.split("\n")[1].split()) == {"--format", "--folder"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_are_answered_in_their_own_form(shell: str) -> None:
    asked = {"_MORROW_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "morrow events im"}
    done = subprocess.run(
        [sys.executable, "-c", AS_MORROW],
        env=os.environ | asked | {"_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "import" in done.stdout
    assert "correct" not in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.stdout) == (0, f"{version('morrow')}\n")
