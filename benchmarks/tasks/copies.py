"""Copies of a task with a release, in PostgreSQL, in MLflow's database and in the home folder: cycles would take days.

A copy has the ledgers of the original (cycles, releases, cells of the error matrix), its newest events, its registered
version with the alias, and the local copy of that version, whose graphs are hard links. It has no runs in MLflow and no
artefacts there, so nothing can be downloaded for it, and it has no kept fits.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, Engine, Table, text

from contracts.manifest import MANIFEST_FILE
from service.models.local_copies import CURRENT_FILE, read_current, write_current
from store.database import cycles, error_cells, releases
from store.tasks.catalog import Schema

NUM_EVENTS = 20
_MODEL_TABLES = ("registered_models", "model_versions", "registered_model_aliases")


def copy_tasks(engine: Engine, schema: Schema, names: Sequence[str]) -> dict[str, int]:
    """Copy a task in the store once for each name; returns the ids of the copies."""
    given = {"original": schema.task_id, "names": list(names), "num_events": NUM_EVENTS}
    with engine.begin() as connection:
        connection.execute(_TASKS, given)
        connection.execute(_SCHEMAS, given)
        for table in (cycles, releases, error_cells):
            _copy_rows(connection, table, given)
        connection.execute(_EVENTS, given)
        found = connection.execute(text("SELECT name, id FROM tasks WHERE name = ANY(:names)"), given)
        ids = {row.name: row.id for row in found}
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    return ids


def copy_models(database: Path, original: str, names: Sequence[str]) -> None:
    """Copy a registered model in MLflow's SQLite database, which no server has open."""
    with closing(sqlite3.connect(database)) as opened, opened:
        for table in _MODEL_TABLES:
            columns = [row[1] for row in opened.execute(f"PRAGMA table_info({table})")]
            selected = ", ".join(":name" if column == "name" else column for column in columns)
            opened.executemany(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {selected} FROM {table} WHERE name = :original",  # noqa: S608 our own tables
                [{"name": name, "original": original} for name in names],
            )


def copy_folders(models: Path, original: str, ids: dict[str, int]) -> None:
    """Copy the local copies of the original for each name and id."""
    current = read_current(models / original)
    assert current is not None, "the original has a local copy"
    source = models / original / current.version
    manifest = json.loads((source / MANIFEST_FILE).read_bytes())
    for name, task_id in ids.items():
        target = models / name / current.version
        target.mkdir(parents=True)
        for file in source.iterdir():
            if file.name != MANIFEST_FILE:
                os.link(file, target / file.name)
        manifest["task"]["name"] = name
        (target / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest))
        shutil.copy(models / original / CURRENT_FILE, target.parent)
        write_current(target.parent, replace(current, previous=None, previous_overlay=None, task_id=task_id))


def _copy_rows(connection: Connection, table: Table, given: dict[str, object]) -> None:
    columns = [column.name for column in table.columns if column.name not in ("id", "task_id")]
    listed, selected = (", ".join(f'{prefix}"{name}"' for name in columns) for prefix in ("", "rows."))
    statement = (
        f'INSERT INTO {table.name} (task_id, {listed}) SELECT tasks.id, {selected} FROM {table.name} AS "rows" '  # noqa: S608 our own tables
        'JOIN tasks ON tasks.name = ANY(:names) WHERE "rows".task_id = :original'
    )
    connection.execute(text(statement), given)


_TASKS = text("""
    INSERT INTO tasks (name, created_at)
    SELECT copies.name, original.created_at FROM tasks AS original, unnest(CAST(:names AS text[])) AS copies(name)
    WHERE original.id = :original
""")

_SCHEMAS = text("""
    INSERT INTO schemas (task_id, revision, spec, row_schema, created_at)
    SELECT tasks.id, 1, jsonb_set(original.spec, '{name}', to_jsonb(tasks.name)), original.row_schema,
        original.created_at
    FROM schemas AS original JOIN tasks ON tasks.name = ANY(:names)
    WHERE original.task_id = :original
""")

_EVENTS = text("""
    INSERT INTO events (task_id, event_id, revision, at, known_at, received_at, superseded_at, schema_id, numbers,
        categories, label)
    SELECT tasks.id, newest.event_id, newest.revision, newest.at, newest.known_at, newest.received_at,
        newest.superseded_at, schemas.id, newest.numbers, newest.categories, newest.label
    FROM (SELECT * FROM events WHERE task_id = :original ORDER BY at DESC LIMIT :num_events) AS newest
    CROSS JOIN tasks JOIN schemas ON schemas.task_id = tasks.id WHERE tasks.name = ANY(:names)
""")
