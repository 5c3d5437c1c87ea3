"""The tables of the paper's sets: every method on each, what is released, and one setting at a time."""

from collections.abc import Sequence

from benchmarks.paper.choices import RELEASED, read_choices
from benchmarks.paper.published import PUBLISHED, PUBLISHED_AS, UNITS
from benchmarks.result_files import Figure, Label
from handbook.results.cells import LOWER, beside_published, best, find, rounded, spread, value_of, yardstick
from handbook.tables import code, table

SET_NAMES = {
    "moons": "2-Moons",
    "moons_fresh": "2-Moons, fresh points",
    "mnist": "Rot-MNIST",
    "mnist_normed": "Rot-MNIST, batch norms",
    "reuters": "Reuters",
    "shuttle": "Shuttle, time in percent",
    "shuttle_raw": "Shuttle, the file's time",
    "elec2": "Elec2, published arrays, domain 29",
    "elec2_40": "Elec2, published arrays, domain 40",
    "elec2_rows": "Elec2, dated rows, domain 29",
    "elec2_rows_40": "Elec2, dated rows, domain 40",
    "house": "House, 2019",
    "house_2018": "House, 2018",
    "appliance": "Appliance",
}
RELEASED_SETS = (
    "moons", "moons_fresh", "mnist_normed", "reuters", "shuttle", "shuttle_raw", "elec2", "elec2_40", "elec2_rows",
    "elec2_rows_40", "house", "appliance",
)  # fmt: skip

# Table, method: the rows of a set, in the order of print.
_OF_PAPER = (
    ("main", "gi"), ("main", "baseline"), ("main", "last_window"), ("main", "inc_finetune"), ("ablation", "base_time"),
    ("ablation", "inc_finetune_time"), ("ablation", "grad_reg"), ("ablation", "time_perturb"), ("main", "cdot"),
    ("main", "cida"), ("main", "adagraph"), ("other", "ordinal"), ("other", "generative"), ("other", "deep_ode"),
    ("online", "ftpl"), ("online", "ftrl"),
)  # fmt: skip
_RELEASED = ("gi", "baseline", "base_time", "gbdt", "extrapolated_linear")
_RULES = ("naive", "constant", "previous_label")
_LATER_PAPERS = (("drain", "DRAIN (2023)"), ("koodos", "Koodos (2024)"))


def paper_set(name: str) -> str:
    """Every method on one of the paper's sets, ours and the published figure."""
    rows: list[Sequence[str]] = []
    for where, method in _OF_PAPER:
        figure = find("paper", "error", table=where, set=name, method=method, config="paper")
        if figure is not None:
            rows.append((code(method), "paper", *beside_published(figure)))
    for method in _RELEASED:
        figure = find("paper", "error", table="released", set=name, method=method, config="released")
        if figure is not None:
            rows.append((code(method), "released", *beside_published(figure)))
        if method == "gi" and (one := _one_member(name)) is not None:
            rows.append((f"{code(method)}, one member", "released", spread(one), ""))
    for rule in _RULES:
        figure = find("paper", "error", table="main", set=name, method=rule, config="rule")
        if figure is not None:
            rows.append((code(rule), "no fit", spread(figure), ""))
    for key, title in _LATER_PAPERS:
        if published := _published("successors", name, key):
            rows.append((title, "theirs", "", rounded(published)))
    unit = UNITS.get(name, "%")
    return table(("method", "recipe", f"ours: error, {unit}, {LOWER}", f"published: error, {unit}"), rows)


def _one_member(name: str) -> Figure | None:
    return find("paper", "error", table="released", set=name, method="gi", config="released", num_seeds=1)


def _published(where: str, name: str, method: str) -> float | None:
    cell = PUBLISHED.get((where, PUBLISHED_AS.get(name, name), method))
    return None if cell is None else cell.mean


def released() -> str:
    """What is released on each set, with LightGBM, the same network without time, and the published figures."""
    head = (
        "set", "unit", f"`gi`, {LOWER}", "`gbdt` (LightGBM)", "`baseline`", "GI as published", "best later paper",
        "our goal",
    )  # fmt: skip
    rows = []
    for name in RELEASED_SETS:
        figures = [
            find("paper", "error", table="released", set=name, method=method, config="released")
            for method in ("gi", "gbdt", "baseline")
        ]
        gi = figures[0]
        later = [value for key, _ in _LATER_PAPERS if (value := _published("successors", name, key)) is not None]
        values = [*map(value_of, figures), None if gi is None else gi.yardstick]
        cells = best([*map(spread, figures), yardstick(gi)], values, min)
        goal = _published("goal", name, "gi")
        rows.append(
            (
                SET_NAMES[name],
                UNITS.get(name, "%"),
                *cells,
                rounded(min(later)) if later else "",
                "" if goal is None else rounded(goal),
            )
        )
    return table(head, rows)


def later_domains() -> str:
    """Elec2's domains 29 to 40, by what is read."""
    cells = [(method, "released") for method in ("gi", "baseline", "gbdt", "extrapolated_linear")]
    cells += [("gi", "paper"), ("naive", "rule"), ("previous_label", "rule")]
    names = {"released": "released", "paper": "paper", "rule": "no fit"}
    columns = [
        [find("paper", "error", table="later", set=name, method=method, config=config) for method, config in cells]
        for name in ("elec2_rows", "elec2")
    ]
    # A rule that is told the label before each row is no forecast, so it is never the best one.
    forecasts = [
        [
            None if method == "previous_label" else value_of(figure)
            for (method, _), figure in zip(cells, column, strict=True)
        ]
        for column in columns
    ]
    written = [best([*map(spread, column)], values, min) for column, values in zip(columns, forecasts, strict=True)]
    rows = [(code(method), names[config], *both) for (method, config), *both in zip(cells, *written, strict=True)]
    return table(("method", "recipe", f"dated rows: error, %, {LOWER}", "published arrays: error, %"), rows)


def varied(
    where: str, setting: str, values: Sequence[Label], *, title: str, sets: Sequence[str], method: str = "gi"
) -> str:
    """One setting of a method, value by value: ours, and the published figure if there is one."""
    found = {
        name: [
            find("paper", "error", table=where, set=name, method=method, config="paper", **{setting: value})
            for value in values
        ]
        for name in sets
    }
    head, columns = [title], [[str(value) for value in values]]
    for name, figures in found.items():
        head.append(f"{SET_NAMES[name]}: error, {UNITS.get(name, '%')}, {LOWER}")
        if any(figure is not None and figure.yardstick is not None for figure in figures):
            head.append("published")
            pairs = [["", ""] if figure is None else beside_published(figure) for figure in figures]
            columns += [list(column) for column in zip(*pairs, strict=True)]
        else:
            columns.append([*map(spread, figures)])
    return table(head, zip(*columns, strict=True))


def snapshots() -> str:
    """Rot-MNIST after each number of training snapshots."""
    methods, counts = ("gi", "cida", "adagraph"), (1, 2, 3, 4)
    rows = [
        (
            str(count),
            *(
                spread(
                    find("paper", "error", table="snapshots", set="mnist", method=each, config="paper", history=count)
                )
                for each in methods
            ),
        )
        for count in counts
    ]
    return table(("newest snapshots", *(f"{code(each)}: error, %, {LOWER}" for each in methods)), rows)


def seconds() -> str:
    """What one model takes to train."""
    sets = ("moons", "mnist", "house")
    head = ["method"]
    for name in sets:
        head += [f"{SET_NAMES[name]}: ours, s", "published, s"]
    rows = []
    for method in ("baseline", "cida", "gi"):
        row = [code(method)]
        for name in sets:
            figure = find("paper", "seconds", table="seconds", set=name, method=method, config="paper")
            row += [spread(figure), yardstick(figure)]
        rows.append(row)
    return table(head, rows)


def choices() -> str:
    """What chose each released recipe and LightGBM's settings: their error on domains before the test's."""
    rows = []
    for name in RELEASED_SETS:
        found = read_choices(RELEASED).get(name, {})
        gi, boosted = found.get("gi"), found.get("gbdt")
        errors = [None if each is None else each.error for each in (gi, boosted)]
        rows.append(
            (
                SET_NAMES[name],
                "absolute error, " + UNITS[name] if name in UNITS else "log-loss, nats",
                *best(["" if error is None else f"{error:.4f}" for error in errors], errors, min),
                "" if gi is None else f"{gi.default_error:.4f}",
                "" if gi is None else ", ".join(map(str, gi.domains)),
                "" if gi is None else str(gi.trials),
                "" if gi is None else str(gi.seconds),
            )
        )
    return table(
        (
            "set",
            f"mean error, {LOWER}",
            "`gi` as chosen",
            "`gbdt` as chosen",
            "`gi` by a task's default",
            "choosing domains",
            "trials of `gi`",
            "seconds of the search",
        ),
        rows,
    )


def earlier_recipes() -> str:
    """The errors on the test domain of recipes that were released before, and of LightGBM's settings before."""
    rows = []
    for method in ("gi", "gbdt"):
        for name in RELEASED_SETS:
            of: dict[str, Label] = {"table": "released", "set": name, "method": method, "config": "released"}
            earlier = [find("paper_before", "error", choice=number, **of) for number in (1, 2, 3)]
            if any(earlier):
                now = spread(find("paper", "error", **of))
                rows.append((SET_NAMES[name], UNITS.get(name, "%"), code(method), *map(spread, earlier), now))
    return table(("set", "unit", "method", f"first: error, {LOWER}", "second", "third", "today"), rows)
