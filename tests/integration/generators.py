"""The generators of clients that `make test` installs: where they are, and why a test without one is skipped."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

_FOLDER = Path(sys.prefix) / "generators"
# Whether the installation has come to its end.
IS_INSTALLED = (_FOLDER / ".installed").exists()
PYTHON_CLIENT = _FOLDER / "bin" / "openapi-python-client"
# Where npm has put its packages.
NODE_MODULES = _FOLDER / "typescript" / "node_modules"
GENERATOR = NODE_MODULES / ".bin" / "openapi-typescript"
NODE = shutil.which("node")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "generate.md"
MISSING = "the generators of clients are not installed: run `make .venv/generators/.installed`"
MISSING_NODE = f"Node.js is not installed, or {MISSING}"


def printed_command(program: str) -> list[str]:
    """The arguments that the page gives a generator."""
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"{program} ")]
    return shlex.split(line)[1:]


def printed_program(language: str) -> str:
    """The page's program in a language."""
    (program,) = re.findall(rf"^```{language}$(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(program)


def run(*command: str | Path, folder: Path) -> str:
    """What a command says, on either stream; its programs are those of the generators. It must succeed."""
    environment = {**os.environ, "PATH": f"{_FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    ended = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    return said
