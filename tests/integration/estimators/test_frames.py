"""X, y and t may be frames of pandas and polars, Arrow tables and arrays: the fit and the answers are the same."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from morrow import estimators as door

from estimators import GIClassifier, GIRegressor, OutsideHorizon

QUICK = {"num_seeds": 1, "width": 8, "num_layers": 1, "calendar": [], "pretrain_epochs": 3, "experts": ["gi"]}
GUARD = {"max_age": 2, "tolerance": 5.0}
COUNT = 600


def make_frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2026-01-01", periods=COUNT, freq="30min", tz="UTC"),
            "x": rng.normal(size=COUNT),
            "zone": pd.Categorical(rng.choice(["1", "2", "3"], COUNT)),
            "is_new": rng.random(COUNT) < 0.5,
        }
    )
    frame.loc[::40, "x"] = np.nan
    return frame


def classifier(**changes: Any) -> GIClassifier:
    given: dict[str, Any] = {"guard": GUARD, "training": QUICK, "device": "cpu", "n_jobs": 1} | changes
    return GIClassifier("P1D", **given)


def labels_of(frame: pd.DataFrame) -> pd.Series:
    return (frame["x"].fillna(0) > 0).astype(int).rename("bought")


@pytest.fixture(scope="module")
def fitted() -> GIClassifier:
    frame = make_frame()
    return classifier().fit(frame, labels_of(frame), "when")


@pytest.mark.parametrize("convert", [pl.from_pandas, lambda frame: pa.Table.from_pandas(frame, preserve_index=False)])
@pytest.mark.filterwarnings("ignore:Series.values:DeprecationWarning")  # how both read moments with a zone
def test_frames_of_other_libraries_give_the_same_fit_and_answers(fitted: GIClassifier, convert: Any) -> None:
    frame = make_frame()
    other = convert(frame)
    labels = pl.Series("bought", labels_of(frame).tolist())
    found = classifier().fit(other, labels, "when")
    assert found._version.files["model.onnx"] == fitted._version.files["model.onnx"]
    assert (found.predict_proba(other, "when") == fitted.predict_proba(frame, "when")).all()


def test_kinds_are_those_that_infer_guesses_and_categories_stay_categories(fitted: GIClassifier) -> None:
    task = fitted._version.task
    assert [(one.name, one.kind, one.optional) for one in task.features] == [
        ("x", "number", True),
        ("zone", "category", False),
        ("is_new", "boolean", False),
    ]
    assert [*fitted.feature_names_in_] == ["x", "zone", "is_new"]


def test_classes_keep_their_type_and_order(fitted: GIClassifier) -> None:
    frame = make_frame()
    assert fitted.classes_.tolist() == [0, 1]
    predicted = fitted.predict(frame, "when")
    assert predicted.dtype == fitted.classes_.dtype
    shares = fitted.predict_proba(frame, "when")
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (fitted.classes_[shares.argmax(axis=1)] == predicted).all()
    assert fitted.score(frame, labels_of(frame), "when") > 0.8


def test_a_backtest_has_a_row_for_each_age(fitted: GIClassifier) -> None:
    errors = fitted.backtest()
    assert errors.index.tolist() == [0, 1]
    assert errors["is_valid"].all()
    assert fitted.horizon_ == 2
    assert (errors["error"] < errors["naive"]).all()
    assert fitted.valid_until_ == fitted.trained_until_ + pd.Timedelta(days=2)
    legend = fitted.plot().axes[0].get_legend()
    assert legend is not None
    assert "horizon: 2 windows" in {text.get_text() for text in legend.get_texts()}


def test_moments_outside_the_horizon_are_refused(fitted: GIClassifier) -> None:
    frame = make_frame().iloc[:2]
    for moment in ("2025-12-31T23:59:59Z", fitted.valid_until_ + pd.Timedelta(seconds=1)):
        with pytest.raises(OutsideHorizon):
            fitted.predict(frame.drop(columns="when"), [moment, moment])
    last = fitted.valid_until_
    assert len(fitted.predict(frame.drop(columns="when"), [last, last])) == 2


def test_a_pickled_fit_answers_alike(fitted: GIClassifier) -> None:
    frame = make_frame()
    copied = pickle.loads(pickle.dumps(fitted))  # noqa: S301  our own
    assert (copied.predict_proba(frame, "when") == fitted.predict_proba(frame, "when")).all()


def test_arrays_have_numbers_of_moments_without_an_offset() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(COUNT, 2))
    t = np.datetime64("2026-01-01", "m") + np.arange(COUNT) * np.timedelta64(30, "m")
    model = GIRegressor("P1D", guard=GUARD, training=QUICK, device="cpu", n_jobs=1).fit(X, 3 * X[:, 0], t)
    assert model.predict(X[:5], t[:5]).shape == (5,)
    assert model.score(X, 3 * X[:, 0], t) > 0.5
    assert [feature.name for feature in model._version.task.features] == ["x0", "x1"]


def test_a_row_that_breaks_a_rule_is_a_value_error_that_names_it(fitted: GIClassifier) -> None:
    frame = make_frame()
    with pytest.raises(ValueError, match=r"features\.zone"):
        fitted.predict(frame.assign(zone=None).astype({"zone": "string"}), "when")
    with pytest.raises(ValueError, match="t is 'at', which is no column of X"):
        fitted.predict(frame, "at")
    with pytest.raises(ValueError, match="NaN"):
        classifier().fit(frame, labels_of(frame).where(frame["x"] > 0), "when")
    words = labels_of(frame).map({0: "no", 1: "yes"})
    for given, said in (("", "label: is empty"), ("n/a", "label: is missing")):
        with pytest.raises(ValueError, match=said):
            classifier().fit(frame, words.where(words.index != 3, given), "when")
    with pytest.raises(ValueError, match="contains None"):
        classifier().fit(frame, [None, *words[1:]], "when")
    with pytest.raises(ValueError, match="too few rows"):
        classifier(guard={"min_rows": 10_000}).fit(frame, labels_of(frame), "when")
    with pytest.raises(ValueError, match=r"guard\.max_ago"):
        classifier(guard={"max_ago": 2}).fit(frame, labels_of(frame), "when")
    with pytest.raises(ValueError, match="X has a column 'x', as y is named"):
        classifier().fit(frame, labels_of(frame).rename("x"), "when")


def test_the_client_names_the_estimators() -> None:
    assert door.GIClassifier is GIClassifier
    assert door.GIRegressor is GIRegressor
