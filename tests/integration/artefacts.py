"""Tiny released versions, built by hand: a logistic curve of two numbers, a category and time, with its manifest."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from contracts.calibration import Calibration
from contracts.clock import parse_moment
from contracts.manifest import (
    FORMAT_VERSION,
    GRAPH_FILE,
    MANIFEST_FILE,
    VOCABULARIES,
    AgeError,
    Manifest,
    Probe,
    checksum,
    encode_manifest,
    graph_feed,
)
from contracts.task import Task
from service.models.local_copies import Current, write_current
from tests.integration.service_app import TASK

CUTOFF = parse_moment("2026-01-29T00:00:00Z")
WEEK = 7 * 86_400_000_000
TRAINED_FROM = CUTOFF - 8 * WEEK
PER_SECOND = 1e6 / (10 * WEEK)  # rate of the score, which grows by 1 in ten weeks


def write_version(folder: Path, *, task: str = "flights", bias: float = 0.0, horizon: int = 2, **changes: Any) -> Path:
    """A version in `folder`: P(on_time) is larger the larger `bias` is; `changes` replace fields of its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = Task.model_validate({**TASK, "name": task, **changes.pop("spec", {})})
    build = _class_graph if spec.is_classification else _regression_graph
    graph = build(bias)
    for name, model in (("model.onnx", graph), ("rate.onnx", build(bias, with_rate=True))):
        (folder / name).write_bytes(model.SerializeToString())
    fields: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "task": spec.model_dump(mode="json"),
        "schema_id": 1,
        "recipe": spec.recipe,
        "classes": ["late", "on_time"] if spec.is_classification else [],
        "trained_from": TRAINED_FROM,
        "cutoff": CUTOFF,
        "window": WEEK,
        "horizon": horizon,
        "error_name": spec.error_name,
        "ages": [AgeError(age, 5, (40 + age) / 100, 0.3, 0.6, 0.7) for age in range(horizon)],
        "calibration": Calibration(1.0, []),
        "naive": [0.5, 0.5] if spec.is_classification else [0.0, 1.0],
        "label_bounds": None if spec.is_classification else (-100.0, 100.0),
        "num_rows": 1000,
        "rows_digest": "0" * 64,
        "read_at": CUTOFF,
        "seeds": [0],
        "device": "cpu",
        "git_sha": "0" * 40,
        "checksums": {name: checksum(folder / name) for name in ("model.onnx", "rate.onnx")},
        "probe": _probe(graph, spec),
    }
    (folder / "manifest.json").write_bytes(encode_manifest(Manifest(**(fields | changes))))
    return folder


def place_version(
    home: Path, version: str = "3", *, task: str = "flights", valid_until: int = CUTOFF + 2 * WEEK, **changes: Any
) -> Path:
    """A current local copy of a version in the home of a service, as a follower leaves it."""
    folder = write_version(home / "models" / task / version, task=task, **changes)
    write_current(folder.parent, Current(version, valid_until))
    return folder


def teach(folder: Path, *carriers: str) -> None:
    """Let a version say that its fit knows these carriers, as versions of a trainer do."""
    graph = onnx.load(folder / GRAPH_FILE)
    onnx.helper.set_model_props(graph, {VOCABULARIES: json.dumps([carriers])})
    (folder / GRAPH_FILE).write_bytes(graph.SerializeToString())
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["checksums"][GRAPH_FILE] = checksum(folder / GRAPH_FILE)
    (folder / MANIFEST_FILE).write_bytes(json.dumps(manifest).encode())


def _probe(graph: onnx.ModelProto, task: Task) -> Probe:
    at, categories = [CUTOFF, CUTOFF + WEEK], [["UA"], ["??"]]
    numbers: list[list[float | None]] = [[1400.0, 3.5], [200.0, None]]
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = graph_feed(
        task, np.array(at), np.array(numbers, np.float64), np.array(categories, object).reshape(len(at), 1)
    )
    outputs = np.column_stack(session.run(None, feed)).astype(float)
    finite = np.nan_to_num(outputs, nan=0.5, posinf=0.5)
    return Probe(at, numbers, categories, finite.tolist())


def _class_graph(bias: float, *, with_rate: bool = False) -> onnx.ModelProto:
    nodes = [
        *_score_nodes(),
        helper.make_node("Sigmoid", ["score"], ["on_time"]),
        helper.make_node("Neg", ["score"], ["minus"]),
        helper.make_node("Sigmoid", ["minus"], ["late"]),
        helper.make_node("Concat", ["late", "on_time"], ["probabilities"], axis=1),
    ]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 2])]
    if with_rate:
        nodes += [
            helper.make_node("Mul", ["late", "on_time"], ["slope"]),
            helper.make_node("Mul", ["slope", "per_second"], ["up"]),
            helper.make_node("Neg", ["up"], ["down"]),
            helper.make_node("Concat", ["down", "up"], ["rate"], axis=1),
        ]
        outputs.append(helper.make_tensor_value_info("rate", TensorProto.FLOAT, ["n", 2]))
    return _model(nodes, bias, outputs)


def _regression_graph(bias: float, *, with_rate: bool = False) -> onnx.ModelProto:
    nodes = [
        *_score_nodes(),
        helper.make_node("Squeeze", ["score", "last"], ["mean"]),
        helper.make_node("Exp", ["mean"], ["scale"]),
    ]
    names = ["mean", "scale"]
    if with_rate:
        nodes += [
            helper.make_node("Mul", ["mean", "nothing"], ["none"]),
            helper.make_node("Add", ["none", "per_second"], ["mean_rate"]),
            helper.make_node("Mul", ["scale", "mean_rate"], ["scale_rate"]),
        ]
        names += ["mean_rate", "scale_rate"]
    return _model(nodes, bias, [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names])


def _score_nodes() -> list[onnx.NodeProto]:
    """score (n, 1) = bias + weights · numbers + weight of the carrier + weeks since the cutoff / 10."""
    return [
        helper.make_node("IsNaN", ["numbers"], ["missing"]),
        helper.make_node("Where", ["missing", "zero", "numbers"], ["given"]),
        helper.make_node("MatMul", ["given", "weights"], ["weighted"]),
        helper.make_node(
            "LabelEncoder",
            ["categories"],
            ["carrier"],
            domain="ai.onnx.ml",
            keys_strings=["UA", "AA"],
            values_floats=[0.5, -0.5],
            default_float=0.0,
        ),
        helper.make_node("Sub", ["at", "cutoff"], ["lead"]),
        helper.make_node("Cast", ["lead"], ["lead64"], to=TensorProto.DOUBLE),
        helper.make_node("Div", ["lead64", "ten_weeks"], ["time"]),
        helper.make_node("Unsqueeze", ["time", "last"], ["column"]),
        helper.make_node("Add", ["weighted", "column"], ["sum64"]),
        helper.make_node("Cast", ["sum64"], ["sum"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["sum", "carrier"], ["unbiased"]),
        helper.make_node("Add", ["unbiased", "bias"], ["score"]),
    ]


def _model(nodes: list[onnx.NodeProto], bias: float, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    constants = {
        "zero": np.array(0.0),
        "weights": np.array([[0.001], [0.1]]),
        "cutoff": np.array(CUTOFF),
        "ten_weeks": np.array(10.0 * WEEK),
        "last": np.array([1]),
        "bias": np.array(bias, np.float32),
        "per_second": np.array(PER_SECOND, np.float32),
        "nothing": np.array(0, np.float32),
    }
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("at", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("numbers", TensorProto.DOUBLE, ["n", 2]),
            helper.make_tensor_value_info("categories", TensorProto.STRING, ["n", 1]),
        ],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in read],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def publish(mlflow_url: str, task: str, folder: Path, *, champion: bool = True) -> str:
    """Put a folder's files behind the artefact proxy, register them as a version of a task, and move the alias."""
    with httpx.Client(base_url=f"{mlflow_url}/api/2.0", timeout=30) as client:
        client.post("/mlflow/registered-models/create", json={"name": task})
        logged = client.post("/mlflow/logged-models", json={"experiment_id": "0"}).raise_for_status().json()
        info = logged["model"]["info"]
        root = info["artifact_uri"].removeprefix("mlflow-artifacts:/")
        for file in folder.iterdir():
            client.put(f"/mlflow-artifacts/artifacts/{root}/{file.name}", content=file.read_bytes()).raise_for_status()
        source = {"name": task, "source": f"models:/{info['model_id']}", "model_id": info["model_id"]}
        registered = client.post("/mlflow/model-versions/create", json=source).raise_for_status().json()
        version: str = registered["model_version"]["version"]
    if champion:
        move_alias(mlflow_url, task, version)
    return version


def move_alias(mlflow_url: str, task: str, version: str) -> None:
    """Let the alias `champion` name a version."""
    body = {"name": task, "alias": "champion", "version": version}
    httpx.post(f"{mlflow_url}/api/2.0/mlflow/registered-models/alias", json=body, timeout=30).raise_for_status()


def remove_alias(mlflow_url: str, task: str) -> None:
    """Leave the task without a champion."""
    body = {"name": task, "alias": "champion"}
    url = f"{mlflow_url}/api/2.0/mlflow/registered-models/alias"
    httpx.request("DELETE", url, json=body, timeout=30).raise_for_status()
