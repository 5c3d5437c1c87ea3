"""Data sets in a temporary event store, read back as a cycle reads them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from benchmarks.datasets import Dataset
from cli.local.postgres import embedded_postgres
from contracts.clock import from_micros
from migrations import migrate
from store.engine import make_engine
from store.events.writes import append_events
from store.tasks.catalog import define_task
from trainer.data.snapshot import Reading, read

_ROWS_PER_COMMIT = 20_000


@contextmanager
def temporary_store() -> Iterator[Engine]:
    """A PostgreSQL with our tables, in a temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="morrow-") as folder,
        embedded_postgres(Path(folder) / "postgres", durable=False) as url,
    ):
        migrate(url)
        engine = make_engine(url)
        try:
            yield engine
        finally:
            engine.dispose()


def import_dataset(engine: Engine, dataset: Dataset, now: datetime, end: int | None = None) -> Reading:
    """Define the task, append its events, and read what is known at `end` (microseconds); all if None."""
    with engine.begin() as connection:
        schema, _ = define_task(connection, dataset.task, now)
    for start in range(0, len(dataset.events), _ROWS_PER_COMMIT):
        with engine.begin() as connection:
            append_events(connection, schema, dataset.events[start : start + _ROWS_PER_COMMIT], now)
    newest = max(event.known_at for event in dataset.events)
    after = schema.task.clock.window_start(newest) + 2 * schema.task.clock.window
    return read(engine, schema, after if end is None else end, from_micros(after))
