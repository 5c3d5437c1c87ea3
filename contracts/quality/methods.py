"""What each method is, in a sentence for readers who have not met its name: the pages and commands show it."""

from collections.abc import Iterable, Mapping

# By the name of a method in code, API and tables.
METHODS: Mapping[str, str] = {
    "model": "the version that answers, by the fits of its recipe on windows that they had not seen",
    "naive": "no model: the shares of the classes, or the mean label, of the newest known window",
    "gi": "a network that sees time, trained with the Gradient Interpolation loss",
    "baseline": "the same network without time, trained on all the past",
    "last_window": "the same network without time, trained on the newest window alone",
    "inc_finetune": "the network without time, trained on the oldest window, then tuned on each later one in order",
    "base_time": "the network that sees time, trained without the Gradient Interpolation loss",
    "inc_finetune_time": "the network that sees time, trained on the oldest window, then tuned on each later one",
    "grad_reg": "the network that sees time, held back from changing fast with time",
    "time_perturb": "the network that sees time, trained with random shifts of time",
    "gbdt": "LightGBM: trees fitted with boosting, with time and calendar as features",
    "extrapolated_linear": "one linear model for each window, whose coefficients are extrapolated to the next",
}


def explain_methods(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each of these methods that has an explanation, once, with it."""
    return [(name, METHODS[name]) for name in dict.fromkeys(names) if name in METHODS]


def explain_weights(weights: Mapping[str, float]) -> str | None:
    """How answers are averaged; None if one model answers alone."""
    if not weights:
        return None
    shares = [
        f"{100 * share:.0f} % from {'LightGBM' if name == 'gbdt' else 'the network'}" for name, share in weights.items()
    ]
    return f"answers are averages, {' and '.join(shares)}: the smaller its earlier errors, the more a model weighs"
