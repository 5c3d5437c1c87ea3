"""How measured figures become cells of a table: looked up by their labels, rounded, the best one in bold."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from benchmarks.result_files import Figure, Label, load

LOWER, HIGHER = "lower is better", "higher is better"


def spread(figure: Figure | None) -> str:
    """`7.50 ± 1.20`, with one decimal if it is 10 or more, else two; empty if there is no figure."""
    if figure is None:
        return ""
    if figure.value is None:
        return figure.note
    return rounded(figure.value, figure.std)


def rounded(value: float, std: float | None = None) -> str:
    """A mean and its deviation with as many decimals as the mean deserves."""
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" if std is None else f"{value:.{digits}f} ± {std:.{digits}f}"


def plain(form: str) -> Callable[[Figure | None], str]:
    """How figures are written in one format, such as `.4f`; empty if there is none."""

    def write(figure: Figure | None) -> str:
        return "" if figure is None or figure.value is None else format(figure.value, form).removesuffix(".")

    return write


def shortest(figure: Figure | None) -> str:
    """A figure with two significant digits, or with three if it has more."""
    if figure is None or figure.value is None:
        return ""
    return short(figure.value)


def highest(figure: Figure) -> str:
    """The highest of several runs; empty if there was one."""
    return "" if figure.high is None else short(figure.high)


def short(value: float) -> str:
    """Two significant digits, or three if the value has more; thousands are written out."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    two, three = (format(value, form).removesuffix(".") for form in ("#.2g", "#.3g"))
    return two if float(two) == value else three


def yardstick(figure: Figure | None) -> str:
    """What a figure is compared with, written as `spread` writes."""
    return "" if figure is None or figure.yardstick is None else rounded(figure.yardstick, figure.yardstick_std)


def best(cells: Sequence[str], values: Sequence[float | None], choose: Callable[[Iterable[float]], float]) -> list[str]:
    """The cells with those in bold whose value is the least or the greatest, as `choose` (min or max) says."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return list(cells)
    wanted = choose(known)
    return [f"**{cell}**" if value == wanted else cell for cell, value in zip(cells, values, strict=True)]


@cache
def _index(name: str) -> dict[tuple[str, frozenset[tuple[str, Label]]], Figure]:
    return {(figure.measure, frozenset(figure.of.items())): figure for figure in load(name).figures}


def find(name: str, measure: str, **of: Label) -> Figure | None:
    """The figure of a result with exactly these labels."""
    return _index(name).get((measure, frozenset(of.items())))


def value_of(figure: Figure | None) -> float | None:
    """A figure's value, if there is one."""
    return None if figure is None else figure.value


def beside_published(figure: Figure) -> list[str]:
    """Ours and the published figure, the lower one in bold."""
    return best([spread(figure), yardstick(figure)], [figure.value, figure.yardstick], min)
