"""How a process of Morrow starts another Python process.

`python -m` and `python -c` import from the working directory first. Morrow is started from folders of its users, which
may hold a `contracts`, a `trainer` or a `logging.py` of their own. Every Python child therefore starts in safe-path
mode (`-P`), in which only the installation and PYTHONPATH count.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

# Variables of Python that say where it writes, and change no result. PYTHONUTF8 counts only if it is on.
_HARMLESS = {
    *("PYTHONUNBUFFERED", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONFAULTHANDLER"),
    *("PYTHONNOUSERSITE", "PYTHONUSERBASE"),
}


def python_command(*arguments: str) -> list[str]:
    """The command line of this interpreter in safe-path mode."""
    return [sys.executable, "-P", *arguments]


def find_start_folder() -> str | None:
    """Where a child can start: None for the working directory, and the root if that was removed.

    A long-lived process may outlive the folder it was started in, and libraries such as MKL fail to load there.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        return "/"
    return None


def protect_imports_of_children() -> None:
    """Put children in safe-path mode whose command line a library writes, such as the workers of uvicorn."""
    os.environ["PYTHONSAFEPATH"] = "1"


def is_harmless(name: str, value: str) -> bool:
    """Whether a variable of Python may pass. PYTHONPATH may if Morrow itself is found by it."""
    if name == "PYTHONPATH":
        ours = Path(__file__).parents[2]
        return any(Path(folder).absolute() == ours for folder in value.split(os.pathsep) if folder)
    return name in _HARMLESS or (name, value) == ("PYTHONUTF8", "1")


def restart(environment: Mapping[str, str]) -> NoReturn:
    """Start this process again, as the same command with the same process id, in another environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environment))  # noqa: S606 our own command
