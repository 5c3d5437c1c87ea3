"""The tables of 2-Moons: the chosen recipe and its rivals, and the recipes that came last in the choice."""

from benchmarks.result_files import Figure, Label, load
from handbook.results.cells import LOWER, find, plain, yardstick
from handbook.tables import code, table


def moons_methods() -> str:
    """The chosen recipe and its rivals on domain 9."""
    cells: tuple[tuple[str, dict[str, Label]], ...] = (
        ("`gi`", {"method": "gi"}),
        ("`gi`, λ = 0", {"method": "gi", "gi_weight": 0.0}),
        ("`baseline`", {"method": "baseline"}),
        ("`last_window`", {"method": "last_window"}),
    )
    rows = []
    for title, of in cells:
        twenty, five = (find("moons", "error", seeds=seeds, **of) for seeds in (20, 5))
        losses = (find("moons", "log_loss", seeds=seeds, **of) for seeds in (20, 5))
        rows.append((title, *map(_two_decimals, (twenty, five)), *map(plain(".3f"), losses), yardstick(twenty)))
    return table(
        (
            "method",
            f"error over 20 seeds, %, {LOWER}",
            "over 5 seeds, %",
            f"log-loss over 20 seeds, nats, {LOWER}",
            "over 5 seeds, nats",
            "published error, %",
        ),
        rows,
    )


def _two_decimals(figure: Figure | None) -> str:
    assert figure is not None
    return f"{figure.value:.2f} ± {figure.std:.2f}"


def moons_finalists() -> str:
    """The recipes that were trained again over 20 seeds, in the order of what chose."""
    figures = [each for each in load("moons_search").figures if each.of["seeds"] == 20]
    losses = sorted((each for each in figures if each.measure == "log_loss"), key=lambda each: each.value or 0.0)
    rows = []
    for number, loss in enumerate(losses):
        (error,) = (each for each in figures if each.of == loss.of and each.measure == "error")
        settings = [_written(loss.of[name]) for name in _MOONS_SETTINGS]
        cell = plain(".4f")(loss)
        rows.append((*settings, f"**{cell}**" if number == 0 else cell, _two_decimals(error)))
    return table((*map(code, _MOONS_SETTINGS), f"log-loss, nats, {LOWER}", f"error, %, {LOWER}"), rows)


def _written(value: Label) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


_MOONS_SETTINGS = ("gi_weight", "gi_pretrain", "delta_max", "pretrain_rate", "pretrain_epochs")
