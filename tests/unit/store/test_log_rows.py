"""Rows of the log are found again in a buffer, and what is no row is refused."""

from uuid import UUID

import pytest

from store.predictions.rows import LogRow, split_rows, write_row, write_source

ID = UUID("01932b2e-1c00-7000-8000-000000000001")


def a_row(task_id: int = 3, **changes: object) -> bytes:
    given = {"key_name": "asks", "features": b'{"x":1.0}', "answer": b'{"prediction":"a"}'} | changes
    return write_row(ID.bytes, write_source(task_id, "7"), 0, **given)  # type: ignore[arg-type]


def test_each_row_is_found_with_its_id_and_task() -> None:
    first, second = a_row(3), a_row(-4, key_name=None, features=None)
    assert [*split_rows(first + second)] == [
        LogRow(ID, 3, 0, len(first)),
        LogRow(ID, -4, len(first), len(first) + len(second)),
    ]
    assert [*split_rows(b"")] == []


@pytest.mark.parametrize("rows", [b"\0" * 40, a_row()[:-1], a_row() + b"\x00\x07"])
def test_what_is_no_row_is_refused(rows: bytes) -> None:
    with pytest.raises(ValueError, match="row of the log"):
        [*split_rows(rows)]
