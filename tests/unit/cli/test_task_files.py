"""A task's file as editors save it."""

import codecs
from pathlib import Path

import pytest

from cli.commands.task import read_task_file
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
