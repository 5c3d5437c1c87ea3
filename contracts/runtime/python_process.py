"""How a process of Morrow starts another Python process.

`python -m` and `python -c` import from the working directory first. Morrow is started from folders of its users, which
may hold a `contracts`, a `trainer` or a `logging.py` of their own. Every Python child therefore starts in safe-path
mode (`-P`), in which only the installation and PYTHONPATH count.
"""

import os
import sys
from pathlib import Path


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
