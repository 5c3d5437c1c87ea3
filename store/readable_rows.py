"""Rows of one task, read one by one if some of them cannot be read.

The tables refuse a moment out of the calendar, but not in rows that are older than their constraints, and no table
knows the form of a document of JSON. Such a row hides no other row here, and is named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, DateTime, Row, Select, Table, and_, case, not_, or_

from contracts.errors import MorrowError
from store.database import is_readable
from store.errors import RowUnreadable
from store.outages import name_outage

# The most rows of a table that a sentence names.
_MAX_NAMED = 5

T = TypeVar("T")


@dataclass(frozen=True)
class ReadRows(Generic[T]):
    """The rows that can be read, and a sentence about those that cannot; None if there are none."""

    rows: Sequence[T]
    fault: str | None = None

    @property
    def faults(self) -> list[str]:
        """The sentence in a list, or none."""
        return [] if self.fault is None else [self.fault]


def is_unreadable(error: Exception) -> bool:
    """Whether a row is at fault, and neither the server nor the statement."""
    if isinstance(error, RowUnreadable):
        return True
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state is None and name_outage(error) is None and not isinstance(error, MorrowError)


def read_rows(
    connection: Connection, table: Table, query: Select[*tuple[Any, ...]], decode: Callable[[Row[Any]], T]
) -> ReadRows[T]:
    """What `decode` makes of the rows of `query`, which selects columns of `table` with its `id`."""
    try:
        return ReadRows([decode(row) for row in connection.execute(query)])
    except Exception as error:
        if not is_unreadable(error):
            raise
    moments = [column for column in table.columns if isinstance(column.type, DateTime)]
    can_be_read = and_(*(or_(column.is_(None), is_readable(column)) for column in moments))
    found, faults = [], []
    for row in connection.execute(query.where(can_be_read)):
        try:
            found.append(decode(row))
        except Exception as fault:  # noqa: BLE001 whatever the row holds, it hides no other one
            faults.append((row.id, f"{type(fault).__name__}: {fault}"))
    named = query.with_only_columns(table.c.id, _name_first(moments)).where(not_(can_be_read)).limit(_MAX_NAMED)
    faults += [(row.id, row[1]) for row in connection.execute(named)]
    return ReadRows(found, say_unreadable(table.name, sorted(faults)) if faults else None)


def read_all(
    connection: Connection, table: Table, query: Select[*tuple[Any, ...]], decode: Callable[[Row[Any]], T]
) -> Sequence[T]:
    """The same if every row can be read. Raises RowUnreadable, which names those that cannot."""
    found = read_rows(connection, table, query, decode)
    if found.fault is not None:
        raise RowUnreadable(found.fault)
    return found.rows


def say_unreadable(table: str, faults: Sequence[tuple[int, str]]) -> str:
    """The sentence about rows of a table by their ids, each with the column or the error."""
    ids = ", ".join(str(row_id) for row_id, _ in faults[:_MAX_NAMED])
    rows = "; ".join(f"id {row_id}: {what}" for row_id, what in faults[:_MAX_NAMED])
    remedy = f"correct them, or remove them by the rule: id IN ({ids})"
    return (
        f"Rows of the table {table} cannot be read ({rows}). They were written past the API and are left out: {remedy}."
    )


def _name_first(moments: Sequence[Column[Any]]) -> ColumnElement[str]:
    """The first column with a moment out of the calendar, and that moment."""
    return case(*((not_(is_readable(column)), f"{column.name} is out of the years 1 to 9999") for column in moments))
