"""The errors of logged answers: each answer as it was given, against the label that came for it.

Errors are those of the error matrix (`trainer.evaluation.scoring`), of the very numbers that the client got. Only the
matrix counts far labels of a regression as the bounds of its fit.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import numpy as np

from contracts.clock import Clock, parse_moment, to_micros
from contracts.quality.given_answers import NUM_BINS, AnswerSums, Bin, reduce_delays
from store.predictions.answer_scores import INSIDE_FIT, Key
from store.predictions.labelled import LabelledAnswer
from trainer.evaluation.calibration import LEAST_PROBABILITY

_parse = lru_cache(maxsize=4096)(parse_moment)


class Given(msgspec.Struct, frozen=True, gc=False):
    """What is scored of a logged answer."""

    prediction: str | float
    error_name: str
    expected_error: float | None
    trained_until: str
    valid_until: str
    probabilities: dict[str, float] | None = None
    mean: float | None = None
    coverage: float | None = None
    interval: tuple[float, float] | None = None
    prediction_set: list[str] | None = None

    def error_of(self, label: str) -> float | None:
        """The absolute error, or the probability of the label; None if the label is no number where one is needed."""
        if self.probabilities is not None:
            return self.probabilities.get(label, 0.0)
        number = _read_number(label)
        return None if number is None or self.mean is None else abs(number - self.mean)

    def covers(self, label: str) -> bool | None:
        """Whether the interval or prediction set holds the label; None if none was given."""
        if self.coverage is None:
            return None
        if self.prediction_set is not None:
            return label in self.prediction_set
        number = _read_number(label)
        if self.interval is None or number is None:
            return None
        low, high = self.interval
        return low <= number <= high


_decode = msgspec.json.Decoder(Given).decode


@dataclass
class _Answers:
    """Answers of one version and age, while they are read. `errors` of classes are probabilities of labels."""

    error_name: str
    num_answers: int = 0
    errors: list[float] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)
    promised: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    # Of classes: the probability of the predicted one, and whether it is right.
    confidences: list[float] = field(default_factory=list)
    are_right: list[bool] = field(default_factory=list)
    num_covered: int = 0

    def add(self, given: Given, row: LabelledAnswer) -> None:
        self.num_answers += 1
        error = None if row.label is None else given.error_of(row.label)
        if row.label is None or error is None or not math.isfinite(error):
            return
        self.errors.append(error)
        if given.probabilities is not None:
            self.confidences.append(given.probabilities.get(str(given.prediction), 0.0))
            self.are_right.append(row.label == given.prediction)
        if given.expected_error is not None:
            self.expected.append(given.expected_error)
        if row.label_at is not None:
            self.delays.append(max(0.0, (row.label_at - row.at).total_seconds()))
        covered = given.covers(row.label)
        if covered is not None and given.coverage is not None:
            self.promised.append(given.coverage)
            self.num_covered += covered

    def sums(self) -> AnswerSums:
        errors = np.array(self.errors)
        if self.confidences:
            errors = -np.log(errors.clip(LEAST_PROBABILITY, 1.0))
        return AnswerSums(
            error_name=self.error_name,
            num_answers=self.num_answers,
            num_labelled=len(self.errors),
            error=math.fsum(errors),
            num_wrong=self.are_right.count(False),
            num_expected=len(self.expected),
            expected=math.fsum(self.expected),
            num_given=len(self.promised),
            num_covered=self.num_covered,
            promised=math.fsum(self.promised),
            bins=_fill_bins(self.confidences, self.are_right) if self.confidences else [],
            delays=reduce_delays(self.delays),
        )


def score_answers(rows: Iterable[LabelledAnswer], clock_of: Callable[[str], Clock]) -> dict[Key, AnswerSums]:
    """The sums of these answers by version and age. `clock_of` gives the clock by which a version divides time.

    A row of the log that was written past the API may hold anything; one that is no answer is left out.
    """
    found: dict[Key, _Answers] = {}
    for row in rows:
        try:
            given = _decode(row.answer)
            age = _find_age(given, to_micros(row.at), clock_of(row.version))
        except (msgspec.DecodeError, ValueError):
            continue
        key = row.version, age
        answers = found.get(key)
        if answers is None:
            answers = found[key] = _Answers(given.error_name)
        answers.add(given, row)
    return {key: answers.sums() for key, answers in found.items()}


def _find_age(given: Given, at: int, clock: Clock) -> int:
    """The age by which the service answered (`service.models.forecaster`)."""
    cutoff = _parse(given.trained_until)
    if at < cutoff:  # up to the newest row of the fit no error is expected, and after it that of age 0
        return INSIDE_FIT if given.expected_error is None else 0
    return clock.age(cutoff, min(at, _parse(given.valid_until) - 1))


def _fill_bins(confidences: list[float], are_right: list[bool]) -> list[Bin]:
    shares, right = np.array(confidences), np.array(are_right)
    places = np.minimum((shares * NUM_BINS).astype(np.intp), NUM_BINS - 1)
    return [
        Bin(int(inside.sum()), int(right[inside].sum()), math.fsum(shares[inside]))
        for inside in (places == place for place in range(NUM_BINS))
    ]


@lru_cache(maxsize=4096)
def _read_number(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None
