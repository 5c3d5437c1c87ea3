"""The command line as a user types it, in a process of its own."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from contracts.runtime.python_process import python_command

MORROW = python_command("-m", "cli.main")


@dataclass(frozen=True)
class Said:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


def say(url: str, *arguments: str, home: Path | None = None, typed: str = "") -> Said:
    """Run a command against the API at `url`, with a home of its own where it matters; `typed` is what it may read."""
    at_home = {} if home is None else {"MORROW_HOME": str(home)}
    done = subprocess.run(
        [*MORROW, *arguments],
        input=typed,
        env=os.environ | {"MORROW_URL": url, "COLUMNS": "200"} | at_home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Said(done.returncode, done.stdout, done.stderr)
