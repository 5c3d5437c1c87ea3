"""How tests erase events."""

from datetime import datetime

from sqlalchemy import Engine

from store.events.erasures import Erased, erase_events
from store.tasks.catalog import Schema
from tests.integration.store.test_corrections import NOW


def erase(engine: Engine, schema: Schema, *event_ids: str, at: datetime = NOW) -> list[Erased]:
    """What became of each."""
    with engine.begin() as connection:
        _, outcomes = erase_events(connection, schema, event_ids, actor="who", reason="asked", now=at)
    return outcomes
