"""How right the answers were that were given: sums over logged answers and their labels, and the figures made of them.

Answers are counted by the version that gave them and by their age, the number of windows from the version's cutoff to
the moment that was asked about. Sums of several parts of the log add up to those of the whole.

The calibration of classes is the expected calibration error (Naeini et al., 2015). Answers are sorted into ten bins by
the probability of the predicted class. Each bin has a distance between that probability and the share of right
predictions, and the mean over all answers is the error. A regression has the coverage of its intervals instead.
"""

from collections.abc import Sequence
from math import fsum

import msgspec
import numpy as np

NUM_BINS = 10
# How many values of a part of the log its delays are reduced to, evenly spaced in rank; fewer are kept as they are.
NUM_DELAYS = 41


class Bin(msgspec.Struct, frozen=True, array_like=True):
    """Answers whose predicted class has a probability in one tenth: how many are right, and their probabilities."""

    num_answers: int = 0
    num_right: int = 0
    probability: float = 0.0


class AnswerSums(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sums over answers of one version and age, whose errors have the name `error_name`.

    num_answers   logged answers; `num_labelled` of them have their label, and all other sums are over these
    error         of the errors by which the task is judged: log losses, or absolute errors
    num_wrong     predicted classes that differ from the label
    expected      of the errors that `num_expected` answers themselves expected
    num_covered   labels inside their interval or prediction set, of `num_given` answers that gave one
    promised      of the coverages that these promised
    bins          of the probabilities of predicted classes; none for a regression
    delays        seconds from the moment that was asked about to the label, ascending: all, or `NUM_DELAYS` of them
    """

    error_name: str
    num_answers: int
    num_labelled: int = 0
    error: float = 0.0
    num_wrong: int = 0
    num_expected: int = 0
    expected: float = 0.0
    num_given: int = 0
    num_covered: int = 0
    promised: float = 0.0
    bins: list[Bin] = []
    delays: list[float] = []


class AnswerQuality(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of the answers of one version and age. A figure is null if no answer has what it is made of."""

    error_name: str
    num_answers: int
    num_labelled: int
    error: float | None
    expected_error: float | None
    error_rate: float | None
    num_given: int
    coverage: float | None
    promised_coverage: float | None
    calibration_error: float | None
    label_delay_median: float | None
    label_delay_p90: float | None

    @property
    def waiting(self) -> float:
        """The share of the answers whose label has not come."""
        return 1 - self.num_labelled / self.num_answers


def measure(parts: Sequence[AnswerSums]) -> AnswerQuality:
    """The figures of parts of the log together, of which there is at least one."""
    num_labelled = sum(part.num_labelled for part in parts)
    num_expected = sum(part.num_expected for part in parts)
    num_given = sum(part.num_given for part in parts)
    has_classes = any(part.bins for part in parts)
    median, p90 = _find_delays(parts)
    return AnswerQuality(
        error_name=parts[0].error_name,
        num_answers=sum(part.num_answers for part in parts),
        num_labelled=num_labelled,
        error=_share(fsum(part.error for part in parts), num_labelled),
        expected_error=_share(fsum(part.expected for part in parts), num_expected),
        error_rate=_share(sum(part.num_wrong for part in parts), num_labelled) if has_classes else None,
        num_given=num_given,
        coverage=_share(sum(part.num_covered for part in parts), num_given),
        promised_coverage=_share(fsum(part.promised for part in parts), num_given),
        calibration_error=_measure_calibration([part.bins for part in parts if part.bins]) if has_classes else None,
        label_delay_median=median,
        label_delay_p90=p90,
    )


def reduce_delays(delays: Sequence[float]) -> list[float]:
    """The delays in order, or as many of them as are kept: the middles of parts of equal size."""
    ordered = np.sort(np.array(delays, np.float64))
    if len(ordered) > NUM_DELAYS:
        ordered = ordered[((np.arange(NUM_DELAYS) + 0.5) * len(ordered) / NUM_DELAYS).astype(np.intp)]
    kept: list[float] = ordered.tolist()
    return kept


def _share(total: float, count: int) -> float | None:
    return total / count if count else None


def _measure_calibration(parts: Sequence[Sequence[Bin]]) -> float:
    """The expected calibration error: `Σ |right answers − probabilities|` over bins, by the number of answers."""
    distances = [
        abs(sum(one.num_right for one in place) - fsum(one.probability for one in place))
        for place in zip(*parts, strict=True)
    ]
    return fsum(distances) / sum(one.num_answers for part in parts for one in part)


def _find_delays(parts: Sequence[AnswerSums]) -> tuple[float | None, float | None]:
    """The least delays that half and nine tenths of the labels do not exceed; kept delays stand for their part."""
    known = [part for part in parts if part.delays]
    if not known:
        return None, None
    delays = np.concatenate([part.delays for part in known])
    weights = np.concatenate([np.full(len(part.delays), part.num_labelled / len(part.delays)) for part in known])
    median, p90 = np.quantile(delays, [0.5, 0.9], method="inverted_cdf", weights=weights).tolist()
    return median, p90
