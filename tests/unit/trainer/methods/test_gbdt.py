"""LightGBM as a rival: what it learns, what it must not see, and that it is read back from disk unchanged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from contracts.errors import ArtefactRefused
from contracts.spec.boosting import Boosting
from contracts.task import Task
from store.events.reading.columns import EventColumns
from tests.unit.tiny_events import HOUR, rows, task
from trainer.methods.gbdt import BOOSTER_FILE, Gbdt, answer_gbdt, bound, fit_gbdt, keep_gbdt, read_gbdt, thin

ORIGIN = 20 * HOUR
FEATURES = [{"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}]


def steps(kind: str = "classification", num_rows: int = 2000, seed: int = 0) -> EventColumns:
    """Labels: whether x is above 0, or 3 if it is above 0 and −1 if below; x is sometimes missing."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, ORIGIN, num_rows))
    x = rng.normal(size=(num_rows, 1))
    is_above = x[:, 0] > 0
    if kind == "classification":
        made = rows(at.tolist(), is_above.astype(float).tolist(), ("no", "yes"))
    else:
        made = rows(at.tolist(), (np.where(is_above, 3.0, -1.0) + 0.1 * rng.normal(size=num_rows)).tolist())
    x[rng.random(num_rows) < 0.05] = np.nan
    return replace(made, numbers=x)


def at_x(known: EventColumns, *values: float) -> EventColumns:
    """Rows of the first window after the origin with these values of x."""
    found = known.select(np.arange(len(values)))
    return replace(found, at=np.full(len(values), ORIGIN + HOUR // 2), numbers=np.array(values).reshape(-1, 1))


def fit(spec: Task, known: EventColumns) -> Gbdt:
    return fit_gbdt(spec, known, ORIGIN, seed=1, threads=1)


def test_it_learns_a_step_of_probability() -> None:
    known = steps()
    (probabilities,) = answer_gbdt(fit(task(), known), at_x(known, -1.0, 1.0), 1)
    assert probabilities.shape == (2, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert probabilities[0, 1] < 0.1
    assert probabilities[1, 1] > 0.9


def test_it_learns_a_step_of_a_number_and_the_scale_of_its_noise() -> None:
    known = steps("regression")
    mean, scale = answer_gbdt(fit(task("regression"), known), at_x(known, -1.0, 1.0), 1)
    np.testing.assert_allclose(mean, [-1, 3], atol=0.2)
    # One of 20 rows has no x, and its error is 2.
    expected = np.sqrt(0.95 * 0.1**2 + 0.05 * 2.0**2)
    np.testing.assert_allclose(scale, expected, rtol=0.3)


def test_far_labels_bend_an_absolute_loss_less() -> None:
    """Twenty labels: one is 40 and all others are 0, so their mean is 2."""
    known = steps("regression")
    skewed = replace(known, labels=np.where(np.arange(len(known)) % 20 == 0, 40.0, 0.0))
    means = [
        answer_gbdt(fit(task("regression", training={"regression_loss": loss}), skewed), at_x(skewed, -1.0, 1.0), 1)[0]
        for loss in ("gaussian", "absolute")
    ]
    np.testing.assert_allclose(means[0], 2, atol=0.5)
    assert (means[1] < 1).all()


def test_many_rows_are_thinned_evenly_among_those_that_still_count() -> None:
    known, spec = steps(num_rows=2000), task(training={"boosting": {"half_life": 2}})
    assert thin(spec, known, ORIGIN, 2000) is known
    few = thin(spec, known, ORIGIN, 100)
    assert 80 < len(few) <= 100
    assert few.at[0] >= ORIGIN - 8 * HOUR
    assert np.diff(np.searchsorted(known.at, few.at)).max() <= 9
    half = thin(spec, known, ORIGIN, 1000)  # the last eight hours have fewer rows
    assert (len(half), half.at[0]) == (1000, known.at[0])


def test_a_class_that_is_thinned_out_is_answered_all_the_same() -> None:
    known = steps()
    third = replace(known, classes=("a", "b", "c"), labels=np.where(np.arange(len(known)) == 7, 2, known.labels))
    fitted = fit_gbdt(task(), third, ORIGIN, seed=1, threads=1, most_rows=1000)
    (probabilities,) = answer_gbdt(fitted, at_x(known, -1.0, 1.0), 1)
    assert probabilities.shape == (2, 3)
    assert probabilities[:, 2].max() < 0.1


@pytest.mark.parametrize("num_classes", [0, 2, 3, 10, 100, 1000, 5000])
@pytest.mark.parametrize("most", [500, 16_384])
def test_all_trees_together_have_a_bounded_number_of_leaves(num_classes: int, most: int) -> None:
    for boosting in (Boosting(), Boosting(learning_rate=0.01, num_leaves=1024), Boosting(num_leaves=2)):
        bounded, num_rounds = bound(boosting, num_classes, most)
        num_trees = num_classes if num_classes > 2 else 1
        assert num_rounds * num_trees * bounded.num_leaves <= max(most, 2 * num_trees)
        assert 0 < num_rounds <= round(30 / boosting.learning_rate)
        # What is left still learns: few rounds, each of which counts more.
        assert num_rounds * bounded.learning_rate >= min(5, 0.5 * num_rounds) - 1e-9
        assert bounded.learning_rate >= boosting.learning_rate


def test_usual_trees_of_two_classes_are_not_bounded() -> None:
    assert bound(Boosting(), 2, 16_384) == (Boosting(), 300)


def test_many_classes_get_small_trees_that_learn_them_and_the_log_says_so() -> None:
    known, names = steps(num_rows=4000), tuple(f"c{k}" for k in range(20))
    order = known.numbers[:, 0].argsort().argsort() * len(names) // len(known)
    many = replace(known, classes=names, labels=order.astype(np.int32))
    with capture_logs() as logs:
        bounded = fit_gbdt(task(), many, ORIGIN, seed=1, threads=1, most_leaves=2000)
    trees = bounded.booster.dump_model()["tree_info"]
    assert sum(tree["num_leaves"] for tree in trees) <= 2000
    (told,) = [line for line in logs if line["event"] == "expert.bounded"]
    assert (told["num_classes"], told["num_leaves"], told["num_rounds"]) == (20, 10, 10)
    (probabilities,) = answer_gbdt(bounded, many, 1)
    answered = [bounded.encoder.classes[k] for k in probabilities.argmax(axis=1)]
    assert np.mean([answer == names[k] for answer, k in zip(answered, many.labels, strict=True)]) > 0.95


def test_three_classes_are_answered_by_name() -> None:
    known = steps()
    third = replace(known, classes=("a", "b", "c"), labels=np.where(known.numbers[:, 0] > 1, 2, known.labels))
    fitted = fit(task(), third)
    (probabilities,) = answer_gbdt(fitted, at_x(known, -1.0, 0.5, 2.0), 1)
    assert [fitted.encoder.classes[k] for k in probabilities.argmax(axis=1)] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_fitting_again_gives_the_same_trees(kind: str) -> None:
    known = steps(kind)
    first, second = fit(task(kind), known), fit(task(kind), known)
    assert first.booster.model_to_string() == second.booster.model_to_string()
    assert first.scale == second.scale


def test_it_bends_to_the_newest_rows() -> None:
    known = steps()
    turned = replace(known, labels=np.where(known.at < ORIGIN // 2, known.labels, 1 - known.labels))
    (probabilities,) = answer_gbdt(fit(task(), turned), at_x(known, 1.0), 1)
    assert probabilities[0, 1] < 0.1


def test_categories_never_seen_and_numbers_never_missing_are_answered() -> None:
    known = steps()
    codes = np.random.default_rng(3).integers(0, 2, (len(known), 1)).astype(np.int32)
    known = replace(known, numbers=np.nan_to_num(known.numbers), categories=codes, vocabularies=(("a", "b"),))
    known = replace(known, labels=np.abs(known.labels - codes[:, 0]))
    fitted = fit(task(features=FEATURES), known)
    asked = replace(
        at_x(known, 1.0, 1.0, 1.0, np.nan),
        categories=np.array([[0], [1], [2], [0]], np.int32),
        vocabularies=(("a", "b", "never"),),
    )
    (probabilities,) = answer_gbdt(fitted, asked, 1)
    assert probabilities[0, 1] > 0.9
    assert probabilities[1, 1] < 0.1
    assert np.isfinite(probabilities).all()


@pytest.mark.parametrize("num_rows", [2, 3, 30])
def test_few_rows_give_an_answer_all_the_same(num_rows: int) -> None:
    known = steps(num_rows=num_rows)
    known.labels[:2] = 0, 1
    (probabilities,) = answer_gbdt(fit(task(), known), at_x(known, 1.0), 1)
    assert np.isfinite(probabilities).all()


def test_absurd_values_leave_it_finite() -> None:
    known = steps("regression")
    known.numbers[5], known.labels[7] = 1e300, 1e30
    mean, scale = answer_gbdt(fit(task("regression"), known), at_x(known, 1e308, -1e308), 1)
    assert np.isfinite(mean).all()
    assert np.isfinite(scale).all()


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_what_is_kept_answers_as_before(tmp_path: Path, kind: str) -> None:
    known = steps(kind)
    fitted = fit(task(kind), known)
    keep_gbdt(tmp_path / "0", fitted, "recipe")
    kept = read_gbdt(tmp_path / "0", "recipe")
    asked = at_x(known, -1.0, 0.0, 1.0, np.nan)
    for former, found in zip(answer_gbdt(fitted, asked, 1), answer_gbdt(kept, asked, 1), strict=True):
        np.testing.assert_array_equal(former, found)


def test_a_kept_fit_of_another_recipe_or_with_changed_bytes_is_refused(tmp_path: Path) -> None:
    keep_gbdt(tmp_path / "0", fit(task(), steps()), "recipe")
    with pytest.raises(ArtefactRefused):
        read_gbdt(tmp_path / "0", "another")
    file = tmp_path / "0" / BOOSTER_FILE
    file.write_text(file.read_text().replace("leaf_value=", "leaf_value=1", 1))
    with pytest.raises(ArtefactRefused):
        read_gbdt(tmp_path / "0", "recipe")
    with pytest.raises(ArtefactRefused):
        read_gbdt(tmp_path / "nothing", "recipe")


def drifting(num_rows: int = 4000) -> EventColumns:
    """A label that depends only on whether half of the time has passed."""
    known = steps(num_rows=num_rows)
    return replace(known, labels=(known.at > ORIGIN // 2).astype(np.int32))


def boosted(**changes: object) -> Task:
    return task(training={"calendar": ["day"], "boosting": changes})


@pytest.mark.parametrize("reads_time", [True, False])
def test_it_reads_model_time_as_it_is_set_to(reads_time: bool) -> None:
    known = drifting()
    old = replace(at_x(known, 0.5), at=np.array([ORIGIN // 4]))
    spec = boosted(half_life=1e6, reads_time=reads_time, reads_calendar=False)
    (probabilities,) = answer_gbdt(fit(spec, known), old, 1)
    assert (probabilities[0, 0] > 0.95) == reads_time


@pytest.mark.parametrize("reads_calendar", [True, False])
def test_it_reads_the_calendar_as_it_is_set_to(reads_calendar: bool) -> None:
    day, end = 24 * HOUR, 240 * HOUR
    known = steps(num_rows=4000)
    at = known.at * (end // ORIGIN)
    known = replace(known, at=at, labels=(at % day < day // 2).astype(np.int32))
    morning = replace(at_x(known, 0.5), at=np.array([end + day // 4]))
    spec = boosted(half_life=1e6, reads_calendar=reads_calendar)
    (probabilities,) = answer_gbdt(fit_gbdt(spec, known, end, seed=1, threads=1), morning, 1)
    assert (probabilities[0, 1] > 0.95) == reads_calendar


def test_rows_weigh_less_the_older_they_are() -> None:
    known = drifting()
    half = replace(known, at=np.sort(known.at))
    shares = [
        answer_gbdt(fit(boosted(half_life=half_life, reads_time=False, reads_calendar=False), half), half, 1)[0]
        for half_life in (1e6, 2.0)
    ]
    assert shares[0][:, 1].mean() == pytest.approx(0.5, abs=0.05)
    assert shares[1][:, 1].mean() > 0.9


def test_leaves_and_rates_are_those_that_are_set() -> None:
    fitted = fit(boosted(num_leaves=3, learning_rate=0.05), steps())
    first = fitted.booster.dump_model()["tree_info"][0]
    assert first["num_leaves"] == 3
    assert fitted.booster.params["learning_rate"] == 0.05
