"""The tables of the default recipe on streams that nothing was set for."""

from collections.abc import Sequence

from benchmarks.result_files import load
from handbook.results.cells import LOWER, best, find, plain, value_of
from handbook.tables import code, table

_RIVALS = ("gi", "gbdt", "gbdt, tuned", "base_time", "baseline", "last_window", "naive")
_PARTS = ("gi", "gi, plain numbers", "gi, Gaussian loss", "gi, both as before")


def blind_methods() -> str:
    """Errors of the default recipe and of its rivals, by stream."""
    return _errors(_RIVALS)


def blind_parts() -> str:
    """Errors of the default recipe and of what it was before, by stream."""
    return _errors(_PARTS)


def _errors(methods: Sequence[str]) -> str:
    units = {str(figure.of["stream"]): figure.unit for figure in load("blind").figures if figure.measure == "error"}
    rows = []
    for stream, unit in units.items():
        figures = [find("blind", "error", stream=stream, **_labels(method)) for method in methods]
        cells = best([*map(plain("#.4g"), figures)], [*map(value_of, figures)], min)
        rows.append((code(stream), "log-loss, nats" if unit == "nats" else "absolute error", *cells))
    return table(("stream", f"mean error, {LOWER}", *map(code, methods)), rows)


def _labels(method: str) -> dict[str, str]:
    """The labels of a method that is named with what is special in its recipe."""
    name, _, recipe = method.partition(", ")
    return {"method": name} | ({"recipe": recipe} if recipe else {})
