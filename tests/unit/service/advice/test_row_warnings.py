"""What the status warns of, as far as the newest rows decide it."""

import math
from typing import Any

import pytest

from contracts.quality.far_values import FarLabels
from contracts.task import Task
from service.advice.row_warnings import warn_of_classes, warn_of_far_rows, warn_of_rows
from service.advice.task_warnings import warn_of_kinds
from store.events.far_rows import FarRows
from store.events.sample import Sample

CLASSES = {"name": "rented", "kind": "classification"}


def a_task(kind: str = "number", target: dict[str, Any] | None = None) -> Task:
    features = [{"name": "weather", "kind": kind, "optional": True}]
    return Task.model_validate({"name": "bikes", "window": "P7D", "features": features, "target": target or CLASSES})


def of_numbers(*values: float) -> Sample:
    numbers = [(values[place % len(values)],) for place in range(200)]
    return Sample(["a"] * 200, numbers, [()] * 200)


def of_labels(*labels: str) -> Sample:
    return Sample(labels, [(1.5,)] * len(labels), [()] * len(labels))


def of_categories(*texts: str) -> Sample:
    return Sample(["a"] * len(texts), [()] * len(texts), [(text,) for text in texts])


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ((1.0, 2.0, 3.0, math.nan), 'kind = "category" if they are codes, kind = "integer"'),
        ((0.0, 1.0), 'kind = "boolean" if they mean false and true'),
    ],
)
def test_a_number_of_few_whole_values_is_warned_of(values: tuple[float, ...], remedy: str) -> None:
    (warning,) = warn_of_rows(a_task(), of_numbers(*values))
    assert "weather is of kind number" in warning
    assert remedy in warning
    assert warn_of_rows(a_task("integer"), of_numbers(*values)) == []


@pytest.mark.parametrize("values", [(1.0, 2.5), (1.0,), tuple(map(float, range(40))), (math.nan,)])
def test_a_number_that_looks_like_one_is_not_warned_of(values: tuple[float, ...]) -> None:
    assert warn_of_rows(a_task(), of_numbers(*values)) == []


@pytest.mark.parametrize("labels", [("True", "true"), ("no ", "no"), ("New York", "new  york")])
def test_classes_that_differ_in_case_or_blanks_only_are_warned_of(labels: tuple[str, ...]) -> None:
    (warning,) = warn_of_rows(a_task(), of_labels(*labels, "other"))
    assert "classes that differ in case or blanks only" in warning
    assert all(repr(label) in warning for label in labels)
    assert warn_of_rows(a_task(), of_labels("true", "false")) == []


def test_listed_classes_are_compared_with_stored_ones() -> None:
    task = a_task(target=CLASSES | {"classes": ["yes", "no"]})
    assert warn_of_classes(task) == []
    assert warn_of_classes(task, ["Yes"])
    assert warn_of_classes(a_task(target=CLASSES | {"classes": ["yes", "Yes"]}))


def test_categories_that_differ_in_case_only_or_mean_a_missing_value_are_warned_of() -> None:
    alike, missing = warn_of_rows(a_task("category"), of_categories("North", "north", "nan"))
    assert "feature weather: categories that differ" in alike
    assert "'nan' counts like any other of its categories" in missing
    assert "optional = true" not in missing  # the feature is optional already
    required = Task.model_validate(a_task("category").model_dump() | {"features": [{"name": "w", "kind": "category"}]})
    assert "set optional = true and send null" in warn_of_rows(required, of_categories("nan"))[0]


def test_rows_that_spell_a_text_differently_are_mended_by_their_import() -> None:
    (warning,) = warn_of_rows(a_task("category"), of_categories("North", "north"))
    assert "morrow events retract bikes --import ID" in warning
    assert "morrow events history bikes lists them" in warning
    assert "morrow events show bikes ID > event.json" in warning
    assert "morrow events correct bikes event.json" in warning


def test_of_many_spellings_three_groups_of_three_are_named_and_the_rest_counted() -> None:
    cities = ("berlin", "paris", "rome", "oslo", "wien")
    spellings = [text for city in cities for text in (city, city.upper(), city.title(), f" {city}", f"{city} ")]
    (warning,) = warn_of_rows(a_task("category"), of_categories(*spellings))
    assert warning.count("' and 2 more") == 3
    assert "; and 2 more such groups." in warning
    assert warning.count("erlin") == 3 - warning.count("BERLIN")
    assert len(warning) < 600


def test_labels_that_may_stand_for_missing_ones_name_the_option_that_says_so() -> None:
    far = FarRows(None, None, FarLabels(3, 200, (-200.0,), 0.0, 50.0))
    (warning,) = warn_of_far_rows(a_task(target={"name": "rented", "kind": "regression"}), far)
    assert warning.endswith("and import the file again with --missing=-200")
    assert "morrow events retract bikes --import ID" in warning
    assert "Unless a feature predicts them" in warning


def test_a_class_that_means_an_unknown_label_is_warned_of() -> None:
    (warning,) = warn_of_rows(a_task(), of_labels("yes", "nan"))
    assert "'nan' counts like any other of its classes" in warning
    assert "morrow events erase" in warning


def test_numbers_of_a_regression_are_not_compared_as_texts() -> None:
    task = a_task(target={"name": "rented", "kind": "regression"})
    assert warn_of_rows(task, of_labels("1.0", "2.0")) == []


def test_labels_that_count_are_warned_of_while_predictions_may_be_negative() -> None:
    counts = [repr(float(place % 7)) for place in range(200)]
    target = {"name": "rented", "kind": "regression"}
    (warning,) = warn_of_rows(a_task(target=target), of_labels(*counts))
    assert "set minimum = 0 under [target]" in warning
    for bounded in ({"minimum": 0}, {"maximum": 9}):
        assert warn_of_rows(a_task(target=target | bounded), of_labels(*counts)) == []
    for others in (["-1.0"], ["0.5"]):
        assert warn_of_rows(a_task(target=target), of_labels(*counts, *others)) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("number", "category", "count as missing"),
        ("category", "boolean", "count as missing"),
        ("number", "integer", "keep their values"),
    ],
)
def test_a_changed_kind_is_warned_of_with_what_happens_to_earlier_rows(before: str, after: str, words: str) -> None:
    (warning,) = warn_of_kinds(a_task(before), a_task(after))
    assert f"weather was of kind {before} and is of kind {after} now" in warning
    assert words in warning
    assert warn_of_kinds(a_task(after), a_task(after)) == warn_of_kinds(None, a_task(after)) == []


def test_a_kind_that_returns_finds_its_values_again() -> None:
    (warning,) = warn_of_kinds(a_task("category"), a_task("integer"), {"weather": {True, False}})
    assert warning.endswith(
        "rows that were stored with numbers keep their values, and those with texts count as missing"
    )
