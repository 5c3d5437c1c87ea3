"""A task is refused for the right reasons, and its digests say what may be compared with what."""

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from contracts.spec.spec_values import suggest_name
from contracts.task import Task, Training, read_task, read_training

SPEC: dict[str, Any] = {
    "name": "flights",
    "window": "P7D",
    "features": [{"name": "distance", "kind": "number"}, {"name": "carrier", "kind": "category"}],
    "target": {"name": "late", "kind": "classification", "classes": ["no", "yes"]},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": [{"name": "at", "kind": "number"}]}, "parameters of /predict"),
        ({"features": [{"name": "rate", "kind": "number"}]}, "parameters of /predict"),
        ({"features": [{"name": "a", "kind": "number"}, {"name": "a", "kind": "category"}]}, "differ"),
        ({"features": [{"name": "late", "kind": "number"}]}, "not one of the features"),
        ({"features": [{"name": "../x", "kind": "number"}]}, "letters, digits"),
        ({"name": "../x"}, "letters, digits"),
        ({"features": []}, "at least 1"),
        ({"window": "PT0S"}, "at least one second"),
        ({"window": 604_800}, "ISO 8601 duration"),
        ({"window": "7 days"}, "ISO 8601 duration"),
        ({"offset": "01:00:00"}, "ISO 8601 duration"),
        ({"window": "P40000D"}, "at most a hundred years"),
        ({"label_delay": "P999999999D"}, "less than or equal to 36525 days"),
        ({"target": {"name": "late", "kind": "classification", "classes": ["a", "b\x00"]}}, "control character"),
        ({"windows": "P7D"}, "Extra inputs"),
        ({"features": [{"name": "air temp (°C)", "kind": "number"}]}, "name it air_temp_C"),
        ({"features": [{"name": "x", "kind": "float"}]}, 'write kind = "number"'),
        ({"features": [{"name": "x", "kind": "Boolean"}]}, 'write kind = "boolean"'),
        ({"features": [{"name": "x", "kind": "vector"}]}, "one of number, integer, boolean, category"),
        ({"target": {"name": "y", "kind": "classification", "minimum": 0}}, "regression target only"),
        ({"target": {"name": "y", "kind": "regression", "minimum": 1, "maximum": 1}}, "1 is not below maximum 1"),
        ({"target": {"name": "late", "kind": "regression", "classes": ["a", "b"]}}, "classification target only"),
        ({"target": {"name": "late", "kind": "classification", "classes": ["a", "a"]}}, "at least two"),
        ({"guard": {"tolerance": float("nan")}}, "finite"),
        ({"training": {"time_linear": 9}}, "at most time_width"),
        ({"training": {"num_trelu": 3}}, "at most num_layers"),
        ({"training": {"pretrain_epochs": 0, "finetune_epochs": 0}}, "at least one epoch"),
    ],
)
def test_a_task_that_breaks_a_rule_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Task.model_validate(SPEC | change)


def test_the_recipe_changes_with_what_shapes_a_fit_and_with_nothing_else() -> None:
    recipe = Task.model_validate(SPEC).recipe
    assert Task.model_validate(SPEC | {"schedule": "manual"}).recipe == recipe
    assert Task.model_validate(SPEC | {"guard": {"tolerance": 0.2}}).recipe == recipe
    assert Task.model_validate(SPEC | {"training": {"width": 32}}).recipe != recipe
    assert Task.model_validate(SPEC | {"window": "P14D"}).recipe != recipe


@pytest.mark.parametrize(
    ("num_rows", "expected"), [(1, 32), (1_023, 32), (1_024, 64), (10_000, 512), (16_384, 1024), (10_000_000, 1024)]
)
def test_a_recipe_without_a_batch_size_goes_by_the_rows_of_the_fit(num_rows: int, expected: int) -> None:
    assert Training().rows_per_minibatch(num_rows) == expected
    assert Training(batch_size=200).rows_per_minibatch(num_rows) == 200


def test_rows_that_no_epoch_visits_make_no_larger_minibatches() -> None:
    assert Training(rows_per_epoch=4_096).rows_per_minibatch(10_000_000) == Training().rows_per_minibatch(4_096)


def test_fits_on_different_numbers_of_rows_share_a_recipe_and_those_of_a_set_size_another() -> None:
    unset, former = (Task.model_validate(SPEC | {"training": training}) for training in ({}, {"batch_size": 1024}))
    assert unset.recipe != former.recipe
    # What was stored while 1,024 was the default says so in full, and goes on as it was.
    assert former.model_dump(mode="json")["training"]["batch_size"] == 1024
    assert Task.model_validate(former.model_dump(mode="json")).recipe == former.recipe


@pytest.mark.parametrize(("setting", "other"), [("label_form", "log"), ("number_form", "quantile")])
def test_a_setting_that_was_added_changes_no_recipe_that_does_not_name_it(setting: str, other: str) -> None:
    plain, changed = ({"training": {setting: value}} for value in ("plain", other))
    task = read_task(SPEC)
    assert read_task(SPEC | plain).recipe == task.recipe != read_task(SPEC | changed).recipe
    spec = json.loads(task.model_dump_json(exclude={"name", "schedule", "guard"}))
    assert (spec["training"].pop("label_form"), spec["training"].pop("number_form")) == ("plain", "plain")
    assert spec["training"].pop("experts") == ["gi"]
    assert spec["training"].pop("pretrain_steps") is None
    assert hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16] == task.recipe


def test_a_new_task_mixes_and_a_stored_one_keeps_the_network_that_it_was_trained_with() -> None:
    new, stored = Task.model_validate(SPEC), read_task(SPEC)
    assert (new.training.experts, stored.training.experts) == ("auto", ("gi",))
    assert new.recipe != stored.recipe
    # What says so in full reads back as itself, on both sides.
    for task in (new, stored):
        assert read_task(task.model_dump(mode="json")) == task
    assert read_training({}).experts == ("gi",)


def test_the_row_schema_changes_with_the_columns_only() -> None:
    row_schema = Task.model_validate(SPEC).row_schema
    assert Task.model_validate(SPEC | {"training": {"width": 32}}).row_schema == row_schema
    assert Task.model_validate(SPEC | {"features": SPEC["features"][:1]}).row_schema != row_schema


def test_a_stored_spec_reads_back_as_the_same_task() -> None:
    task = Task.model_validate(SPEC | {"offset": "P5D", "label_delay": "PT6H"})
    assert Task.model_validate(task.model_dump(mode="json")) == task
    assert task.clock.offset == 5 * 86_400_000_000


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("prix-unitaire", "prix_unitaire"),
        ("Größe", "Grosse"),
        ("Ærø", "AEro"),
        ("2nd floor", "x_2nd_floor"),
        ("at", "at_"),
        ("天气", "x"),
        ("é" * 100, "e" * 63),
        (" _id ", "id"),
    ],
)
def test_a_column_of_a_file_gets_the_name_that_resembles_it(text: str, name: str) -> None:
    assert suggest_name(text) == name
    assert Task.model_validate(SPEC | {"features": [{"name": name, "kind": "number"}]}).features[0].name == name


def test_integers_and_booleans_stand_among_the_numbers() -> None:
    kinds = ("category", "boolean", "number", "integer")
    task = Task.model_validate(SPEC | {"features": [{"name": kind, "kind": kind} for kind in kinds]})
    assert [feature.name for feature in task.numbers] == ["boolean", "number", "integer"]
    assert [feature.name for feature in task.categories] == ["category"]


def test_bounds_of_a_target_change_neither_rows_nor_fits_and_are_written_only_if_set() -> None:
    plain = Task.model_validate(SPEC | {"target": {"name": "delay", "kind": "regression"}})
    bounded = Task.model_validate(SPEC | {"target": {"name": "delay", "kind": "regression", "minimum": 0}})
    assert (plain.recipe, plain.row_schema) == (bounded.recipe, bounded.row_schema)
    assert set(plain.model_dump(mode="json")["target"]) == {"name", "kind", "classes"}
    assert bounded.model_dump(mode="json")["target"]["minimum"] == 0
    assert Task.model_validate(bounded.model_dump(mode="json")) == bounded
    assert [bounded.target.bound(value) for value in (-0.5, 0.0, 7.0)] == [0.0, 0.0, 7.0]


def test_views_make_another_recipe_and_plain_ones_are_not_written() -> None:
    plain, diverse = (Task.model_validate(SPEC | {"training": {"views": views}}) for views in (["plain"], ["last_day"]))
    assert Task.model_validate(SPEC).recipe == plain.recipe != diverse.recipe
    assert "views" not in plain.model_dump(mode="json")["training"]
    assert read_task(json.loads(diverse.model_dump_json())).training.views == ("last_day",)
    with pytest.raises(ValidationError, match="views"):
        Task.model_validate(SPEC | {"training": {"views": []}})


def test_a_stored_spec_means_what_it_meant_when_defaults_were_others() -> None:
    new, stored = Task.model_validate(SPEC).training, read_task(SPEC).training
    assert (new.number_form, new.regression_loss) == ("piecewise", "absolute")
    assert (stored.number_form, stored.label_form, stored.regression_loss) == ("plain", "plain", "gaussian")
    assert read_training({"number_form": "quantile"}).number_form == "quantile"


@pytest.mark.parametrize("stored", [None, [], "flights", {}, {"training": 3}, SPEC | {"training": [1]}])
def test_a_stored_spec_that_is_none_is_refused(stored: object) -> None:
    with pytest.raises(ValueError, match="Task"):
        read_task(stored)


def test_digests_of_tasks_that_are_stored_stay_the_same() -> None:
    task = read_task(SPEC)
    assert (task.recipe, task.row_schema) == ("ba9e7d5fa6faaa49", "b999bcfbe1ee7966")
