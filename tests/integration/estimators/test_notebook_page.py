"""The code of the page about notebooks runs as printed, and its last commands name what it has written."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from contracts.task import Task

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "notebook.md"


def test_the_code_of_the_page_runs_as_printed(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    found = re.search(r"^valid for (\d) windows, until 2026-\d\d-\d\d$", said.stdout, re.MULTILINE)
    assert found is not None, said.stdout
    assert int(found[1]) >= 1
    assert "is beyond the validated horizon" in said.stdout
    written = (tmp_path / "demand.toml").read_text("utf-8")
    task = Task.model_validate(tomllib.loads(written))
    assert (task.name, task.target.name, task.training.num_seeds) == ("demand", "demand", 2)
    command = next(line for line in page.splitlines() if line.startswith("morrow events import"))
    assert command.split() == re.search(r"^#   (morrow events import.*)$", written, re.MULTILINE)[1].split()  # type: ignore[index]
    assert (tmp_path / "demand.parquet").exists()
