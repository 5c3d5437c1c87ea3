"""The MLflow server that `morrow up`, the demo and the tests start: on SQLite, with artefacts handed out by itself."""

from pathlib import Path

from contracts.runtime.python_process import python_command


def server_command(folder: Path, host: str, port: int) -> list[str]:
    """`mlflow server` with its database and its artefacts in a folder."""
    return [
        *python_command("-m", "cli.local.mlflow_process", "server"),
        *("--host", host, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--serve-artifacts"),
        *("--artifacts-destination", str(folder / "artifacts")),
        *("--allowed-hosts", "localhost:*,127.0.0.1:*"),
        *("--uvicorn-opts", "--no-access-log"),  # services and trainers ask every few seconds: 19 MB of lines a day
    ]


def server_environment() -> dict[str, str]:
    """What is added to our environment, or takes the place of what is there: no jobs, no telemetry."""
    return {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # halves its memory
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
