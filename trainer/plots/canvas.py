"""The common parts of all pictures of runs and replays: figure, colours and file, drawn without a screen."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS, YARDSTICK, HORIZON, CLOSED = "#1f5fa8", "#8a8a8a", "#2e8b57", "#b03030"

_DOTS_PER_INCH = 110
_RIGHT, _TOP = 0.15, 0.45


def new_figure(
    size: tuple[float, float], title: str, *, left: float = 0.85, bottom: float = 0.6
) -> tuple[Figure, Axes]:
    """An empty figure of this width and height in inches, and its axes under a title of one or two lines.

    `left` and `bottom` are the margins in inches for axis labels and tick labels. matplotlib can compute these margins
    and the title's height itself, but lays out every text three times for it: a third of a picture's cost.
    """
    width, height = size
    figure = Figure(figsize=size)
    axes = figure.add_subplot()
    figure.subplots_adjust(left / width, bottom / height, 1 - _RIGHT / width, 1 - _TOP / height)
    axes.set_title(title, fontsize=10, y=1)
    return figure, axes


def save_figure(figure: Figure, file: Path) -> None:
    """Write an SVG with text as text if the file's name ends so, else a PNG at twice the cost."""
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg" if file.suffix.lower() == ".svg" else "png", dpi=_DOTS_PER_INCH)
