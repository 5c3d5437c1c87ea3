"""Statements that an engine executes, counted while a block runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event


@contextmanager
def counting_statements(engine: Engine) -> Iterator[list[str]]:
    """The SQL of every statement of this engine, in the order of their execution."""
    found: list[str] = []

    def note(_connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        found.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)
