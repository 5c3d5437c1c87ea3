"""Sets and intervals that hold the truth as often as is asked, by the conformal quantile of an answer's age.

What too few scored rows can support is refused with their number: an answer is never wider than the evidence, and
never infinite.
"""

from collections.abc import Sequence

import numpy as np

from contracts.calibration import LEVELS, Calibration, find_quantile, untempered
from service.errors import CoverageUnsupported

# What the interval of a regression covers where nothing else is asked.
USUAL = 0.9


def require_quantile(calibration: Calibration, age: int | None, coverage: float) -> float:
    """The quantile of an answer of this age, which is None up to the cutoff. Raises CoverageUnsupported."""
    if age is None:
        raise CoverageUnsupported("is not supported up to trained_until: no rows are scored there")
    quantile = find_quantile(calibration, age, coverage)
    if quantile is not None:
        return quantile
    if coverage > LEVELS[-1]:
        raise CoverageUnsupported(f"is at most {LEVELS[-1]:g}, whatever rows there are")
    num_rows = next((found.num_rows for found in calibration.ages if found.age == age), 0)
    rows = "row is" if num_rows == 1 else "rows are"
    raise CoverageUnsupported(f"is not supported at age {age}: {num_rows} scored {rows} too few for {coverage:g}")


def prediction_set(classes: Sequence[str], shares: Sequence[float], temperature: float, quantile: float) -> list[str]:
    """The classes whose score `1 − p` is at most the quantile, the likeliest first and in any case.

    `shares` are the graph's, of this temperature; p is what they are without it, as where the quantile was taken.
    """
    scores = 1 - untempered(np.array([shares], np.float32), temperature)[0]
    order = np.argsort(scores, kind="stable")
    count = max(1, int((scores <= quantile).sum()))
    return [classes[k] for k in order[:count]]


def interval(mean: float, scale: float, quantile: float) -> list[float]:
    """`mean ± quantile · scale`."""
    return [mean - quantile * scale, mean + quantile * scale]
