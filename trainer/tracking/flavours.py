"""A version as MLflow's users expect one: a folder with flavours, a signature, an example and the files of Morrow.

Both flavours use the same graph. `onnx` is the bare graph of `contracts.manifest`. `python_function` takes a frame with
a column for `at` and one for each feature (`trainer.tracking.pyfunc_model`). `trainer.tracking.registry` sends the
folder; no other module imports mlflow.

The folder is written here and not by `mlflow.onnx.save_model`, in MLflow's documented format. `save_model` loads the
whole of `mlflow.pyfunc` and reads the files of every installed package to compare them with the requirements.
"""

import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import AnyType

from contracts.clock import format_moment
from contracts.manifest import GRAPH_FILE, MANIFEST_FILE, RATE_FILE, Manifest
from contracts.task import Kind
from trainer.tracking import pyfunc_model

FILES = (MANIFEST_FILE, GRAPH_FILE, RATE_FILE)

_REQUIREMENTS = (f"mlflow=={version('mlflow')}", "onnxruntime>=1.22,<2", "numpy>=2.0,<3", "pandas>=2.3,<4")
_CODE_FOLDER, _LOADER = "code", "morrow_frames"
_REQUIREMENTS_FILE, _CONDA_FILE, _VIRTUALENV_FILE = "requirements.txt", "conda.yaml", "python_env.yaml"
_EXAMPLE_FILE, _SERVING_EXAMPLE_FILE = "input_example.json", "serving_input_example.json"
_NUM_EXAMPLE_ROWS = 3


def save_flavours(target: Path, folder: Path, manifest: Manifest) -> None:
    """Write the model folder `target`, which does not exist yet, of the artefact in `folder`, byte for byte."""
    (target / _CODE_FOLDER).mkdir(parents=True)
    for name in FILES:
        shutil.copyfile(folder / name, target / name)
    shutil.copyfile(pyfunc_model.__file__, target / _CODE_FOLDER / f"{_LOADER}.py")
    for name, text in _environment_files().items():
        (target / name).write_text(text)
    _write_example(target, example_rows(manifest))
    _describe_model(manifest, (target / GRAPH_FILE).stat().st_size).save(target / "MLmodel")


def _describe_model(manifest: Manifest, num_bytes: int) -> Model:
    example_info = {
        "type": "dataframe",
        "pandas_orient": "split",
        "artifact_path": _EXAMPLE_FILE,
        "serving_input_path": _SERVING_EXAMPLE_FILE,
    }
    model = Model(signature=make_signature(manifest), saved_input_example_info=example_info, model_size_bytes=num_bytes)
    model.add_flavor(
        "python_function",
        loader_module=_LOADER,
        code=_CODE_FOLDER,
        env={"conda": _CONDA_FILE, "virtualenv": _VIRTUALENV_FILE},
        python_version=platform.python_version(),
    )
    model.add_flavor(
        "onnx",
        data=GRAPH_FILE,
        onnx_version=version("onnx"),
        providers=["CPUExecutionProvider"],
        onnx_session_options=None,
        code=None,
    )
    return model


def _environment_files() -> Mapping[str, str]:
    """The files from which MLflow builds an environment for the version, with pip, conda or virtualenv."""
    python = platform.python_version()
    pip = "".join(f"  - {requirement}\n" for requirement in _REQUIREMENTS)
    conda = f"name: mlflow-env\nchannels:\n- conda-forge\ndependencies:\n- python={python}\n- pip\n- pip:\n{pip}"
    virtualenv = (
        f"python: {python}\nbuild_dependencies:\n- pip\n- setuptools\n- wheel\n"
        f"dependencies:\n- -r {_REQUIREMENTS_FILE}\n"
    )
    return {_REQUIREMENTS_FILE: "\n".join(_REQUIREMENTS), _CONDA_FILE: conda, _VIRTUALENV_FILE: virtualenv}


def _write_example(target: Path, rows: pd.DataFrame) -> None:
    split = msgspec.Raw(rows.to_json(orient="split", index=False).encode())
    (target / _EXAMPLE_FILE).write_bytes(split)
    (target / _SERVING_EXAMPLE_FILE).write_bytes(msgspec.json.encode({"dataframe_split": split}))


def make_signature(manifest: Manifest) -> ModelSignature:
    """The columns of rows and answers.

    The type of every column of rows is any: MLflow would refuse integers for doubles, integers with missing values, and
    the types `category` and `string[pyarrow]` of pandas. The version's own code reads them and names what is wrong.
    """
    task = manifest.parse_task()
    columns = [("at", True), *((feature.name, not feature.optional) for feature in task.features)]
    inputs: list[ColSpec | TensorSpec] = [
        ColSpec(AnyType(), name, required=required)  # type: ignore[no-untyped-call]  # MLflow's
        for name, required in columns
    ]
    outputs: list[ColSpec | TensorSpec]
    if manifest.classes:
        outputs = [ColSpec(DataType.string, "prediction")]
        outputs += [ColSpec(DataType.double, f"probability_{name}") for name in manifest.classes]
    else:
        outputs = [ColSpec(DataType.double, name) for name in ("prediction", "scale")]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def example_rows(manifest: Manifest) -> pd.DataFrame:
    """The first rows of the probe, which are synthetic, as a frame for the version."""
    task, probe = manifest.parse_task(), manifest.probe
    given: dict[str, Any] = {"at": pd.Series([format_moment(at) for at in probe.at], dtype=object)}
    for place, feature in enumerate(task.numbers):
        drawn = pd.Series([row[place] for row in probe.numbers], dtype=np.float64)
        given[feature.name] = _as_kind(drawn, feature.kind)
    for place, feature in enumerate(task.categories):
        given[feature.name] = pd.Series([row[place] for row in probe.categories], dtype=object)
    return pd.DataFrame({name: given[name] for name in ("at", *(feature.name for feature in task.features))}).head(
        _NUM_EXAMPLE_ROWS
    )


def _as_kind(drawn: "pd.Series[Any]", kind: Kind) -> "pd.Series[Any]":
    """Numbers of the probe, which are drawn whatever the kind, as values of a kind."""
    if kind == "boolean":
        return (drawn > 0.5).astype(object).where(drawn.notna(), None)
    return drawn.round() if kind == "integer" else drawn
