"""The tables of what training costs: a step, a cohort, a whole cycle."""

from benchmarks.result_files import Figure, load
from handbook.results.cells import LOWER, find, plain, shortest
from handbook.tables import table


def step_cost() -> str:
    """A GI step beside a plain one, on two machines."""
    rows = []
    for classes in (2, 10, 100):
        found = (
            find("training", "ratio", what="GI step / plain step", classes=classes, batch=1024, machine=machine)
            for machine in "AB"
        )
        rows.append((str(classes), *map(plain(".1f"), found)))
    return table(("classes", f"machine A: GI step / plain step, ×, {LOWER}", "machine B: ×"), rows)


def cohort_cost() -> str:
    """A cohort of eight beside one member, by rows of a minibatch."""
    rows = []
    for batch in (16, 32, 256, 1024):
        eight, one = (
            find("training", "milliseconds", what="step of a cohort", members=members, batch=batch, machine="A")
            for members in (8, 1)
        )
        products = (
            find("training", "milliseconds", what="products alone", members=members, batch=batch, machine="A")
            for members in (8, 1)
        )
        ratios = (
            find("training", "ratio", what="cohort of 8 / one member", batch=batch, machine=machine) for machine in "AB"
        )
        rows.append(
            (
                f"{batch:,}",
                *map(_milliseconds, (eight, one)),
                *map(plain(".1f"), ratios),
                *map(plain(".1f"), products),
            )
        )
    return table(
        (
            "rows of a minibatch",
            f"eight members, ms, {LOWER}",
            "one member, ms",
            f"eight / one, ×, {LOWER}",
            "the same on machine B, ×",
            "products of eight alone, ms",
            "of one, ms",
        ),
        rows,
    )


def _milliseconds(figure: Figure | None) -> str:
    assert figure is not None
    assert figure.value is not None
    return f"{figure.value:.1f}" if figure.value < 100 else f"{figure.value:.0f}"


def cycle_cost() -> str:
    """Whole cycles beside one fit, by recipe."""
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
