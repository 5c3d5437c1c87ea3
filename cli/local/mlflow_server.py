"""The MLflow server of `morrow up`, the demo and the tests: it uses SQLite and serves its artefacts itself."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from contracts.runtime.python_process import python_command
from contracts.runtime.surroundings import build_environment

_DATABASE = "mlflow.db"


def server_command(folder: Path, host: str, port: int) -> list[str]:
    """The command line of `mlflow server` with its database and its artefacts in a folder."""
    return [
        *python_command("-m", "cli.local.mlflow_main", "server"),
        *("--host", host, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder / _DATABASE}", "--serve-artifacts"),
        *("--artifacts-destination", str(folder / "artifacts")),
        *("--allowed-hosts", "localhost:*,127.0.0.1:*"),
        *("--uvicorn-opts", "--no-access-log"),  # API and trainer poll every few seconds, which would log 19 MB a day
    ]


def server_environment() -> dict[str, str]:
    """The whole environment of the server: no setting of another MLflow, no jobs, no telemetry."""
    own = {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # halves its memory
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    return build_environment(os.environ, "mlflow", own)


def is_unfinished(folder: Path) -> bool:
    """Whether MLflow's first start in a folder was cut short before its database had all of its tables.

    MLflow ends a first start by storing its default experiment. Every run belongs to an experiment, so nothing is lost
    with a database that has neither experiments nor models.
    """
    file = folder / _DATABASE
    if not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=5)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            used = ("experiments", "registered_models")
            return not any(
                database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608 our own names
                for table in used
                if table in tables
            )
    except sqlite3.Error:
        return False  # locked, or no database of ours


def remove_unfinished(folder: Path) -> bool:
    """Remove the database of a first start that was cut short, which no later start can use; returns whether it was."""
    if not is_unfinished(folder):
        return False
    for ending in ("", "-journal", "-wal", "-shm"):
        (folder / f"{_DATABASE}{ending}").unlink(missing_ok=True)
    return True
