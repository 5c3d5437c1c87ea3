"""The graph of LightGBM's trees answers as LightGBM does, on odd values too."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.manifest import graph_feed
from contracts.task import Feature, Task
from store.events.reading.columns import EventColumns
from tests.unit.trainer.export.exported_network import CATEGORIES, CUTOFF, DAY, NUMBERS, make_rows, make_task
from trainer.data.encoder import Encoder
from trainer.export.onnx_builder import DOUBLE, FLOAT, INT64, STRING, GraphBuilder, rows_of
from trainer.export.opened_artefact import open_graph, raw_categories
from trainer.export.tree_graph import add_trees, cut_to
from trainer.methods.gbdt import Gbdt, answer_gbdt, fit_gbdt

HOUR = DAY // 24


def learnable(task: Task, num_rows: int, seed: int = 0, num_classes: int = 3) -> EventColumns:
    """Rows on the hour whose labels depend on every input: numbers, missing ones, categories, age and hour."""
    rows = make_rows(task, num_rows, seed)
    at = rows.at // HOUR * HOUR
    score = np.sin(at % DAY / DAY * 2 * np.pi) + (at > CUTOFF - 100 * DAY)
    if task.numbers:
        score += (rows.numbers[:, 0] > 20) + np.where(np.isnan(rows.numbers[:, -1]), 2.0, rows.numbers[:, -1] > -1e6)
    if task.categories:
        score += rows.categories[:, 0] % 3 + (rows.categories[:, -1] == 1)
    rows = replace(rows, at=at)
    if not task.is_classification:
        return replace(rows, labels=5e4 + 300 * score)
    ranks = score.argsort().argsort() * num_classes // num_rows
    return replace(rows, labels=ranks.astype(np.int32), classes=rows.classes[:num_classes])


def fitted(task: Task, rows: EventColumns) -> Gbdt:
    return fit_gbdt(task, rows, CUTOFF, seed=0, threads=1)


def quick_task(features: tuple[Feature, ...] = NUMBERS + CATEGORIES, kind: str = "classification") -> Task:
    """A task whose trees are few: a rate of 0.5 allows 60 rounds."""
    training = {"boosting": {"learning_rate": 0.5}}
    return Task.model_validate(make_task(features, kind).model_dump() | {"training": training})


@cache
def usual_fit(kind: str = "classification") -> tuple[Task, Gbdt]:
    """A task of two numbers and two categories, and a fit of it."""
    task = quick_task(kind=kind)
    return task, fitted(task, learnable(task, 2000))


def of_graph(fit: Gbdt, task: Task, rows: EventColumns) -> NDArray[np.float64]:
    """What the graph of the trees answers: probabilities, or means in the label's unit."""
    graph = GraphBuilder()
    classes, answer = len(fit.encoder.classes), add_trees(graph, fit)
    graph.output(answer if classes else graph.add("Squeeze", answer, np.array([0])), "answer")
    inputs = [rows_of("at", INT64)]
    inputs += [rows_of("numbers", DOUBLE, len(task.numbers))] if task.numbers else []
    inputs += [rows_of("categories", STRING, len(task.categories))] if task.categories else []
    outputs = [rows_of("answer", FLOAT, classes) if classes else rows_of("answer", DOUBLE, 1)]
    session = open_graph(graph.build(inputs, outputs).SerializeToString())
    feed = graph_feed(task, rows.at, rows.numbers, raw_categories(rows))
    (found,) = session.run(None, feed)
    return found.astype(np.float64) if classes else fit.encoder.label_unit.means(found[:, 0])


def assert_same(fit: Gbdt, task: Task, rows: EventColumns) -> None:
    expected = answer_gbdt(fit, rows, 1)[0]
    unit = 1.0 if task.is_classification else fit.encoder.label_unit.scale
    np.testing.assert_allclose(of_graph(fit, task, rows) / unit, expected / unit, rtol=1e-6, atol=1e-6)
    assert np.ptp(expected / unit) > 0.1, "the trees have learned nothing, so the test shows nothing"


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("features", [NUMBERS, CATEGORIES, NUMBERS[:1] + CATEGORIES[:1], NUMBERS + CATEGORIES])
def test_trees_answer_new_rows_as_lightgbm_does(features: tuple[Feature, ...], kind: str) -> None:
    task = quick_task(features, kind)
    fit = fitted(task, learnable(task, 2000))
    for seed in (1, 2):
        rows = learnable(task, 500, seed)
        assert_same(fit, task, replace(rows, at=rows.at + seed * 100 * DAY + seed))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_trees_answer_as_many_classes_as_they_know(num_classes: int) -> None:
    task = quick_task()
    known = learnable(task, 2000, num_classes=num_classes)
    assert_same(fitted(task, known), task, learnable(task, 300, 3, num_classes))


def thresholds(encoder: Encoder, fit: Gbdt, number: int) -> NDArray[np.float64]:
    """Every threshold of a number in the trees."""
    column = len(encoder.vocabularies) + number
    splits = fit.booster.trees_to_dataframe()
    chosen = splits["split_feature"] == f"Column_{column}"
    return np.unique(splits.loc[chosen, "threshold"].to_numpy(np.float64))


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_value_on_a_threshold_and_its_neighbours_fall_on_the_sides_that_lightgbm_says(kind: str) -> None:
    task, fit = usual_fit(kind)
    for number in range(len(NUMBERS)):
        at_split = thresholds(fit.encoder, fit, number)
        values = np.concatenate([at_split, np.nextafter(at_split, np.inf), np.nextafter(at_split, -np.inf)])
        rows = learnable(task, len(values), 4)
        numbers = rows.numbers.copy()
        numbers[:, number] = values
        assert_same(fit, task, replace(rows, numbers=numbers))


@pytest.mark.parametrize("value", [np.nan, 0.0, -0.0, 1e300, -1e300, 5e-324, -1e6, -1.0])
@pytest.mark.parametrize("number", [0, 1])
def test_missing_and_far_values_are_answered_alike_whether_the_fit_had_missing_ones_or_not(
    number: int, value: float
) -> None:
    task, fit = usual_fit()
    rows = learnable(task, 400, 5)
    numbers = rows.numbers.copy()
    numbers[:, number] = value
    assert_same(fit, task, replace(rows, numbers=numbers))


def test_categories_that_the_fit_never_saw_and_missing_ones_are_answered_as_rare_ones() -> None:
    task, fit = usual_fit()
    rows = learnable(task, 400, 6)
    vocabularies = tuple(("", *(f"new {value}" for value in known[1:])) for known in rows.vocabularies)
    assert_same(fit, task, replace(rows, vocabularies=vocabularies))


def test_hours_whose_sines_differ_in_their_last_bit_alone_are_one_hour_to_the_trees() -> None:
    """At noon the sine is 1e-16 and at midnight it is 0: another sine may give 0 for both."""
    task = quick_task(NUMBERS)
    rows = learnable(task, 2000)
    is_noon = rows.at % DAY == DAY // 2
    fit = fitted(task, replace(rows, labels=is_noon.astype(np.int32)))
    hours = CUTOFF + np.arange(200 * 24) * HOUR
    assert_same(fit, task, replace(learnable(task, len(hours), 7), at=hours))


@cache
def many_categories(count: int, num_rows: int = 4000) -> tuple[Task, EventColumns, Gbdt]:
    """A task of one feature with `count` categories, each with an effect of its own; its rows, and a fit of them."""
    task = quick_task(CATEGORIES[:1])
    random = np.random.default_rng(0)
    known = learnable(task, num_rows)
    names = ("", *(f"c{k}" for k in range(count)))
    codes = random.integers(1, len(names), (len(known), 1)).astype(np.int32)
    effects = random.normal(size=len(names))
    labels = (effects[codes[:, 0]] + 0.5 * random.normal(size=len(known)) > 0).astype(np.int32)
    rows = replace(known, vocabularies=(names,), categories=codes, labels=labels, classes=("no", "yes"))
    return task, rows, fitted(task, rows)


def size_of(fit: Gbdt) -> int:
    """The bytes of the graph of the trees."""
    graph = GraphBuilder()
    graph.output(add_trees(graph, fit), "answer")
    inputs = [rows_of("at", INT64), rows_of("categories", STRING, 1)]
    return len(graph.build(inputs, [rows_of("answer", FLOAT, 2)]).SerializeToString())


def test_many_categories_ask_for_sets_of_them() -> None:
    task, rows, fit = many_categories(60)
    splits = fit.booster.trees_to_dataframe()
    assert splits["threshold"].astype(str).str.contains("||", regex=False).any()
    assert_same(fit, task, rows)


def test_wide_tables_of_sets_take_a_byte_an_entry_and_answer_alike() -> None:
    task, rows, fit = many_categories(400, 40_000)
    sets = {str(node["threshold"]) for tree in fit.booster.dump_model()["tree_info"] for node in decisions(tree)}
    assert len(sets) * 400 > 1 << 15
    assert size_of(fit) < 8 * len(sets) * 400
    assert_same(fit, task, rows)


def decisions(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """The decisions of a tree that ask for categories."""
    found, waiting = [], [tree["tree_structure"]]
    for node in waiting:
        waiting += [node[child] for child in ("left_child", "right_child") if child in node]
        found += [node] if node.get("decision_type") == "==" else []
    return found


@pytest.mark.parametrize("most_bytes", [1, 8_000, 12_000])
def test_a_graph_is_cut_to_a_size_after_a_whole_round(most_bytes: int) -> None:
    task, rows, fit = many_categories(60)
    kept = cut_to(fit, most_bytes)
    num_rounds = kept.booster.current_iteration()
    assert 1 <= num_rounds < fit.booster.current_iteration()
    assert size_of(kept) < 1.3 * most_bytes or num_rounds == 1
    assert kept.booster.num_trees() == num_rounds * fit.booster.num_model_per_iteration()
    expected = fit.booster.predict(np.ones((1, 8)), num_iteration=num_rounds)
    np.testing.assert_allclose(kept.booster.predict(np.ones((1, 8))), expected)
    if num_rounds > 1:
        assert_same(kept, task, rows)


def test_a_small_graph_is_kept_whole() -> None:
    _, _, fit = many_categories(60)
    assert cut_to(fit, 1 << 22) is fit


def test_a_deep_tree_is_exported() -> None:
    """Each split cuts off one value, so the tree is as deep as it has leaves."""
    training = {"calendar": (), "boosting": {"num_leaves": 1024, "min_rows": 1, "learning_rate": 1}}
    task = Task.model_validate(make_task(NUMBERS[:1], "regression").model_dump() | {"training": training})
    rows = learnable(task, 3000)
    values = np.arange(3000.0)
    numbered = replace(rows, numbers=values[:, None], labels=1.005**values)
    fit = fitted(task, numbered)
    assert fit.booster.trees_to_dataframe()["node_depth"].max() > 20
    assert_same(fit, task, numbered)
