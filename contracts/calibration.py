"""What a released version says of its own doubt: a temperature, and conformal quantiles by age.

`trainer.evaluation.calibration` computes them from the error matrix; the service only looks a quantile up. A row's
nonconformity
score is `|y − mean| / scale` for regression, and `1 − probability of y` for classification, so an interval is
`mean ± quantile · scale` and a prediction set holds every class whose probability is at least `1 − quantile`. There,
probabilities are those before the temperature (`untempered`): fits of different temperatures so share one quantile.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

# Coverages that quantiles are kept for, ascending: 0.50, 0.51 … 0.99, 0.995, 0.999.
LEVELS: tuple[float, ...] = (*(k / 100 for k in range(50, 100)), 0.995, 0.999)


class AgeQuantiles(msgspec.Struct, frozen=True):
    """Quantiles of one age at the first so many of `LEVELS`: those that its `num_rows` scored rows can support."""

    age: int
    num_rows: int
    quantiles: list[float]


class Calibration(msgspec.Struct, frozen=True):
    """`temperature` is what the graph divides its log-probabilities by, 1 for regression."""

    temperature: float
    ages: list[AgeQuantiles]


def untempered(probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """What a graph of this temperature would answer at temperature 1, `(n, C)`: `pᵀ / Σ pᵀ`."""
    powers = probabilities.astype(np.float64) ** temperature
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def find_quantile(calibration: Calibration, age: int, coverage: float) -> float | None:
    """The quantile of the least kept level that is at least `coverage`; None where the scored rows support none."""
    for quantiles in calibration.ages:
        if quantiles.age == age:
            for level, quantile in zip(LEVELS, quantiles.quantiles, strict=False):
                if level >= coverage - 1e-9:
                    return quantile
    return None
