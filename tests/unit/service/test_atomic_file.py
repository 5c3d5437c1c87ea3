"""Files are replaced in one step, or not at all."""

from pathlib import Path

import pytest

from service.atomic_file import replace_file


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    in_the_way = tmp_path / "keys.json" / "folder"
    in_the_way.mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        replace_file(in_the_way.parent, b"[]")
    with pytest.raises(OSError, match="No such file"):
        replace_file(tmp_path / "nosuch" / "keys.json", b"[]")
    assert [*tmp_path.rglob("*")] == [in_the_way.parent, in_the_way]
