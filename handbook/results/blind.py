"""The tables of the default recipe on streams that nothing was set for."""

import math
from collections.abc import Sequence

from benchmarks.result_files import load
from handbook.results.cells import LOWER, best, find, plain, value_of
from handbook.tables import code, table

_RIVALS = ("gi", "gbdt", "gbdt, tuned", "base_time", "baseline", "last_window", "naive")
_EXPERTS = ("gi", "gbdt", "mixture", "auto")
_PARTS = ("gi", "gi, plain numbers", "gi, Gaussian loss", "gi, both as before")


def blind_methods() -> str:
    """Errors of the default recipe and of its rivals, by stream."""
    return _errors("blind", _RIVALS)


def blind_parts() -> str:
    """Errors of the default recipe and of what it was before, by stream."""
    return _errors("blind", _PARTS)


def blind_experts() -> str:
    """Errors of network, LightGBM and their mixture, by stream."""
    return _errors("mixture", _EXPERTS)


def relative_to_lightgbm(method: str) -> float:
    """The error of a method of the mixture's comparison relative to LightGBM: the geometric mean over streams."""
    streams = {str(figure.of["stream"]) for figure in load("mixture").figures}
    ratios = [_error(stream, method) / _error(stream, "gbdt") for stream in streams]
    return math.prod(ratios) ** (1 / len(ratios))


def _error(stream: str, method: str) -> float:
    figure = find("mixture", "error", stream=stream, method=method)
    assert figure is not None
    assert figure.value is not None
    return figure.value


def _errors(name: str, methods: Sequence[str]) -> str:
    units = {str(figure.of["stream"]): figure.unit for figure in load(name).figures if figure.measure == "error"}
    rows = []
    for stream, unit in units.items():
        figures = [find(name, "error", stream=stream, **_labels(method)) for method in methods]
        cells = best([*map(plain("#.4g"), figures)], [*map(value_of, figures)], min)
        rows.append((code(stream), "log-loss, nats" if unit == "nats" else "absolute error", *cells))
    return table(("stream", f"mean error, {LOWER}", *map(code, methods)), rows)


def _labels(method: str) -> dict[str, str]:
    """The labels of a method that is named with what is special in its recipe."""
    name, _, recipe = method.partition(", ")
    return {"method": name} | ({"recipe": recipe} if recipe else {})
