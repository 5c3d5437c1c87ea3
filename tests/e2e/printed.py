"""Runs a page of `docs/` as printed: its shell blocks in order, in one shell, against a stack on a port of the test."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def run_blocks(page: Path, port: int, home: Path, folder: Path, seconds: float) -> list[str]:
    """What each block prints. Fails if one ends with another exit code than 0.

    `folder` stands in for the clone: it gets a link to the environment of the test.
    """
    script = "echo @@@\n".join(_BLOCK.findall(page.read_text("utf-8"))).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    (folder / ".venv").symlink_to(sys.prefix)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **_environment(port, home, folder)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("@@@\n")


def _environment(port: int, home: Path, folder: Path) -> Mapping[str, str]:
    return {
        "MORROW_URL": f"http://127.0.0.1:{port}",
        "MORROW_HOME": str(home),
        "TMPDIR": str(folder),
        "COLUMNS": "120",
    }
