"""What Morrow uses without a promise of its makers is pinned to the version that is tested."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_mlflow_is_pinned_exactly_because_its_server_is_started_through_a_private_function() -> None:
    """`cli.local.mlflow_main` replaces `mlflow.server._exec_cmd`, which any release may rename."""
    assert "server._exec_cmd = " in (ROOT / "cli" / "local" / "mlflow_main.py").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (pin,) = (wanted for wanted in extras["trainer"] if re.match(r"mlflow\b", wanted))
    assert pin == f"mlflow=={version('mlflow')}"
    image = (ROOT / "docker" / "mlflow.Dockerfile").read_text("utf-8")
    assert re.findall(r"mlflow\[auth\]([^']+)'", image) == [pin.removeprefix("mlflow")]
