"""The MLflow server of `morrow up`, the demo and the tests: it uses SQLite and serves its artefacts itself."""

import os
from pathlib import Path

from contracts.runtime.python_process import python_command
from contracts.runtime.surroundings import build_environment


def server_command(folder: Path, host: str, port: int) -> list[str]:
    """The command line of `mlflow server` with its database and its artefacts in a folder."""
    return [
        *python_command("-m", "cli.local.mlflow_main", "server"),
        *("--host", host, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--serve-artifacts"),
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
