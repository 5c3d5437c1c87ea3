"""A released version, immutable; loaded, it turns rows and moments into answers, inside its horizon only.

Everything an answer says about its version comes from one object, so that a swap in the middle of a request cannot
mix two versions.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import msgspec
import numpy as np
import onnxruntime
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from contracts.calibration import Calibration, find_quantile, raise_quantiles
from contracts.clock import format_duration, format_moment
from contracts.errors import Fault, ModelExpired, MorrowError, OutsideHorizon
from contracts.manifest import (
    NO_PROBE,
    Feed,
    Manifest,
    graph_feed,
)
from contracts.task import Target, Task
from contracts.truth import respell_truths
from service.errors import AnswerNotFinite
from service.models.answer import Answer
from service.models.class_change import find_class_change
from service.models.conformal import DEFAULT_COVERAGE, interval, prediction_set, require_quantile
from service.models.graph_sessions import (
    RateGraph,
    Values,
    by_row,
    run_by_row,
    split_feed,
)
from service.validation.options import PLAIN, Options
from service.validation.question_decoder import AT_OF_QUERY, Questions, Row, lay_out_rows
from service.validation.rules import RowRules
from store.releases import Overlay

# What an answer says besides its values: at, lead, expected_error, error_name, version, trained_until, valid_until.
About = tuple[str, str, float | None, str, str, str, str]


class Question(msgspec.Struct, frozen=True, gc=False):
    """One row of a request, and the moment `at` that it asks about, in microseconds."""

    row: Row
    at: int
    options: Options = PLAIN


def make_question(row: Row, now: int, options: Options = PLAIN) -> Question:
    """The question of a row; it is about `now` if the row has no moment."""
    return Question(row, now if row.at is None else row.at, options)


@dataclass(frozen=True, eq=False, kw_only=True)
class Forecaster:
    """One version that answers, as its manifest and `releases` describe it, whether it is in memory or not.

    `overlay` is what `releases` adds to its manifest. `made_at` is when the registry made it (milliseconds since the
    epoch), None if that is not known.
    """

    version: str
    manifest: Manifest
    task: Task
    overlay: Overlay
    made_at: int | None = None

    @cached_property
    def valid_until(self) -> int:
        """The guard's upper bound, in microseconds."""
        return self.overlay.valid_until

    @cached_property
    def calibration(self) -> Calibration:
        """The newest quantiles, as far as they suit this fit."""
        return raise_quantiles(self.overlay.calibration or self.manifest.calibration, self.manifest.own_scores)

    @cached_property
    def tag(self) -> bytes:
        """Names all that an answer depends on besides its question: the version, its bound and its calibration.

        It is the same in every process, and another one if a Morrow says other things in an answer.
        """
        manifest = msgspec.structs.replace(self.manifest, probe=NO_PROBE)
        facts = (Answer.__struct_fields__, self.task.name, self.version, manifest, self.overlay)
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:24].encode()

    @property
    def batch_size(self) -> int:
        """Rows of a minibatch of the fit; if an old manifest does not name them, the task's recipe does."""
        return self.manifest.batch_size or self.task.training.rows_per_minibatch(self.manifest.num_rows)

    def with_overlay(self, overlay: Overlay) -> Self:
        return replace(self, overlay=overlay)

    def renamed(self, name: str) -> Self:
        """The same version under the present name of its task."""
        return replace(self, task=self.task.model_copy(update={"name": name}))

    def covers(self, at: int) -> bool:
        """Whether the guard lets a moment through."""
        if not self.manifest.trained_from <= at <= self.valid_until:
            return False
        return not (self._gaps and any(begin <= at < end for begin, end in self._gaps))

    @cached_property
    def _gaps(self) -> Sequence[tuple[int, int]]:
        return self.manifest.gaps


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedForecaster(Forecaster):
    """A version in memory: it answers.

    `known` has each category feature with the values that the fit knows, and "" for a missing one. It is empty if the
    graph does not name them.
    """

    rules: RowRules
    session: onnxruntime.InferenceSession
    rates: RateGraph
    errors: dict[int, float]
    known: tuple[tuple[str, frozenset[str]], ...] = ()

    def described(self) -> Forecaster:
        """The same version without what only answering needs."""
        manifest = msgspec.structs.replace(self.manifest, probe=NO_PROBE)
        return Forecaster(
            version=self.version, manifest=manifest, task=self.task, overlay=self.overlay, made_at=self.made_at
        )

    def answer(self, question: Question) -> Answer:
        """The answer to one row.

        Raises OutsideHorizon, ModelExpired, AnswerNotFinite, CoverageUnsupported, RateRefused.
        """
        if question.options.rate:
            return self.answers(lay_out_rows([question.row], AT_OF_QUERY), question.at, question.options)[0]
        quantile = self.admit(question)
        (values,) = self._run(self._feed([question]))
        return self._finish(question, values, quantile)

    def answer_each(self, questions: Sequence[Question]) -> list[Answer | MorrowError]:
        """The answer to each question, or the error that `answer` would raise, by one run of the graph.

        None of the questions may ask for rates.
        """
        verdicts: list[float | MorrowError | None] = []
        for question in questions:
            try:
                verdicts.append(self.admit(question))
            except MorrowError as error:
                verdicts.append(error)
        asked = [one for one, verdict in zip(questions, verdicts, strict=True) if not isinstance(verdict, MorrowError)]
        values = iter(self._run(self._feed(asked)))
        found: list[Answer | MorrowError] = []
        for question, verdict in zip(questions, verdicts, strict=True):
            try:
                if isinstance(verdict, MorrowError):
                    found.append(verdict)
                else:
                    found.append(self._finish(question, next(values), verdict))
            except AnswerNotFinite as error:
                found.append(error)
        return found

    def answers(self, questions: Questions, now: int, options: Options = PLAIN) -> list[Answer]:
        """The answers in the order of the rows; all of them or none. Raises as `answer`."""
        moments = questions.moments(now)
        asked = moments.tolist()
        self._guard(asked, questions.has_at.tolist(), questions.at_field)
        coverage = options.coverage
        quantiles = [] if coverage is None else [self._require_quantile(at, coverage) for at in asked]
        categories = questions.categories
        if self._spellings:
            categories = np.array([*map(self._respell, categories.tolist())], object)
        feed = graph_feed(self.task, moments, questions.numbers, categories)
        values = self._require_finite(self._run(feed))
        about = {at: self._about(at) for at in set(asked)}  # rows of one batch often share a moment
        found = [self._describe(at, given, about[at]) for at, given in zip(asked, values, strict=True)]
        if coverage is not None:
            found = [self._cover(*each, coverage) for each in zip(found, values, quantiles, strict=True)]
        if self._has_unseen(categories):
            found = [*map(self._name_unseen, found, categories.tolist())]
        if options.rate:
            rates = self._require_finite(by_row(self.rates.run(feed)))
            found = [self._move(*each) for each in zip(found, split_feed(feed, 1), asked, rates, strict=True)]
        return found

    def admit(self, question: Question) -> float | None:
        """The quantile of a question's coverage, None if it asks for none. Raises as `answer`."""
        at = question.at
        if not self.covers(at):
            self._guard([at], [question.row.at is not None], AT_OF_QUERY)
        coverage = question.options.coverage
        return None if coverage is None else self._require_quantile(at, coverage)

    def _finish(self, question: Question, values: Values, quantile: float | None) -> Answer:
        if not _is_finite(values):
            raise AnswerNotFinite(self.task.name, self.version)
        answer = self._describe(question.at, values, self._about(question.at))
        coverage = question.options.coverage
        if coverage is not None and quantile is not None:
            answer = self._cover(answer, values, quantile, coverage)
        for value, (_, known) in zip(question.row.categories, self.known, strict=False):
            if value not in known:
                return self._name_unseen(answer, self._respell(question.row.categories))
        return answer

    def _has_unseen(self, categories: NDArray[np.object_]) -> bool:
        """Whether the fit does not know a value in some row `(n, q)`."""
        columns = zip(self.known, categories.T.tolist(), strict=False)
        return not all(known.issuperset(column) for (_, known), column in columns)

    def _name_unseen(self, answer: Answer, categories: Sequence[str]) -> Answer:
        """The answer with the category features whose value the fit does not know, if there are any."""
        unseen = [name for (name, known), value in zip(self.known, categories, strict=True) if value not in known]
        return msgspec.structs.replace(answer, unseen=unseen) if unseen else answer

    def _guard(self, moments: Sequence[int], has_at: Sequence[bool], at_field: str) -> None:
        if self.covers(min(moments)) and self.covers(max(moments)) and not (self._gaps and len(moments) > 1):
            return
        outside = [place for place, at in enumerate(moments) if not self.covers(at)]
        if not outside:
            return
        first = outside[0]
        if not has_at[first] and moments[first] > self.valid_until:
            trained_until, valid_until = self._bounds
            raise ModelExpired(
                f"Version {self.version} was valid until {valid_until}. It was trained until {trained_until}, and a "
                f"question without `at` is about now: ask with at={valid_until} or an earlier moment, or store newer "
                f"events and run `morrow cycle {self.task.name}`."
            )
        error = OutsideHorizon(
            moments[first],
            self.manifest.trained_from,
            self.valid_until,
            self.version,
            task=self.task.name,
            bounds=(format_moment(self.manifest.trained_from), self._bounds[1]),
            gaps=self._gaps,
            say=format_moment,
        )
        error.faults = tuple(Fault(at_field.format(place), error.reason(moments[place])) for place in outside)
        raise error

    def _run(self, feed: Feed) -> list[Values]:
        """The graph's values for each row, finite or not."""
        return run_by_row(self.session, self.manifest.output_names, feed)

    def _feed(self, questions: Sequence[Question]) -> Feed:
        categories: list[Sequence[str]] = [one.row.categories for one in questions]
        if self._spellings:
            categories = [*map(self._respell, categories)]
        return graph_feed(
            self.task,
            np.array([one.at for one in questions], np.int64),
            np.array([one.row.numbers for one in questions], np.float64),
            np.array(categories, object),
        )

    @cached_property
    def _spellings(self) -> dict[int, dict[str, str]]:
        """Places of categories that hold booleans, with other spellings of the two that the fit knows."""
        found = {place: respell_truths(known) for place, (_, known) in enumerate(self.known)}
        return {place: spellings for place, spellings in found.items() if spellings}

    def _respell(self, categories: Sequence[str]) -> Sequence[str]:
        """The categories of a row, with booleans as the fit knows them: clients in Python write `True` for `true`."""
        spelled = list(categories)
        for place, spellings in self._spellings.items():
            spelled[place] = spellings.get(spelled[place], spelled[place])
        return spelled

    def _require_finite(self, found: list[Values]) -> list[Values]:
        if not all(map(_is_finite, found)):
            raise AnswerNotFinite(self.task.name, self.version)
        return found

    def _about(self, at: int) -> About:
        """What an answer says about its moment."""
        age = self._age(at)
        return (
            format_moment(at),
            format_duration(at - self.manifest.cutoff),
            None if age is None else self.errors.get(age),
            self.manifest.error_name,
            self.version,
            *self._bounds,
        )

    def _describe(self, at: int, values: Values, about: About) -> Answer:
        """The answer without requested coverage or rates."""
        classes = self.manifest.classes
        if classes:
            prediction = classes[values.index(max(values))]
            shares = dict(zip(classes, values, strict=True))
            return Answer(self.task.name, prediction, shares, UNSET, UNSET, *about, weights=self._weights)
        mean, scale = values
        if self._bounds_of_target is not None:
            mean = self._bounds_of_target.bound(mean)
        age = self._age(at)
        quantile = None if age is None else self._default_quantiles.get(age)
        usual = None if quantile is None else self._interval(values, quantile)
        return Answer(self.task.name, mean, UNSET, mean, scale, *about, DEFAULT_COVERAGE, usual, weights=self._weights)

    @cached_property
    def _weights(self) -> dict[str, float] | UnsetType:
        """The weights of the experts that every answer names; UNSET if there is one."""
        return self.manifest.weights or UNSET

    @cached_property
    def _bounds(self) -> tuple[str, str]:
        """`trained_until` and `valid_until` of every answer, formatted."""
        return format_moment(self.manifest.cutoff), format_moment(self.valid_until)

    @cached_property
    def _default_quantiles(self) -> dict[int, float]:
        """The quantile of the usual coverage, for each age that supports it."""
        found = {age.age: find_quantile(self.calibration, age.age, DEFAULT_COVERAGE) for age in self.calibration.ages}
        return {age: quantile for age, quantile in found.items() if quantile is not None}

    def _age(self, at: int) -> int | None:
        """Age of the window that holds `at`; None if the fit has rows of that time. The very end has the last age.

        The cutoff is the end of a window, so the newest row may be older. Moments between the two are unseen, and at
        most a window from rows, like those of age 0.
        """
        cutoff, window, newest = self.manifest.cutoff, self.manifest.window, self.manifest.newest
        if at < cutoff:
            return None if newest is None or at <= newest else 0
        return (min(at, self.valid_until - 1) - cutoff) // window

    def _require_quantile(self, at: int, coverage: float) -> float:
        return require_quantile(self.calibration, self._age(at), coverage)

    def _cover(self, answer: Answer, values: Values, quantile: float, coverage: float) -> Answer:
        """The answer with its prediction set or interval."""
        if self.task.is_classification:
            chosen = prediction_set(self.manifest.classes, values, self.manifest.calibration.temperature, quantile)
            return msgspec.structs.replace(answer, coverage=coverage, prediction_set=chosen)
        return msgspec.structs.replace(answer, coverage=coverage, interval=self._interval(values, quantile))

    def _interval(self, values: Values, quantile: float) -> list[float]:
        """The interval of a regression, within the target's bounds."""
        mean, scale = values
        found = interval(mean, scale, quantile)
        return found if self._bounds_of_target is None else [*map(self._bounds_of_target.bound, found)]

    @cached_property
    def _bounds_of_target(self) -> Target | None:
        """The target if it has bounds."""
        return self.task.target if self.task.target.has_bounds else None

    def _move(self, answer: Answer, row: Feed, at: int, rates: Values) -> Answer:
        """The answer with its rates and, if it is a class, the moment of its flip; `row` is the feed of this row."""
        if not self.task.is_classification:
            is_at_bound = answer.mean in (self.task.target.minimum, self.task.target.maximum)
            rate = {"mean": 0.0 if is_at_bound else rates[0], "scale": rates[1]}
            return msgspec.structs.replace(answer, rate=rate)
        classes = self.manifest.classes

        def classes_at(moments: NDArray[np.int64]) -> NDArray[np.intp]:
            repeated = {name: column.repeat(len(moments), 0) for name, column in row.items()}
            shares = np.array(self._require_finite(self._run(repeated | {"at": moments})))
            likeliest: NDArray[np.intp] = shares.argmax(axis=1)
            return likeliest

        # Nothing is answered in a gap, so a change beyond its beginning is not the first that a request can meet.
        until = min([self.valid_until, *(begin - 1 for begin, _ in self._gaps if begin > at)])
        flip = find_class_change(classes_at, classes.index(str(answer.prediction)), at, until)
        return msgspec.structs.replace(
            answer,
            rate=dict(zip(classes, rates, strict=True)),
            flips_at=None if flip is None else format_moment(flip),
        )


def _is_finite(values: Values) -> bool:
    """Whether all values are finite: the 64-bit sum of 32-bit values shows NaN and infinity, faster than NumPy."""
    return math.isfinite(sum(values))
