"""What each method is, in a sentence for readers who have not met its name: the pages and commands show it."""

from collections.abc import Iterable, Mapping

# By the name of a method in code, API and tables.
METHODS: Mapping[str, str] = {
    "model": "the version that answers, by the fits of its recipe on windows that they had not seen",
    "naive": "no model: the share of each class in the newest known window, or the mean label of a regression there",
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


_NAIVE = {
    True: "no model: the share of each class in the newest known window",
    False: "no model: the mean label of the newest known window",
}


def explain_methods(names: Iterable[str], *, is_classification: bool | None = None) -> list[tuple[str, str]]:
    """Each of these methods that has an explanation, once, with it, for this kind of task or for both."""
    meanings = dict(METHODS) if is_classification is None else {**METHODS, "naive": _NAIVE[is_classification]}
    return [(name, meanings[name]) for name in dict.fromkeys(names) if name in meanings]


def explain_weights(weights: Mapping[str, float]) -> str | None:
    """How answers are averaged; None if one model answers alone."""
    if not weights:
        return None
    shares = [
        f"{100 * share:.0f} % from {'LightGBM' if name == 'gbdt' else 'the network'}" for name, share in weights.items()
    ]
    return f"answers are averages, {' and '.join(shares)}: the smaller its earlier errors, the more a model weighs"
