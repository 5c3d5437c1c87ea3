"""Prediction sets and intervals with the requested coverage, from the conformal quantile of an answer's age.

A coverage that too few scored rows support is refused, with the number of rows. So no answer is wider than its
evidence, or infinite.
"""

from collections.abc import Sequence

import numpy as np

from contracts.calibration import LEVELS, Calibration, find_quantile, untempered
from service.errors import CoverageUnsupported

# Coverage of a regression's interval if the request asks for no other.
DEFAULT_COVERAGE = 0.9


def require_quantile(calibration: Calibration, age: int | None, coverage: float) -> float:
    """The quantile of an answer of this age; the age is None before the cutoff. Raises CoverageUnsupported."""
    if age is None:
        raise CoverageUnsupported("is not available for moments of the fit's rows: the version has learned from them")
    quantile = find_quantile(calibration, age, coverage)
    if quantile is not None:
        return quantile
    if coverage > LEVELS[-1]:
        raise CoverageUnsupported(f"is at most {LEVELS[-1]:g}, whatever rows there are")
    num_rows = next((found.num_rows for found in calibration.ages if found.age == age), 0)
    rows = "row is" if num_rows == 1 else "rows are"
    raise CoverageUnsupported(f"is not supported at age {age}: {num_rows} scored {rows} too few for {coverage:g}")


def prediction_set(classes: Sequence[str], shares: Sequence[float], temperature: float, quantile: float) -> list[str]:
    """The classes whose score `1 − p` is at most the quantile, the likeliest first; it is always included.

    `shares` are the graph's outputs at this temperature. `p` are the shares without the temperature, as the quantile
    was computed from them.
    """
    scores = 1 - untempered(np.array([shares], np.float32), temperature)[0]
    order = np.argsort(scores, kind="stable")
    count = max(1, int((scores <= quantile).sum()))
    return [classes[k] for k in order[:count]]


def interval(mean: float, scale: float, quantile: float) -> list[float]:
    """`mean ± quantile · scale`."""
    return [mean - quantile * scale, mean + quantile * scale]
