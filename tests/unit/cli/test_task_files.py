"""A task's file as editors save it."""

import codecs
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.commands.task import read_task_file
from cli.main import app
from contracts.errors import InvalidInput

TEXT = 'name = "rentals"\n# Größe\nwindow = "P1D"\n'


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_a_byte_order_mark_says_nothing(tmp_path: Path, mark: bytes) -> None:
    file = tmp_path / "rentals.toml"
    file.write_bytes(mark + TEXT.encode())
    assert read_task_file(file) == {"name": "rentals", "window": "P1D"}


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [
        ("utf-16", "is UTF-16, and TOML is UTF-8: save it in UTF-8"),
        ("utf-16-le", "is UTF-16, and TOML is UTF-8: save it in UTF-8"),
        ("latin-1", r"is not UTF-8 \(byte 0xf6 in line 2\): save it in UTF-8"),
    ],
)
def test_another_encoding_is_named(tmp_path: Path, encoding: str, reason: str) -> None:
    file = tmp_path / "rentals.toml"
    file.write_bytes(TEXT.encode(encoding))
    with pytest.raises(InvalidInput, match=reason):
        read_task_file(file)


def test_the_report_of_infer_is_no_task_and_names_the_file_that_is(tmp_path: Path) -> None:
    table = tmp_path / "my rentals.csv"
    rows = [f"2026-01-{day:02}T{hour:02}:00:00Z,{hour},{hour % 3}" for day in range(1, 29) for hour in range(0, 24, 4)]
    table.write_text("\n".join(["at,hour,rented", *rows]) + "\n")
    out = tmp_path / "my task.toml"
    said = CliRunner().invoke(app, ["task", "infer", str(table), "--label", "rented", "--out", str(out)])
    assert said.exit_code == 0, said.output
    report = tmp_path / "task.toml"
    report.write_text(said.output)
    with pytest.raises(InvalidInput, match="holds what `morrow task infer` printed") as caught:
        read_task_file(report)
    assert f"morrow task apply '{out}'" in str(caught.value)
    assert read_task_file(out)["name"] == "my_rentals"
