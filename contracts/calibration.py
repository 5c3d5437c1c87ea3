"""The uncertainty that a released version reports: a temperature, and conformal quantiles by age.

`trainer.evaluation.calibration` computes them from the error matrix; the service only looks up a quantile. A row's
nonconformity score is `|y − mean| / scale` for regression, and `1 − probability of y` for classification. So an
interval is `mean ± quantile · scale`, and a prediction set holds every class whose probability is at least
`1 − quantile`. These probabilities are those before the temperature (`untempered`), so fits of different temperatures
share one quantile.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

# The coverages for which quantiles are kept, ascending: 0.50, 0.51 … 0.99, 0.995, 0.999.
LEVELS: tuple[float, ...] = (*(k / 100 for k in range(50, 100)), 0.995, 0.999)


class AgeQuantiles(msgspec.Struct, frozen=True):
    """Quantiles of one age at the lowest of `LEVELS`: those that its `num_rows` scored rows can support."""

    age: int
    num_rows: int
    quantiles: list[float]


class Calibration(msgspec.Struct, frozen=True):
    """`temperature` divides the graph's log-probabilities; it is 1 for regression."""

    temperature: float
    ages: list[AgeQuantiles]


def untempered(probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """The answers `(n, C)` at temperature 1 of a graph that has this temperature: `pᵀ / Σ pᵀ`."""
    powers = probabilities.astype(np.float64) ** temperature
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def find_quantile(calibration: Calibration, age: int, coverage: float) -> float | None:
    """The quantile at the lowest kept level that is at least `coverage`; None if the scored rows support none."""
    for quantiles in calibration.ages:
        if quantiles.age == age:
            for level, quantile in zip(LEVELS, quantiles.quantiles, strict=False):
                if level >= coverage - 1e-9:
                    return quantile
    return None
