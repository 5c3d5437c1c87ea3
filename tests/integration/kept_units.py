"""What a test sees of units: their rows in the ledger, and the files of the fits that they kept."""

from pathlib import Path

from sqlalchemy import Engine, select

from store.database import units
from store.tasks.catalog import Schema
from trainer.evaluation.fit_store import candidate_folder


def recorded(engine: Engine, schema: Schema) -> list[tuple[str, int, str | None]]:
    """State, attempts and lease of a task's units."""
    with engine.connect() as connection:
        rows = connection.execute(
            select(units.c.state, units.c.attempts, units.c.lease)
            .where(units.c.task_id == schema.task_id)
            .order_by(units.c.id)
        )
        return [(row.state, row.attempts, row.lease) for row in rows]


def kept_files(home: Path, schema: Schema, pattern: str = "*") -> dict[str, bytes]:
    """The files of all kept fits of a task."""
    folder = candidate_folder(home, schema.task, 0).parent
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.glob(f"*/{pattern}"))}
