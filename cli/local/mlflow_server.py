"""The MLflow server of `morrow up`, the demo and the tests: it uses SQLite and serves its artefacts itself."""

from pathlib import Path

from contracts.runtime.python_process import python_command


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
    """Variables to set on top of our environment: no jobs, no telemetry."""
    return {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # halves its memory
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
