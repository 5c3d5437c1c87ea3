"""scikit-learn's own checks of estimators, as far as they know nothing of moments.

They call `fit(X, y)` and `predict(X)`, so the classes below give each row a moment that follows from its values. Then a
row keeps its moment in another order of rows, or in a part of them.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from estimators import GIClassifier, GIRegressor

QUICK = {"num_seeds": 1, "width": 16, "num_layers": 1, "calendar": [], "experts": ["gi"], "batch_size": 16}
# Checks that need an environment variable, or are of estimators of another kind.
SKIPPED = {"check_array_api_input"}


def moments_of(X: Any) -> NDArray[np.datetime64]:
    """One of four days for each row."""
    rows = np.asarray(X)
    try:
        sums = np.nan_to_num(rows.astype(np.float64)).reshape(len(rows), -1).sum(axis=1)
    except (TypeError, ValueError):
        sums = np.zeros(max(1, rows.size))
    days: NDArray[np.datetime64] = np.datetime64("2026-01-01") + np.abs(sums * 1000).astype(np.int64) % 4
    return days


class TimedClassifier(GIClassifier):
    """A classifier that finds the moments itself."""

    def fit(self, X: Any, y: Any = None, t: Any = None) -> "TimedClassifier":
        return super().fit(X, y, moments_of(X))

    def predict(self, X: Any, t: Any = None) -> NDArray[Any]:
        return super().predict(X, moments_of(X))

    def predict_proba(self, X: Any, t: Any = None) -> NDArray[np.float64]:
        return super().predict_proba(X, moments_of(X))

    def score(self, X: Any, y: Any, t: Any = None, sample_weight: Any = None) -> float:
        return super().score(X, y, moments_of(X), sample_weight)


class TimedRegressor(GIRegressor):
    """A regressor that finds the moments itself."""

    def fit(self, X: Any, y: Any = None, t: Any = None) -> "TimedRegressor":
        return super().fit(X, y, moments_of(X))

    def predict(self, X: Any, t: Any = None) -> NDArray[np.float64]:
        return super().predict(X, moments_of(X))

    def score(self, X: Any, y: Any, t: Any = None, sample_weight: Any = None) -> float:
        return super().score(X, y, moments_of(X), sample_weight)


@pytest.mark.filterwarnings("ignore")  # the checks give scikit-learn's own functions what these warn about
@pytest.mark.parametrize("kind", [TimedClassifier, TimedRegressor])
def test_scikit_learns_checks_pass(kind: type[TimedClassifier | TimedRegressor]) -> None:
    estimator = kind("P2D", guard={"min_rows": 2, "max_age": 1}, training=QUICK, device="cpu", n_jobs=1)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {one["check_name"]: one["exception"] for one in results if one["status"] == "failed"}
    assert not failed
    assert {one["check_name"] for one in results if one["status"] == "skipped"} <= SKIPPED
    assert len(results) > 45


def test_parameters_are_those_of_a_task_and_survive_a_clone() -> None:
    given = GIClassifier("P7D", name="churn", training={"num_seeds": 2}).set_params(label_delay="P1D")
    copied = clone(given)
    assert copied.get_params() == given.get_params()
    assert (copied.window, copied.name, copied.label_delay) == ("P7D", "churn", "P1D")
