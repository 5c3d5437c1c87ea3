"""What pages say: counts as whole numbers, and commands that run as they are printed."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from service.web.html import say_amount

TEMPLATES = Path(__file__).parents[4] / "service" / "templates"


@pytest.mark.parametrize(
    ("value", "words"), [(24_440, "24,440"), (100, "100"), (4, "4"), (0.25, "0.2500"), (None, "–")]
)
def test_counts_are_whole_numbers_with_their_thousands_apart(value: float | None, words: str) -> None:
    assert say_amount(value) == words


def test_the_empty_page_prints_a_command_that_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (TEMPLATES / "tasks.html").read_text()
    (block,) = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    rows = [f"2026-01-{day:02}T{hour:02}:00:00Z,{hour},{hour % 3}" for day in range(1, 29) for hour in range(0, 24, 4)]
    Path("rentals.csv").write_text("\n".join(["at,hour,rented", *rows]) + "\n")
    done = CliRunner().invoke(app, shlex.split(block.removeprefix("morrow ").replace("FILE", "rentals.csv")))
    assert done.exit_code == 0, done.output
    assert Path("rentals.toml").exists()
    assert "morrow task apply rentals.toml" in done.output
    assert "morrow events import rentals rentals.csv" in done.output
