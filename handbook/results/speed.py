"""The tables of speed and memory: answers, ingest, reading, and everything at once."""

from benchmarks.result_files import Label, load
from handbook.results.cells import HIGHER, LOWER, find, plain, shortest
from handbook.tables import table


def serving() -> str:
    """What an answer costs beside other servers."""
    labels = dict.fromkeys((str(each.of["what"]), str(each.of["by"])) for each in load("serving").figures)
    rows = []
    for what, by in labels:
        ours, _, other = what.partition(" / ")
        direction = LOWER if by in ("MiB", "CPU s") else HIGHER
        rows.append((ours, other, by, *_lowest_and_highest("serving", what=what, by=by), direction))
    return table(("what", "compared with", "counted by", "ratio, ×", "highest of two runs, ×", "direction"), rows)


def ingest() -> str:
    """What it costs to take events beside plain routes."""
    labels = dict.fromkeys(tuple(str(each.of[name]) for name in _INGEST_LABELS) for each in load("ingest").figures)
    rows = []
    for labelled in sorted(labels, key=lambda each: each[2] != "nothing else"):
        of = dict(zip(_INGEST_LABELS, labelled, strict=True))
        ours, _, other = of["what"].partition(" / ")
        rows.append((ours, other, of["by"], of["beside"], *_lowest_and_highest("ingest", **of)))
    return table(
        ("what", "compared with", "counted by", "also at work", f"lowest ratio, ×, {HIGHER}", "highest ratio, ×"), rows
    )


_INGEST_LABELS = ("what", "by", "beside")


def _lowest_and_highest(name: str, **of: Label) -> tuple[str, str]:
    """The least and the greatest figure that have these labels among others; the latter empty where it is the same."""
    figures = [each for each in load(name).figures if of.items() <= each.of.items() and each.value is not None]
    figures.sort(key=lambda each: each.value or 0.0)
    lowest, highest = shortest(figures[0]), shortest(figures[-1])
    return lowest, "" if highest == lowest else highest


def reading() -> str:
    """Reading events for training."""
    rows = []
    for figure in sorted(load("reading").figures, key=lambda each: each.of["rows"]):
        what, direction = _READING[str(figure.of["what"])]
        rows.append((what, f"{figure.of['rows']:,}", shortest(figure), direction))
    return table(("ratio", "events", "×", "direction"), rows)


_READING = {
    "pandas.read_sql / training read, client CPU": ("CPU time of `pandas.read_sql` / ours", HIGHER),
    "pandas.read_sql / training read, memory": ("memory of `pandas.read_sql` / ours", HIGHER),
    "rows read and one epoch, peak memory / tensors": (
        "peak memory of reading and one epoch, libraries included / the fit's tensors",
        LOWER,
    ),
}


def mixed() -> str:
    """Five minutes of everything at once."""
    names = ("events acknowledged", "events lost or doubled", "answers", "answers wrong")
    rows = [
        (str(workers), *(plain(",.0f")(find("mixed", "count", what=name, workers=workers)) for name in names))
        for workers in (1, 4)
    ]
    return table(("workers", *names), rows)
