"""The tables of speed and memory: answers, ingest, reading, and everything at once."""

from benchmarks.result_files import load
from handbook.results.cells import HIGHER, LOWER, find, highest, plain, shortest
from handbook.tables import table


def serving(name: str) -> str:
    """What an answer costs compared with other servers, or without a part of ours: the ratios of a file."""
    rows = []
    for figure in load(name).figures:
        if figure.measure == "ratio":
            ours, _, other = str(figure.of["what"]).partition(" / ")
            by = str(figure.of["by"])
            direction = LOWER if by in _COSTS else HIGHER
            rows.append((ours, other, by, shortest(figure), highest(figure), direction))
    return table(("what", "compared with", "counted by", "ratio, ×", "highest of several runs, ×", "direction"), rows)


_COSTS = ("MiB", "CPU s", "CPU µs a row", "ms")


def ingest() -> str:
    """What taking events costs compared with plain routes."""
    rows = []
    ratios = [figure for figure in load("ingest").figures if figure.measure == "ratio"]
    for figure in sorted(ratios, key=lambda each: "also_at_work" in each.of):
        ours, _, other = str(figure.of["what"]).partition(" / ")
        others = str(figure.of.get("also_at_work", "nothing"))
        rows.append((ours, other, str(figure.of["by"]), others, shortest(figure), highest(figure)))
    return table(
        ("what", "compared with", "counted by", "also at work", f"ratio, ×, {HIGHER}", "highest of several runs, ×"),
        rows,
    )


def reading() -> str:
    """Reading events for training."""
    rows = []
    ratios = [figure for figure in load("reading").figures if figure.measure == "ratio"]
    for figure in sorted(ratios, key=lambda each: each.of["rows"]):
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


def many_tasks() -> str:
    """What many tasks cost while nobody asks: a row for each measure, a column for each number of tasks."""
    figures = load("tasks").figures
    numbers = sorted({int(figure.of["tasks"]) for figure in figures})
    rows = []
    for process, measure in dict.fromkeys((str(figure.of["process"]), figure.measure) for figure in figures):
        found = [find("tasks", measure, process=process, tasks=number) for number in numbers]
        unit = next((figure.unit for figure in found if figure is not None), "")
        cells = ["" if one is None else one.note or shortest(one) for one in found]
        rows.append((process, f"{measure}, {unit}" if unit else measure, *cells))
    return table(("process", "measure", *(f"{number:,} task{'s' * (number > 1)}" for number in numbers)), rows)
