"""What a new revision of a task says of itself: one line for each difference, and whose name it has taken."""

from typing import Any

from contracts.task import Task
from service.advice.task_differences import describe_differences, warn_of_former_name
from service.advice.task_warnings import warn_of_kinds

SPEC: dict[str, Any] = {
    "name": "demand",
    "window": "P14D",
    "schedule": "manual",
    "features": [{"name": "distance", "kind": "number"}, {"name": "carrier", "kind": "category"}],
    "target": {"name": "outcome", "kind": "regression"},
}


def differences(**changes: Any) -> list[str]:
    return describe_differences(Task.model_validate(SPEC), Task.model_validate({**SPEC, **changes}))


def test_a_first_or_equal_revision_has_no_differences() -> None:
    assert describe_differences(None, Task.model_validate(SPEC)) == []
    assert differences() == []


def test_a_mistyped_feature_is_new_and_the_right_one_is_removed() -> None:
    added, removed = differences(features=[{"name": "distanc", "kind": "number"}, SPEC["features"][1]])
    assert added.startswith("feature distanc is new: it counts as missing in all earlier rows; if it is distance under")
    assert removed.startswith("feature distance is removed: the next version does not use its values")


def test_a_feature_that_an_earlier_revision_had_is_back() -> None:
    with_wind = Task.model_validate({**SPEC, "features": [*SPEC["features"], {"name": "wind", "kind": "number"}]})
    without = Task.model_validate(SPEC)
    (back,) = describe_differences(without, with_wind, {"distance": {True}, "carrier": {False}, "wind": {True}})
    assert back.startswith("feature wind is back: rows that were stored with it keep its values")
    (new,) = describe_differences(without, with_wind, {"distance": {True}, "carrier": {False}, "wind": {False}})
    assert new.startswith("feature wind is new: it counts as missing in all earlier rows")


def test_a_changed_window_says_what_follows() -> None:
    (said,) = differences(window="P7D")
    assert said.startswith("window was P14D and is P7D: every window is scored again")
    assert "by the next cycle (morrow cycle demand --again)" in said
    (scheduled,) = describe_differences(
        Task.model_validate({**SPEC, "schedule": "window"}),
        Task.model_validate({**SPEC, "schedule": "window", "window": "P7D"}),
    )
    assert "by the next cycle, whose version is valid for windows of P7D" in scheduled


def test_other_keys_and_keys_of_features_are_named_with_both_values() -> None:
    (tuned,) = differences(training={"tune": True})
    assert tuned == "training.tune was false and is true"
    (optional,) = differences(features=[SPEC["features"][0], {**SPEC["features"][1], "optional": True}])
    assert optional == "feature carrier: optional was false and is true"


def test_a_new_task_with_a_former_name_says_whose_it_was() -> None:
    (said,) = warn_of_former_name("demand", "building")
    assert "demand was the name of the task that is building now" in said
    assert "morrow task delete demand" in said
    assert warn_of_former_name("demand", None) == []


def test_earlier_rows_are_named_only_if_there_are_any() -> None:
    before, after = (
        Task.model_validate(SPEC),
        Task.model_validate(
            {**SPEC, "features": [{"name": "distance", "kind": "category"}, {"name": "wind", "kind": "number"}]}
        ),
    )
    assert warn_of_kinds(before, after)
    assert warn_of_kinds(before, after, None) == []
    assert describe_differences(before, after, None) == [
        "feature distance: kind was number and is category",
        "feature wind is new",
        "feature carrier is removed",
    ]
