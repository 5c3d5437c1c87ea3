"""`GIClassifier` and `GIRegressor`: a task's whole cycle behind `fit`, and the guard behind `predict`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import structlog
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from cli.file_rows.parquet import read_column
from cli.inferring.task_file import Chosen
from contracts.clock import from_micros
from contracts.errors import CycleError, InvalidInput, OutsideHorizon
from contracts.task import Kind
from contracts.truth import unify_truth
from estimators.fitting import fit_version
from estimators.guessing import guess, read_questions, read_rows
from estimators.tables import AT, LABEL, Table, as_column, is_frame, make_table, name_of, take_moments
from service.models.answer import Answer
from trainer.settings import TrainerSettings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ROWS_PER_PIECE = 10_000

log = structlog.get_logger(__name__)


class _GIEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """What both estimators share. Parameters are keys of a task file; None means what `morrow task infer` writes.

    window      length of a window, such as "P7D"; if None, guessed
    name        of the task; the seeds of its fits follow from it
    kinds       kinds of columns by name, such as {"zone": "category"}; others are guessed
    timezone    of moments without an offset; if None, UTC
    label_delay how long after its moment a label is known, such as "P2D"
    guard       keys of the task's table `guard`, such as {"max_age": 8}
    training    keys of its table `training`, such as {"num_seeds": 8}
    device      "auto", "cpu" or "cuda"
    n_jobs      threads of a fit; if None, as the trainer's settings say
    verbose     whether steps are logged
    """

    def __init__(
        self,
        window: str | None = None,
        *,
        name: str = "notebook",
        kinds: Mapping[str, Kind] | None = None,
        timezone: str | None = None,
        label_delay: str | None = None,
        guard: Mapping[str, object] | None = None,
        training: Mapping[str, object] | None = None,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.window = window
        self.name = name
        self.kinds = kinds
        self.timezone = timezone
        self.label_delay = label_delay
        self.guard = guard
        self.training = training
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _fit(self, X: Any, y: NDArray[Any], t: Any, label: str, label_kind: Kind) -> Self:
        now = datetime.now(UTC)
        table = make_table(X, t, y, at=name_of(t, AT), label=label)
        chosen = Chosen({"label_delay": self.label_delay}, self.guard or {}, self.training or {})
        settings = TrainerSettings().model_copy(
            update={"device": self.device} | ({} if self.n_jobs is None else {"threads": self.n_jobs})
        )
        with _as_value_error():
            self._guessed = guess(
                table,
                self.name,
                label_kind=label_kind,
                window=self.window,
                kinds=self.kinds or {},
                timezone=self.timezone,
                chosen=chosen,
                by=f"{type(self).__name__}.to_task",
                now=now,
            )
            rows = read_rows(table, self._guessed.task, self._guessed.options)
            report = log.info if self.verbose else _ignore
            self._version = fit_version(self._guessed.task, rows, settings, now=now, report=report)
        self._forecaster = self._version.load()
        self._at = table.at
        self.horizon_: int = self._version.verdict.horizon
        self.horizon_reason_: str | None = self._version.verdict.reason
        self.trained_until_: datetime = from_micros(self._version.cutoff)
        self.valid_until_: datetime = from_micros(self._forecaster.valid_until)
        return self

    def _answer(self, X: Any, t: Any) -> Iterator[Answer]:
        """The API's answer to each row. Raises OutsideHorizon, and ValueError for rows that break a rule."""
        X, t = self._take(X, t, is_new=False)
        columns = make_table(X, t, at=self._at).columns
        for start in range(0, len(columns), _ROWS_PER_PIECE):
            piece = Table(columns.slice(start, _ROWS_PER_PIECE), self._at, None)
            with _as_value_error():
                questions = read_questions(piece, self._version.task, self._guessed.options)
                yield from self._forecaster.answers(questions, 0)

    def _take(self, X: Any, t: Any, *, is_new: bool) -> tuple[Any, Any]:
        """X as a frame or an array of two dimensions, and its moments. Raises ValueError."""
        X, t = take_moments(X, t)
        fewest = 2 if is_new else 1
        if is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=is_new)
            if len(X) < fewest:
                raise ValueError(f"X has {len(X)} sample(s), and at least {fewest} are needed")
        else:
            X = validate_data(
                self, X, dtype=None, ensure_all_finite="allow-nan", ensure_min_samples=fewest, reset=is_new
            )
        check_consistent_length(X, t)
        return X, t

    def backtest(self) -> "pd.DataFrame":
        """The errors of past fits by age in windows, as the cycle's matrix has them.

        `error` is the mean over `num_windows` windows, and `low` to `high` the 90 % band of one future window. `growth`
        is the mean increase over a fresh model on the same windows, and `increase` its upper 95 % bound. `reason` says
        why an age is not validated.
        """
        import pandas as pd

        check_is_fitted(self)
        rows = [
            {
                "age": age.age,
                "error": age.mean,
                "low": age.low,
                "high": age.high,
                "naive": age.naive,
                "num_windows": age.num_windows,
                "growth": age.growth,
                "increase": age.increase,
                "allowed": age.allowed,
                "is_valid": age.is_valid,
                "reason": age.reason,
            }
            for age in self._version.ages
        ]
        frame = pd.DataFrame(rows).set_index("age")
        numbers = ["error", "low", "high", "naive", "growth", "increase", "allowed"]
        return frame.astype(dict.fromkeys(numbers, "float64"))

    def plot(self) -> "Figure":
        """The picture of errors by age, with the horizon, as a cycle's run in MLflow shows it."""
        from trainer.plots.matrix import draw_error_by_age

        check_is_fitted(self)
        return draw_error_by_age(self._version.task, self._version.cutoff, self._version.verdict)

    def to_task(self) -> str:
        """The task file that puts the model into production: `morrow task apply FILE`, then an import of the rows."""
        check_is_fitted(self)
        return self._guessed.text

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_version")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_forecaster", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "_version"):
            self._forecaster = self._version.load()


class GIClassifier(ClassifierMixin, _GIEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A classifier that says how long it stays valid. `t` holds the moment of each row."""

    def fit(self, X: Any, y: Any, t: Any) -> Self:
        """Backtest, judge the horizon and fit, as a cycle does. Raises ValueError for rows that break a rule."""
        X, t = self._take(X, t, is_new=True)
        labels = _check_labels(X, y)
        check_classification_targets(labels)
        self.classes_: NDArray[Any] = np.unique(labels)
        self._fit(X, labels, t, name_of(y, LABEL), "category")
        texts = [unify_truth(text) for text in read_column(as_column(self.classes_, "y"), "text")]
        self._places = {text: place for place, text in enumerate(texts)}
        return self

    def predict_proba(self, X: Any, t: Any) -> NDArray[np.float64]:
        """The probability of each of `classes_`, `(n, C)`; 0 for a class that the fit has not seen."""
        check_is_fitted(self)
        found = []
        for answer in self._answer(X, t):
            shares = np.zeros(len(self.classes_))
            for text, share in dict(answer.probabilities or {}).items():
                shares[self._places[text]] = share
            found.append(shares)
        return np.array(found)

    def predict(self, X: Any, t: Any) -> NDArray[Any]:
        """The likeliest class of each row."""
        check_is_fitted(self)
        return self.classes_[[self._places[str(answer.prediction)] for answer in self._answer(X, t)]]

    def score(self, X: Any, y: Any, t: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted."""
        return float(accuracy_score(y, self.predict(X, t), sample_weight=sample_weight))


class GIRegressor(RegressorMixin, _GIEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A regressor that says how long it stays valid. `t` holds the moment of each row."""

    def fit(self, X: Any, y: Any, t: Any) -> Self:
        """Backtest, judge the horizon and fit, as a cycle does. Raises ValueError for rows that break a rule."""
        X, t = self._take(X, t, is_new=True)
        return self._fit(X, _check_labels(X, y).astype(np.float64), t, name_of(y, LABEL), "number")

    def predict(self, X: Any, t: Any) -> NDArray[np.float64]:
        """The prediction for each row, as the API answers it."""
        check_is_fitted(self)
        return np.array([answer.prediction for answer in self._answer(X, t)], np.float64)

    def score(self, X: Any, y: Any, t: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination R² of the predictions."""
        return float(r2_score(y, self.predict(X, t), sample_weight=sample_weight))


def _check_labels(X: Any, y: Any) -> NDArray[Any]:
    """The labels, one for each row of X, none of them missing. Raises ValueError."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    if labels.dtype.kind == "O" and any(label is None for label in labels):
        raise ValueError("Input y contains None.")
    assert_all_finite(labels, input_name="y")
    check_consistent_length(X, labels)
    return labels


@contextmanager
def _as_value_error() -> Iterator[None]:
    """Raise what the engine refuses as ValueError, as scikit-learn's tools expect; OutsideHorizon stays what it is."""
    try:
        yield
    except OutsideHorizon:
        raise
    except (InvalidInput, CycleError) as error:
        raise ValueError(str(error)) from error


def _ignore(_event: str, /, **_facts: object) -> None:
    """Nobody asked to follow the steps."""
