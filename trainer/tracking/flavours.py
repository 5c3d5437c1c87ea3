"""A version as MLflow's users expect one: a folder with flavours, a signature, an example and the files of Morrow.

Two flavours stand on the very same graph. `onnx` is the bare graph of `contracts.manifest`. `python_function` takes a
frame with a column for `at` and one for each feature (`trainer.tracking.pyfunc_model`). `trainer.tracking.registry`
sends the folder; no other module imports mlflow.
"""

import shutil
import warnings
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnx
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.onnx import save_model
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import AnyType
from mlflow.utils import requirements_utils

from contracts.clock import format_moment
from contracts.manifest import GRAPH_FILE, MANIFEST_FILE, RATE_FILE, Manifest
from trainer.tracking import pyfunc_model as frames

FILES = (MANIFEST_FILE, GRAPH_FILE, RATE_FILE)

_REQUIREMENTS = ["onnxruntime>=1.22,<2", "numpy>=2.0,<3", "pandas>=2.3,<4"]
_CODE_FOLDER, _LOADER = "code", "morrow_frames"
_NUM_EXAMPLE_ROWS = 3
_warnings_lock = Lock()  # the filters of warnings are the whole process's: two threads would put each other's back
_COLUMN_TYPES = {"number": DataType.double, "category": DataType.string}

# MLflow reads the files of every installed package to know which of them a module is from. That serves to infer
# requirements, and ours are given.
vars(requirements_utils)["_MODULES_TO_PACKAGES"] = {}


def save_flavours(target: Path, folder: Path, manifest: Manifest) -> None:
    """Write the model folder `target`, which is not there yet, of the artefact in `folder`, byte for byte."""
    graph: Any = onnx.load(folder / GRAPH_FILE)
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow warns of its own type hints, and pandas of how mlflow reads a frame
        save_model(
            graph,
            target,
            signature=make_signature(manifest),
            input_example=example_rows(manifest),
            pip_requirements=_REQUIREMENTS,
            onnx_execution_providers=["CPUExecutionProvider"],
            save_as_external_data=False,
        )
    for name in FILES:
        shutil.copyfile(folder / name, target / name)
    (target / _CODE_FOLDER).mkdir()
    shutil.copyfile(frames.__file__, target / _CODE_FOLDER / f"{_LOADER}.py")
    model = Model.load(target)
    function = model.flavors["python_function"]
    del function["data"]
    function |= {"loader_module": _LOADER, "code": _CODE_FOLDER}
    model.save(target / "MLmodel")


def make_signature(manifest: Manifest) -> ModelSignature:
    """The columns of rows and answers.

    `at` may be moments, text or microseconds, so its type is any. A number is a double, and a column of whole numbers
    has to be made one: MLflow refuses what it cannot convert without loss.
    """
    task = manifest.parse_task()
    inputs: list[ColSpec | TensorSpec] = [ColSpec(AnyType(), "at")]  # type: ignore[no-untyped-call]
    inputs += [
        ColSpec(_COLUMN_TYPES[feature.kind], feature.name, required=not feature.optional) for feature in task.features
    ]
    outputs: list[ColSpec | TensorSpec]
    if manifest.classes:
        outputs = [ColSpec(DataType.string, "prediction")]
        outputs += [ColSpec(DataType.double, f"probability_{name}") for name in manifest.classes]
    else:
        outputs = [ColSpec(DataType.double, name) for name in ("prediction", "scale")]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def example_rows(manifest: Manifest) -> pd.DataFrame:
    """The first rows of the probe, which are made up, as the frame that the version takes."""
    task, probe = manifest.parse_task(), manifest.probe
    given: dict[str, Any] = {"at": pd.Series([format_moment(at) for at in probe.at], dtype=object)}
    for place, feature in enumerate(task.numbers):
        given[feature.name] = pd.Series([row[place] for row in probe.numbers], dtype=np.float64)
    for place, feature in enumerate(task.categories):
        given[feature.name] = pd.Series([row[place] for row in probe.categories], dtype=object)
    return pd.DataFrame({name: given[name] for name in ("at", *(feature.name for feature in task.features))}).head(
        _NUM_EXAMPLE_ROWS
    )
