"""The tables of what training costs: a step, a cohort, a whole cycle."""

from benchmarks.result_files import Figure, Label, load
from handbook.results.cells import LOWER, find, highest, plain, shortest
from handbook.tables import table

# Labels of the two machines that were measured.
MACHINES: tuple[dict[str, Label], ...] = ({}, {"machine": "another"})


def step_cost() -> str:
    """A GI step compared with a plain one, on two machines."""
    rows = []
    for classes in (2, 10, 100):
        of: dict[str, Label] = {"what": "GI step / plain step", "classes": classes, "batch": 1024}
        rows.append((str(classes), *(shortest(find("training", "ratio", **of, **machine)) for machine in MACHINES)))
    return table(("classes", f"GI step / plain step, ×, {LOWER}", "on another machine, ×"), rows)


def cohort_cost() -> str:
    """A cohort of eight compared with one member, by rows of a minibatch."""
    rows = []
    for batch in (16, 32, 256, 1024):
        of: dict[str, Label] = {"what": "cohort of 8 / one member", "batch": batch}
        step = find("training", "sides", **of)
        products = find("training", "sides", what="products alone, cohort of 8 / one member", batch=batch)
        rows.append(
            (
                f"{batch:,}",
                *_sides(step),
                *(shortest(find("training", "ratio", **of, **machine)) for machine in MACHINES),
                *_sides(products),
            )
        )
    return table(
        (
            "rows of a minibatch",
            f"eight members, ms, {LOWER}",
            "one member, ms",
            f"eight / one, ×, {LOWER}",
            "on another machine, ×",
            "products of eight alone, ms",
            "of one, ms",
        ),
        rows,
    )


def _sides(figure: Figure | None) -> list[str]:
    """Ours and the yardstick, in milliseconds."""
    sides = () if figure is None else (figure.value, figure.yardstick)
    return [f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in sides if value is not None]


def cycle_cost() -> str:
    """Whole cycles compared with one fit, by recipe."""
    rows = []
    for recipe in dict.fromkeys(figure.of["recipe"] for figure in load("cycles").figures):
        fit = find("cycles", "seconds", recipe=recipe, what="one fit, rows read too")
        origins = find("cycles", "seconds", recipe=recipe, what="eight origins, fitted and scored")
        first = find("cycles", "ratio", recipe=recipe, what="first cycle / one fit")
        steady = find("cycles", "ratio", recipe=recipe, what="steady cycle / one fit")
        rows.append((str(recipe), *map(plain(".1f"), (fit, origins, first)), shortest(steady)))
    return table(
        (
            "recipe",
            "one fit, CPU s",
            "eight origins, CPU s",
            f"first cycle / one fit, ×, {LOWER}",
            f"steady cycle / one fit, ×, {LOWER}",
        ),
        rows,
    )


def small_cycles() -> str:
    """What a cycle of a small task costs beyond its fit, and how many an hour one and two processes carry out."""
    units = {"1/h": ", cycles per hour", "": ""}
    rows = [
        (
            f"{figure.of['what']}{units.get(figure.unit, f', {figure.unit}')}",
            " to ".join(cell for cell in (shortest(figure), highest(figure)) if cell),
        )
        for figure in load("small_cycles").figures
    ]
    return table(("measure", "value"), rows)
