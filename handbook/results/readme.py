"""The few rows of the README: wins and losses, each with what it is compared with."""

from benchmarks.result_files import Figure
from handbook.results.blind import relative_to_lightgbm
from handbook.results.cells import beside_published, best, find, plain, shortest, spread, value_of
from handbook.tables import code, table

LOWER, HIGHER = "lower", "higher"
_COMMANDS = {
    "demo": "morrow demo",
    "paper": "python -m benchmarks paper",
    "later": "python -m benchmarks paper --tables later",
    "experts": "python -m benchmarks blind --experts",
    "replay": "python -m benchmarks replay",
    "serving": "python -m benchmarks serving --quick",
}


def readme() -> str:
    """What Morrow reaches and misses, a row each, the better of both in bold."""
    flights = [find("demo", "log_loss", method=method) for method in ("gi", "baseline")]
    rotated = _released("mnist_normed", "gi")
    assert rotated is not None
    elec2 = [
        find("paper", "error", table="later", set="elec2_rows", method=method, config="released")
        for method in ("gi", "gbdt")
    ]
    house = [_released("house", method) for method in ("gi", "gbdt")]
    mixed = relative_to_lightgbm("auto")
    bands = find("replay", "in_band", stream="all")
    speed = find("serving", "ratio", what="GET /predict / FastAPI no-op, 32 connections", by="requests/s")
    rows = [
        ("late flights, six weeks", "log-loss", LOWER, *_lower(flights, ".4f"), "itself without time", "demo"),
        ("rotated digits (Rot-MNIST)", "error, %", LOWER, *beside_published(rotated), "the paper's figure", "paper"),
        ("electricity prices (Elec2), 12 fortnights", "error, %", LOWER, *_lower(elec2), "LightGBM, tuned", "later"),
        ("nine streams, nothing set", "error, ratio", LOWER, f"**{mixed:.3f}**", "1", "LightGBM", "experts"),
        ("house prices in 2019", "error, 10,000 AUD", LOWER, *_lower(house), "LightGBM, tuned", "paper"),
        ("errors inside their 90 % band", "%", "nearer to 90", plain(".1f")(bands), "90", "the promise", "replay"),
        ("answers a second", "ratio", HIGHER, f"**{shortest(speed)}**", "1", "an empty FastAPI route", "serving"),
    ]  # fmt: skip
    return table(
        ("what", "measured as", "better", "Morrow", "other", "the other is", "command"),
        ((*row[:-1], code(_COMMANDS[row[-1]])) for row in rows),
    )


def _released(name: str, method: str) -> Figure | None:
    return find("paper", "error", table="released", set=name, method=method, config="released")


def _lower(figures: list[Figure | None], form: str = "") -> list[str]:
    """Two errors, the lower one in bold."""
    return best([*map(plain(form) if form else spread, figures)], [*map(value_of, figures)], min)
