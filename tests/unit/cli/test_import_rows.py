import io
import json

import pytest

from cli.file_rows.batches import batches
from cli.file_rows.rows import read_csv
from contracts.errors import InvalidInput
from contracts.task import Feature, Task

CLASSIFICATION = Task.model_validate(
    {
        "name": "trips",
        "features": [
            {"name": "distance", "kind": "number", "optional": True},
            {"name": "carrier", "kind": "category"},
        ],
        "target": {"name": "arrival", "kind": "classification"},
        "window": "P1D",
    }
)
REGRESSION = CLASSIFICATION.model_copy(
    update={"target": CLASSIFICATION.target.model_copy(update={"kind": "regression"})}
)
HEADER = "event_id,at,label,distance,carrier\n"


def read(text: str, task: Task = CLASSIFICATION) -> list[dict[str, object]]:
    return [json.loads(row.line) for row in read_csv(io.BytesIO(text.encode()), task)]


def test_rows_become_events_with_numbers_as_numbers() -> None:
    assert read(HEADER + "a,2026-01-01T00:00:00Z,late,12,UA\n") == [
        {
            "event_id": "a",
            "at": "2026-01-01T00:00:00Z",
            "features": {"distance": 12, "carrier": "UA"},
            "label": "late",
        }
    ]


def test_known_at_is_sent_only_where_it_is_given() -> None:
    first, second = read("event_id,at,known_at,label,distance,carrier\na,T,K,late,1,UA\nb,T,,late,1,UA\n")
    assert first["known_at"] == "K"
    assert "known_at" not in second


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1.50", 1.5), ("-2e3", -2000.0), ("9007199254740993", 9007199254740993), ("", None)],
)
def test_numbers_are_read_as_json_would_say_them(cell: str, value: object) -> None:
    (event,) = read(HEADER + f"a,T,late,{cell},UA\n")
    assert event["features"] == {"distance": value, "carrier": "UA"}


@pytest.mark.parametrize("cell", ["nan", "inf", "1e400", "1_000", "true", "twelve", "9" * 400])
def test_what_is_no_number_is_left_for_the_api_to_refuse(cell: str) -> None:
    (event,) = read(HEADER + f"a,T,late,{cell},UA\n")
    assert event["features"] == {"distance": cell, "carrier": "UA"}


KINDS = CLASSIFICATION.model_copy(
    update={
        "features": tuple(
            Feature.model_validate({"name": name, "kind": kind, "optional": True})
            for name, kind in (("distance", "integer"), ("carrier", "boolean"))
        )
    }
)


@pytest.mark.parametrize(
    ("cell", "value"), [("True", True), ("no", False), ("1", True), ("F", False), ("", None), ("maybe", "maybe")]
)
def test_booleans_are_read_in_every_usual_spelling(cell: str, value: object) -> None:
    (event,) = read(HEADER + f"a,T,late,3,{cell}\n", KINDS)
    assert event["features"] == {"distance": 3, "carrier": value}


@pytest.mark.parametrize("cell", ["True", "TRUE", "true"])
def test_a_boolean_class_or_category_has_one_spelling_unless_the_task_lists_another(cell: str) -> None:
    (event,) = read(HEADER + f"a,T,{cell},2,{cell}\n")
    assert (event["label"], event["features"]) == ("true", {"distance": 2, "carrier": "true"})
    listed = CLASSIFICATION.target.model_copy(update={"classes": (cell, "other")})
    (event,) = read(HEADER + f"a,T,{cell},2,UA\n", CLASSIFICATION.model_copy(update={"target": listed}))
    assert event["label"] == cell


def test_digits_in_a_category_or_a_class_stay_text() -> None:
    (event,) = read(HEADER + "a,T,1,2,007\n")
    assert (event["label"], event["features"]) == ("1", {"distance": 2, "carrier": "007"})


def test_labels_of_a_regression_are_numbers() -> None:
    (event,) = read(HEADER + "a,T,1.5,2,UA\n", REGRESSION)
    assert event["label"] == 1.5


def test_a_byte_order_mark_is_not_part_of_the_first_name() -> None:
    assert len(read("\ufeff" + HEADER + "a,T,late,1,UA\n")) == 1


def test_missing_columns_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"at: is not a column.*carrier: is not a column"):
        read("event_id,label\na,late\n")


def test_a_cell_is_read_without_the_blanks_around_a_number() -> None:
    (event,) = read(HEADER + "a,T,late, 1 ,UA\n")
    assert event["features"] == {"distance": 1, "carrier": "UA"}


def test_batches_keep_order_and_lose_nothing() -> None:
    assert list(batches(range(5), 2)) == [[0, 1], [2, 3], [4]]
