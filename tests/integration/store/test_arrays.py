"""Arrays that are laid out by NumPy are to PostgreSQL what the driver's own would be."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from contracts.clock import from_micros, to_micros
from store.sql_arrays import BinaryArray, bool_array, float8_array, text_array, timestamp_array

unhurried = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


def read_back(engine: Engine, array: BinaryArray) -> Any:
    """What PostgreSQL gives back of an array, and whether it is the very type that it should be."""
    with engine.connect() as connection:
        value, kind = connection.exec_driver_sql("SELECT %(array)b, pg_typeof(%(array)b)::text", {"array": array}).one()
    return value, kind


@unhurried
@given(st.lists(TEXTS, max_size=5))
@example(["", "NULL", "a,b", "{}", '"\\', "é\U0001f600"])
def test_texts(engine: Engine, texts: list[str]) -> None:
    assert read_back(engine, text_array(texts)) == (texts, "text[]")


@unhurried
@given(st.lists(st.floats(), max_size=5))
@example([float("nan"), float("inf"), -0.0, 5e-324])
def test_numbers(engine: Engine, numbers: list[float]) -> None:
    value, kind = read_back(engine, float8_array(np.array(numbers, np.float64)))
    assert (repr(value), kind) == (repr(numbers), "double precision[]")


@unhurried
@given(st.lists(st.datetimes(), max_size=5))
def test_moments(engine: Engine, moments: list[Any]) -> None:
    micros = [to_micros(moment.replace(tzinfo=from_micros(0).tzinfo)) for moment in moments]
    value, kind = read_back(engine, timestamp_array(np.array(micros, np.int64)))
    assert (value, kind) == (moments, "timestamp without time zone[]")


@pytest.mark.parametrize("truths", [[], [True], [False, True, False]])
def test_truths(engine: Engine, truths: list[bool]) -> None:
    assert read_back(engine, bool_array(np.array(truths, np.bool_))) == (truths, "boolean[]")
