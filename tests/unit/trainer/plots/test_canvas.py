"""A picture is written to the named file, in the format of its ending."""

from pathlib import Path

import pytest

from trainer.plots.canvas import new_figure, save_figure


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a", b"\x89PNG"), ("a.picture", b"\x89PNG")],
)
def test_a_picture_is_an_svg_where_its_name_says_so_and_else_a_png(name: str, beginning: bytes, tmp_path: Path) -> None:
    figure, axes = new_figure((4, 3), "a line")
    axes.plot([0, 1], [1, 0])
    save_figure(figure, tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes().startswith(beginning)
