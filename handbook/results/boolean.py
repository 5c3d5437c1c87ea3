"""The tables of the Boolean set: what rules reach exactly, and what training gives."""

from benchmarks.result_files import Figure, load
from handbook.results.cells import HIGHER, LOWER, find, plain, value_of
from handbook.tables import code, table


def boolean_rules() -> str:
    """What rules reach that know the chances."""
    rows = [(str(figure.of["rule"]), plain(".2f")(figure)) for figure in load("boolean").figures if "rule" in figure.of]
    return table(("rule", f"accuracy at t = 3, %, {HIGHER}"), rows)


def boolean_training() -> str:
    """What training gives over five draws."""
    rows, fits = [], _boolean_fits()
    for figure in sorted(fits, key=lambda each: _BOOLEAN_ORDER.index(str(each.of["method"]))):
        of = figure.of
        known, before = (find("boolean", name, **of) for name in ("accuracy_known", "log_loss_at_2"))
        rows.append(
            (
                code(str(of["method"])),
                str(of["activation"]),
                str(of["epochs"]) + (f", then {of['finetune_epochs']}" if "finetune_epochs" in of else ""),
                str(of.get("gi_weight", "")),
                str(of.get("delta_max", "")),
                str(of.get("delta_mode", "")),
                plain(".1f")(known),
                plain(".3f")(before),
                f"{figure.value:.1f} ± {figure.std:.1f}",
                "" if figure.yardstick is None else f"{figure.yardstick:.1f}",
                _best_by(figure, fits),
            )
        )
    return table(
        (
            "method",
            "activation",
            "epochs",
            "λ",
            "δ_max",
            "search for δ",
            "accuracy on t = 0, 1, 2, %",
            f"log-loss at t = 2, nats, {LOWER}",
            f"accuracy at t = 3, %, {HIGHER}",
            "published accuracy, %",
            "best",
        ),
        rows,
    )


_BOOLEAN_ORDER = ("base_time", "baseline", "grad_reg", "gi")


def _boolean_fits() -> list[Figure]:
    return [
        each
        for each in load("boolean").figures
        if each.measure == "accuracy" and not {"rule", "draws", "delta_rows"} & set(each.of)
    ]


def _best_by(figure: Figure, fits: list[Figure]) -> str:
    """Whether a setting is the best of its method, by t = 2 or by what t = 3 shows."""
    own = [each for each in fits if each.of["method"] == figure.of["method"]]
    at_2 = min(own, key=lambda each: value_of(find("boolean", "log_loss_at_2", **each.of)) or 0.0)
    at_3 = max(own, key=lambda each: each.value or 0.0)
    return "at t = 2" if figure is at_2 else "in hindsight" if figure is at_3 else ""
