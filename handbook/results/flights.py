"""The tables of the flights task: the weeks that chose its recipe, and the six weeks of the demo."""

from handbook.results.cells import LOWER, best, find, plain, value_of
from handbook.tables import code, table


def flights_methods() -> str:
    """The weeks that chose the flights recipe."""
    methods = ("gi", "baseline", "last_window", "naive")
    found = [find("flights", "log_loss", method=method) for method in methods]
    cells = best([*map(plain(".4f"), found)], [*map(value_of, found)], min)
    return table(("method", f"mean log-loss, nats, {LOWER}"), zip(map(code, methods), cells, strict=True))


def flights_weeks() -> str:
    """The same, week by week."""
    methods, weeks = ("gi", "baseline", "last_window"), (9, 11, 13, 15, 17, 19, 21, 23, 25)
    rows = []
    for week in weeks:
        found = [find("flights", "log_loss", method=method, week=week) for method in methods]
        rows.append((str(week), *best([*map(plain(".4f"), found)], [*map(value_of, found)], min)))
    return table(("week", *(f"{code(method)}: log-loss, nats" for method in methods)), rows)


def demo() -> str:
    """The six weeks of the demo, each method's mean."""
    methods = ("gi", "baseline", "last_window", "naive")
    losses = [find("demo", "log_loss", method=method) for method in methods]
    errors = [find("demo", "error", method=method) for method in methods]
    rows = zip(
        map(code, methods),
        best([*map(plain(".4f"), losses)], [*map(value_of, losses)], min),
        best([*map(plain(".1f"), errors)], [*map(value_of, errors)], min),
        strict=True,
    )
    return table(("method", f"mean log-loss, nats, {LOWER}", f"wrong answers, %, {LOWER}"), rows)
