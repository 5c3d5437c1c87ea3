"""The tables of the replays: promises kept, and every method's error, by stream."""

from functools import partial

from handbook.results.cells import LOWER, best, find, plain, value_of
from handbook.tables import code, table

METHODS = ("gi", "baseline", "last_window", "naive", "gbdt")
STREAMS = ("elec2", "house_yearly", "house_half_yearly", "appliance", "flights")


def replay_promises() -> str:
    """How right bands, intervals and horizons were, by stream."""
    share, count, error = plain(".1f"), plain(",.0f"), plain("#.4g")
    rows = []
    for name in (*STREAMS, "all"):
        figures = {
            what: find("replay", what, stream=name)
            for what in ("windows", "cells", "in_band", "coverage", "closing_windows")
        }
        measure = _error_measure(name)
        inside, beyond = (
            find("replay", measure, stream=name, ages=f"{where} the horizon") for where in ("inside", "beyond")
        )
        paired = find("replay", measure, stream=name, ages="beyond less inside, same windows")
        rows.append(
            (
                code(name) if name != "all" else name,
                count(figures["windows"]),
                count(figures["cells"]),
                share(figures["in_band"]),
                share(figures["coverage"]),
                "" if inside is None else inside.unit,
                error(inside),
                error(beyond),
                plain("+.3f")(paired),
                count(figures["closing_windows"]),
            )
        )
    return table(
        (
            "stream",
            "windows",
            "errors by age and window",
            "in the 90 % band, %",
            "rows in 90 % intervals or sets, %",
            "error in",
            "mean error inside horizons",
            "beyond horizons",
            "beyond less inside, same windows",
            "windows that closed a horizon",
        ),
        rows,
    )


def replay_methods() -> str:
    """Mean error of every method, by stream."""
    rows = []
    for name in STREAMS:
        measure = _error_measure(name)
        figures = [find("replay", measure, stream=name, method=method) for method in METHODS]
        unit = next(figure.unit for figure in figures if figure is not None)
        cells = best([*map(plain("#.4g"), figures)], [*map(value_of, figures)], min)
        what = "log-loss" if measure == "log_loss" else "absolute error"
        rows.append(
            (code(name), f"{what}, {unit}", plain(",.0f")(find("replay", "shared_windows", stream=name)), *cells)
        )
    return table(("stream", f"mean error, {LOWER}", "windows", *map(code, METHODS)), rows)


def replay_choices() -> str:
    """What each stream's recipe was chosen on, and its error there."""
    rows = []
    for name in STREAMS[:-1]:
        measure = _error_measure(name)
        chosen = partial(find, "replay", measure, stream=name, windows="choosing", method="gi")
        rows.append(
            (
                code(name),
                plain(",.0f")(find("replay", "choosing_windows", stream=name)),
                plain(",.0f")(find("replay", "events", stream=name, windows="choosing")),
                plain(".4f")(chosen()),
                *(plain(".4f")(chosen(age=age)) for age in range(4)),
            )
        )
    return table(
        (
            "stream",
            "choosing windows",
            "events in them",
            f"mean error, {LOWER}",
            *(f"at age {age}" for age in range(4)),
        ),
        rows,
    )


def _error_measure(stream: str) -> str:
    return "log_loss" if stream in ("elec2", "flights") else "error"
