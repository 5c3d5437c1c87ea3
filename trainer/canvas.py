"""What all pictures of runs and replays have in common: paper, colours and file, drawn without a screen."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

OURS, YARDSTICK, HORIZON, CLOSED = "#1f5fa8", "#8a8a8a", "#2e8b57", "#b03030"

_DOTS_PER_INCH = 110


def new_figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """An empty figure of this width and height in inches, and its axes."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save_figure(figure: Figure, file: Path) -> None:
    """Write it as a PNG. Not by `savefig`, which draws everything twice and throws the first one away."""
    figure.set_dpi(_DOTS_PER_INCH)
    canvas: Any = figure.canvas
    canvas.print_png(file)
