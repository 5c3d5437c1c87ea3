"""A version's graph as MLflow's own ONNX flavour serves it: the fastest yardstick that MLflow offers.

A registered version comes with a `pyfunc` that reads and checks frames of features in our Python. Served so, MLflow
would be slower than it has to be.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from mlflow.models import ModelSignature
from mlflow.onnx import save_model
from mlflow.types import ColSpec, Schema, TensorSpec

from benchmarks.serving.release import Released
from contracts.manifest import GRAPH_FILE
from trainer.tracking.registry import Registry


def save_bare_graph(mlflow_url: str, released: Released, folder: Path) -> Path:
    """Save a version's graph with tensors for a signature; returns the model's folder."""
    files, model = folder / "version", folder / "bare"
    for old in (files, model):
        shutil.rmtree(old, ignore_errors=True)
    files.mkdir(parents=True)
    manifest = Registry(mlflow_url).fetch(released.task.name, released.version, files)
    task = released.task
    inputs: list[ColSpec | TensorSpec] = [TensorSpec(np.dtype("int64"), (-1,), "at")]
    if task.numbers:
        inputs.append(TensorSpec(np.dtype("float64"), (-1, len(task.numbers)), "numbers"))
    if task.categories:
        inputs.append(TensorSpec(np.dtype("object"), (-1, len(task.categories)), "categories"))
    outputs: list[ColSpec | TensorSpec] = [
        TensorSpec(np.dtype("float32"), (-1, len(manifest.classes)), "probabilities")
    ]
    graph: Any = onnx.load(files / GRAPH_FILE)
    save_model(
        graph,
        model,
        signature=ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs)),
        pip_requirements=["onnxruntime", "numpy"],
        save_as_external_data=False,
    )
    return model
