"""`python -m benchmarks reading --sealed`: the same rows in PostgreSQL, and sealed in files.

The training read is timed in a process of its own, whose memory counts. The bytes of a row are those of the tables and
their indexes after VACUUM FULL. `--rows` below 51,001 seals nothing, since the newest and oldest events stay.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.console import Console
from sqlalchemy import Engine, text

from benchmarks.ingest.events import TASK
from benchmarks.result_files import Figure, Label
from contracts.clock import to_micros
from store.engine import make_engine
from store.events.sealed.sealing import seal
from store.tasks.catalog import find_task

Measures = dict[str, float]

_TABLES = ("events", "sealed_files", "sealed_ids", "sealed_imports", "sealed_objects", "sealed_windows", "taken_rows")


def measure(
    url: str, folder: Path, cutoff: datetime, read: Callable[[], Sequence[Measures]], console: Console
) -> list[Figure]:
    """Read, seal and read again."""
    engine = make_engine(url)
    with engine.connect() as connection:
        schema = find_task(connection, TASK.name)
        num_rows = int(connection.execute(text("SELECT count(*) FROM events")).scalar_one())
    figures = []
    size = _size(engine)
    for where in ("in PostgreSQL", "sealed"):
        of: dict[str, Label] = {"rows": num_rows, "where": where}
        if where == "sealed":
            began = perf_counter()
            sealed = seal(engine, f"file://{folder}", schema, to_micros(cutoff), cutoff)
            seconds = perf_counter() - began
            size = _size(engine)
            figures += [
                Figure(of=of, measure="rows moved", unit="rows", value=sealed.num_rows),
                Figure(of=of, measure="rows moved a second", unit="rows/s", value=round(sealed.num_rows / seconds)),
                Figure(
                    of=of, measure="bytes a sealed row in files", unit="B", value=sealed.num_bytes / sealed.num_rows
                ),
            ]
        rounds = read()
        figures += [
            Figure(of=of, measure="bytes a row in PostgreSQL", unit="B", value=round(size / num_rows, 1)),
            Figure(
                of=of,
                measure="rows read a second",
                unit="rows/s",
                value=round(num_rows / median(one["wall_seconds"] for one in rounds)),
            ),
            Figure(
                of=of,
                measure="memory of the read",
                unit="MiB",
                value=round(median(one["rise_mib"] for one in rounds), 1),
            ),
        ]
    engine.dispose()
    for figure in figures:
        console.print(f"{figure.of['where']:14} {figure.measure}: {figure.value:,.1f} {figure.unit}")
    return figures


def _size(engine: Engine) -> int:
    """Bytes of the tables and their indexes without free space."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in _TABLES:
            connection.execute(text(f"VACUUM (FULL, ANALYZE) {table}"))
        return sum(int(connection.execute(_RELATION_SIZE, {"name": table}).scalar_one()) for table in _TABLES)


_RELATION_SIZE = text("SELECT pg_total_relation_size(CAST(:name AS regclass))")
