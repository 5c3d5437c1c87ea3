"""The uncertainty that a released version reports: a temperature, and conformal quantiles by age.

`trainer.evaluation.calibration` computes them from the error matrix; the service only looks up a quantile. A row's
nonconformity score is `|y − mean| / scale` for regression, and `1 − probability of y` for classification. So an
interval is `mean ± quantile · scale`, and a prediction set holds every class whose probability is at least
`1 − quantile`. These probabilities are those before the temperature (`untempered`), so fits of different temperatures
share one quantile.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

# The coverages for which quantiles are kept, ascending: 0.50, 0.51 … 0.99, 0.995, 0.999.
LEVELS: tuple[float, ...] = (*(k / 100 for k in range(50, 100)), 0.995, 0.999)


# How much less than its level of a fit's own rows a quantile may hold.
_SHORTFALL = 0.03


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


def raise_quantiles(calibration: Calibration, own_scores: Sequence[float]) -> Calibration:
    """The calibration for a fit with these sorted scores on its own newest rows.

    Quantiles come from earlier fits, whose bias may be another. A long tail of labels gives all answers one large
    scale, and a fit's scores are then nearly equal: its bias in units of that scale. A quantile that holds clearly less
    of a fit's own rows than its level cannot hold that level of new rows, so it is raised to the one that does.
    """
    if not own_scores:
        return calibration
    own, levels = np.array(own_scores), np.array(LEVELS)
    least = np.quantile(own, levels - _SHORTFALL, method="higher")
    enough = np.quantile(own, levels, method="higher")

    def raised(age: AgeQuantiles) -> AgeQuantiles:
        count = len(age.quantiles)
        found = np.array(age.quantiles)
        found = np.maximum.accumulate(np.where(found < least[:count], enough[:count], found))
        return AgeQuantiles(age.age, age.num_rows, found.tolist())

    return Calibration(calibration.temperature, [raised(age) for age in calibration.ages])


def find_quantile(calibration: Calibration, age: int, coverage: float) -> float | None:
    """The quantile at the lowest kept level that is at least `coverage`; None if the scored rows support none."""
    for quantiles in calibration.ages:
        if quantiles.age == age:
            for level, quantile in zip(LEVELS, quantiles.quantiles, strict=False):
                if level >= coverage - 1e-9:
                    return quantile
    return None
