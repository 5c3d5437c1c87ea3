"""Moments, values, ids and frames of every library, as the client sends them."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from morrow import (
    Event,
    NaiveMoment,
    OutsideHorizon,
    to_events,
)
from morrow.testing import FakeMorrow

from tests.unit.client.replies import NOON, answering


class Region(str, Enum):  # noqa: UP042
    """Texts with names."""

    NORTH = "north"


MOMENTS: dict[str, Any] = {
    "UTC": NOON,
    "another zone": datetime(2026, 1, 5, 14, tzinfo=timezone(timedelta(hours=2))),
    "a text": "2026-01-05T12:00:00Z",
    "pandas": pd.Timestamp("2026-01-05T13:00", tz="Europe/Berlin"),
    "NumPy": np.datetime64("2026-01-05T13:00:00.000000000"),
    "without a zone": datetime(2026, 1, 5, 13),  # noqa: DTZ001
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_moments_of_every_library_are_the_same_moment(fake: FakeMorrow, moment: Any) -> None:
    with fake.client(timezone=ZoneInfo("Europe/Berlin")) as client:
        assert client.predict("sales", {}, moment).at == NOON


def test_a_moment_without_a_zone_is_refused_before_it_is_sent(fake: FakeMorrow) -> None:
    with fake.client() as client, pytest.raises(NaiveMoment, match="timezone="):
        client.predict("sales", {}, datetime(2026, 1, 5, 13))  # noqa: DTZ001


VALUES: dict[str, tuple[Any, Any]] = {
    "int64": (np.int64(3), 3),
    "float32": (np.float32(0.5), 0.5),
    "bool_": (np.bool_(True), True),
    "str_": (np.str_("a"), "a"),
    "array of none": (np.array(2.5), 2.5),
    "longdouble": (np.longdouble(1.5), 1.5),
    "a member of an enumeration": (Region.NORTH, "north"),
    "Decimal": (Decimal("1.25"), 1.25),
    "NaN": (math.nan, None),
    "NumPy's NaN": (np.float32("nan"), None),
    "NA": (pd.NA, None),
    "NaT": (pd.NaT, None),
    "masked": (np.ma.masked, None),
    "None": (None, None),
}


@pytest.mark.parametrize(("value", "sent"), VALUES.values(), ids=VALUES)
def test_values_of_every_library_are_sent_as_json(fake: FakeMorrow, value: Any, sent: Any) -> None:
    with fake.client() as client:
        client.upload("sales", [Event(event_id="a", at=NOON, features={"x": value}, label=1)])
    features = fake.tasks["sales"].events["a"]["features"]
    assert features == ({} if sent is None else {"x": sent})
    assert [type(one) for one in features.values()] == [type(sent)] * len(features)


@pytest.mark.parametrize(
    "value",
    [math.inf, [1, 2], object(), np.array([1.0, 2.0]), np.datetime64("2026-01-01", "ns"), np.timedelta64(5, "ns")],
)
def test_a_value_that_is_no_feature_is_named_before_it_is_sent(fake: FakeMorrow, value: Any) -> None:
    with fake.client() as client, pytest.raises(TypeError, match=r"event a: x: "):
        client.upload("sales", [Event(event_id="a", at=NOON, features={"x": value}, label=1)])


FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "Arrow": pa.table,
    "mappings": lambda columns: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
}
COLUMNS = {"event_id": ["a", "b"], "at": [NOON, NOON], "price": [1.5, None], "label": [1.0, 2.0]}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_frames_become_events_and_questions(fake: FakeMorrow, make: Callable[..., Any]) -> None:
    frame = make(COLUMNS)
    with fake.client() as client:
        assert client.upload("sales", to_events(frame)).created == 2
        stored = fake.tasks["sales"].events
        assert [one["features"] for one in stored.values()] == [{"price": 1.5}, {}]
        assert [
            one.prediction for one in client.predict_many("sales", make({"at": [NOON, NOON], "price": [1.5, None]}))
        ] == [1, 0]


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_predictions_are_added_to_a_frame(fake: FakeMorrow, name: str) -> None:
    frame = FRAMES[name]({"at": [NOON, NOON], "price": [1.5, None]})
    if name == "pandas":
        frame.index = ["x", "y"]
    with fake.client() as client:
        found = client.predict_frame("sales", frame)
    assert type(found) is type(frame)
    assert list(found["prediction"]) == [1, 0]
    assert list(found.columns) == ["at", "price", "prediction", "expected_error", "valid_until", "version"]
    assert name == "polars" or list(found.index) == ["x", "y"]


def test_a_frame_of_classes_gets_the_probability_of_each_prediction_unless_it_has_such_a_column(
    fake: FakeMorrow,
) -> None:
    fake.add_task("churn", lambda features, _: {"yes": features["risk"], "no": 1 - features["risk"]})
    frame = pd.DataFrame({"at": [NOON, NOON], "risk": [0.75, 0.25]})
    with fake.client() as client:
        found = client.predict_frame("churn", frame)
        assert [*zip(found["prediction"], found["probability"], strict=True)] == [("yes", 0.75), ("no", 0.75)]
        own = client.predict_frame("churn", frame.assign(probability=[9, 9]))
    assert list(own["probability"]) == [9, 9]


def test_a_frame_lists_the_unseen_categories_of_each_row_unless_it_has_such_a_column() -> None:
    fields = {"lead": "PT0S", "expected_error": None, "error_name": "mae", "version": "1", "task": "sales"}
    moments = dict.fromkeys(("at", "trained_until", "valid_until"), NOON.isoformat())
    rows = [{**fields, **moments, "id": "", "prediction": 1.0, **more} for more in ({"unseen": ["shop"]}, {})]
    frame = pd.DataFrame({"at": [NOON, NOON], "shop": ["new", "old"]})
    replies = [httpx.Response(200, json={"answers": rows}) for _ in range(2)]
    with answering(*replies) as client:
        assert list(client.predict_frame("sales", frame)["unseen"]) == [["shop"], []]
        assert list(client.predict_frame("sales", frame.assign(unseen=[1, 2]))["unseen"]) == [1, 2]


def test_a_refused_row_is_numbered_within_all_rows(fake: FakeMorrow) -> None:
    rows = [{"at": NOON}] * 2100 + [{"at": datetime(2027, 1, 1, tzinfo=UTC)}]
    with fake.client() as client, pytest.raises(OutsideHorizon) as refused:
        client.predict_many("sales", rows)
    assert [fault.field for fault in refused.value.faults] == ["rows[2100].at"]
    assert "rows[2100].at" in str(refused.value)


UNSENDABLE: dict[str, tuple[Any, type[Exception], str]] = {
    "no column of moments": ([{"at": NOON}, {"price": 1}], KeyError, "row 1 has no at.*at=None"),
    "moments in the index": (pd.DataFrame({"price": [1]}, index=pd.Index([NOON], name="at")), KeyError, "at="),
    "NaT": (pd.DataFrame({"at": pd.to_datetime(["2026-01-05T12:00Z", ""])}), TypeError, "row 1: NaT is no moment"),
    "None": ([{"at": None}], TypeError, "row 0: None is no moment"),
    "a naive moment": ([{"at": "2026-01-05"}], NaiveMoment, "row 0: 2026-01-05 has no time zone"),
    "no moment at all": ([{"at": "noon"}], ValueError, "row 0: .*noon"),
    "before the calendar": ([{"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))}], ValueError, "row 0"),
    "half a character": ([{"at": NOON, "x": "\ud800"}], ValueError, "row 0"),
    "equal names": (pd.DataFrame([[NOON, 1, 2]], columns=["at", "x", "x"]), ValueError, "two columns are named x"),
    "equal names in Arrow": (pa.table([[NOON], [1], [2]], names=["at", "x", "x"]), ValueError, "are named x"),
    "levels of names": (
        pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])),
        ValueError,
        "several levels",
    ),
    "a mapping of columns": ({"at": [NOON]}, TypeError, "list of mappings"),
    "a lazy frame": (pl.LazyFrame({"at": [NOON]}), TypeError, "LazyFrame"),
    "lists": ([[NOON, 1]], TypeError, "row 0 is of type list"),
}


@pytest.mark.parametrize(("rows", "error", "said"), UNSENDABLE.values(), ids=UNSENDABLE)
def test_rows_that_cannot_be_meant_are_refused_with_their_number(
    fake: FakeMorrow, rows: Any, error: type[Exception], said: str
) -> None:
    with fake.client() as client, pytest.raises(error, match=said):
        client.predict_many("sales", rows)


def test_rows_may_be_asked_about_now(fake: FakeMorrow) -> None:
    fake.add_task("always", lambda features, _: len(features))
    with fake.client() as client:
        (answer,) = client.predict_many("always", [{"price": 1}], at=None)
    assert (answer.prediction, abs(answer.at - datetime.now(UTC)) < timedelta(minutes=1)) == (1, True)


def test_columns_of_pandas_own_types_are_sent(fake: FakeMorrow) -> None:
    frame = pd.DataFrame(
        {
            "at": [NOON, NOON],
            "category": pd.Categorical(["a", None]),
            "integer": pd.array([1, None], dtype="Int64"),
            "boolean": pd.array([True, None], dtype="boolean"),
            "text": pd.array(["x", None], dtype="string"),
            "objects": [None, math.nan],
        }
    )
    with fake.client() as client:
        assert [one.prediction for one in client.predict_many("sales", frame)] == [4, 0]


@pytest.mark.parametrize("made", ["empty pandas", "empty polars"])
def test_an_empty_frame_gets_the_columns_without_a_request(made: str) -> None:
    frame = (pd if "pandas" in made else pl).DataFrame({"at": [], "price": []})
    with answering() as client:
        found = client.predict_frame("sales", frame, coverage=0.9)
    assert list(found.columns)[2:] == ["prediction", "expected_error", "valid_until", "version", "low", "high"]


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_frame_with_a_column_of_an_answer_is_refused_before_it_is_sent(name: str) -> None:
    frame = FRAMES[name]({"at": [NOON], "version": [7]})
    with answering() as client, pytest.raises(ValueError, match="column version already"):
        client.predict_frame("sales", frame)
    with answering() as client, pytest.raises(TypeError, match="pandas or polars"):
        client.predict_frame("sales", pa.table({"at": [NOON]}))


IDS: dict[str, tuple[Any, str]] = {
    "text": ("a", "a"),
    "int64": (np.int64(7), "7"),
    "UUID": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
}


@pytest.mark.parametrize(("value", "made"), IDS.values(), ids=IDS)
def test_ids_of_events_are_texts(value: Any, made: str) -> None:
    (event,) = to_events([{"event_id": value, "at": NOON, "label": 1}])
    assert event.event_id == made


@pytest.mark.parametrize("value", [None, math.nan, pd.NA, 1.0, True])
def test_an_id_that_is_none_is_refused_with_its_row(value: Any) -> None:
    with pytest.raises(TypeError, match=r"row 0: .* is no id"):
        list(to_events([{"event_id": value, "at": NOON, "label": 1}]))


def test_a_missing_known_at_is_left_to_the_label_delay(fake: FakeMorrow) -> None:
    frame = pd.DataFrame({**COLUMNS, "known": pd.to_datetime(["", "2026-01-05T12:00Z"])})
    with fake.client() as client:
        assert client.upload("sales", to_events(frame, known_at="known")).created == 2
    assert ["known_at" in one for one in fake.tasks["sales"].events.values()] == [False, True]


@pytest.mark.parametrize("rows", [pd.DataFrame(COLUMNS), [{"event_id": "a"}]])
def test_an_upload_of_rows_names_to_events(fake: FakeMorrow, rows: Any) -> None:
    with fake.client() as client, pytest.raises(TypeError, match="to_events"):
        client.upload("sales", rows)


def test_the_event_of_a_naive_moment_is_named_once(fake: FakeMorrow) -> None:
    event = Event(event_id="a", at=datetime(2026, 1, 5), features={}, label=1)  # noqa: DTZ001
    with fake.client() as client, pytest.raises(NaiveMoment, match=r"^event a: \S+ \S+ has no time zone") as refused:
        client.upload("sales", [event])
    assert str(refused.value).count("has no time zone") == 1
