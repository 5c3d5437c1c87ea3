"""Runs of the paper's tables in MLflow: one run a cell, all in one experiment, and one run for pictures.

They are written through `trainer.tracking.registry` like a cycle's. If a folder is named in place of a server, MLflow
keeps its database and files there and no server is needed.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from benchmarks.paper.cells import Cell
from contracts.task import Training

if TYPE_CHECKING:
    from trainer.tracking.registry import Registry

EXPERIMENT = "paper"
_DATABASE = "mlflow.db"


def open_registry(where: str) -> "Registry":
    """The server at an address, or the files in a folder, which are created if missing."""
    from trainer.tracking.registry import Registry  # isort: skip  it bounds MLflow's patience before it imports it

    from mlflow import MlflowClient

    if "://" in where:
        return Registry(where)
    folder = Path(where).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{folder / _DATABASE}"
    client = MlflowClient(url, url)
    if client.get_experiment_by_name(EXPERIMENT) is None:
        client.create_experiment(EXPERIMENT, artifact_location=(folder / "artifacts").as_uri())
    return Registry(url)


def log_cell(registry: "Registry", cell: Cell, training: Training, budget: str) -> None:
    """One run with a cell's figures, its recipe, what chose it, and its budget."""
    name = f"{cell['table']} {cell['set']} {cell['method']} {cell['config']}"
    texts = {key: cell[key] for key in ("table", "set", "method", "config", "metric", "chosen_by")}
    tags = {key: str(text) for key, text in texts.items()} | {"budget": budget}
    run = registry.start_run(EXPERIMENT, name, tags)
    now = time.time_ns() // 1_000_000
    figures = {key: cell[key] for key in ("mean", "std", "published", "published_std", "seconds")}
    metrics = [(key, value, 0, now) for key, value in figures.items() if value is not None]
    registry.log(run, metrics, {key: str(value) for key, value in training.model_dump().items()}, {})
    registry.end_run(run, "FINISHED", None)


def log_pictures(registry: "Registry", pictures: Mapping[str, Figure]) -> None:
    """One run that holds pictures by name."""
    run = registry.start_run(EXPERIMENT, "pictures", {})
    with tempfile.TemporaryDirectory(prefix="morrow-") as folder:
        for name, picture in pictures.items():
            file = Path(folder) / f"{name}.png"
            picture.savefig(file, dpi=120)
            registry.log_file(run, file)
    registry.end_run(run, "FINISHED", None)
