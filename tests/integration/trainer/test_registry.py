"""What the trainer writes to a real MLflow, and how it behaves when MLflow is not there."""

import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import onnx
import pytest
import structlog
from mlflow import MlflowClient
from onnx import TensorProto, helper

from cli.local.stack import free_port
from contracts.calibration import Calibration
from contracts.clock import to_micros
from contracts.errors import CycleError, Unavailable
from contracts.manifest import (
    FORMAT_VERSION,
    GRAPH_FILE,
    MANIFEST_FILE,
    RATE_FILE,
    Manifest,
    Probe,
    checksum,
    encode_manifest,
)
from contracts.task import Task
from trainer.tracking.registry import Champion, Registry
from trainer.tracking.run_buffer import Run
from trainer.tracking.runs import OpenRun
from trainer.tracking.tags import CUTOFF_TAG, CYCLE_TAG, LEASE_TAG

CUTOFF = to_micros(datetime(2026, 1, 1, tzinfo=UTC))


def artefact(folder: Path, name: str, cutoff: int = CUTOFF) -> Manifest:
    """A graph that answers two classes by the sign of one number, rates of 0, and their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (GRAPH_FILE, RATE_FILE):
        (folder / file).write_bytes(_graph(with_rate=file == RATE_FILE).SerializeToString())
    task = Task.model_validate(
        {
            "name": name,
            "window": "PT1H",
            "features": [{"name": "x", "kind": "number"}],
            "target": {"name": "y", "kind": "classification"},
        }
    )
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        task=task.model_dump(mode="json"),
        schema_id=1,
        recipe=task.recipe,
        classes=["down", "up"],
        trained_from=0,
        cutoff=cutoff,
        window=task.clock.window,
        horizon=2,
        error_name=task.error_name,
        ages=[],
        calibration=Calibration(1.0, []),
        naive=[0.5, 0.5],
        label_bounds=None,
        num_rows=1,
        rows_digest="0" * 64,
        read_at=cutoff,
        seeds=[0],
        device="cpu",
        git_sha="unknown",
        checksums={file: checksum(folder / file) for file in (GRAPH_FILE, RATE_FILE)},
        probe=Probe(at=[cutoff], numbers=[[0.0]], categories=[[]], outputs=[[0.5, 0.5]]),
    )
    (folder / MANIFEST_FILE).write_bytes(encode_manifest(manifest))
    return manifest


def _graph(*, with_rate: bool) -> onnx.ModelProto:
    names = ["probabilities", "rate"] if with_rate else ["probabilities"]
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["numbers"], ["x"], to=TensorProto.FLOAT),
            helper.make_node("Neg", ["x"], ["minus_x"]),
            helper.make_node("Concat", ["x", "minus_x"], ["logits"], axis=1),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
            *([helper.make_node("Sub", ["logits", "logits"], ["rate"])] if with_rate else []),
        ],
        "tiny",
        [
            helper.make_tensor_value_info("at", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("numbers", TensorProto.DOUBLE, ["n", 1]),
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", 2]) for output in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def new_name() -> str:
    return f"tiny_{uuid4().hex[:8]}"


def open_run(registry: Registry, task: str) -> str:
    return registry.start_run(task, "a cycle", {CYCLE_TAG: "7", LEASE_TAG: "mine"})


def test_registering_the_same_artefact_again_finds_its_version(registry: Registry, tmp_path: Path) -> None:
    name = new_name()
    manifest = artefact(tmp_path, name)
    run_id = open_run(registry, name)
    assert registry.register(tmp_path, manifest, run_id, {}) == "1"
    assert registry.register(tmp_path, manifest, run_id, {}) == "1"
    newer = artefact(tmp_path / "newer", name, CUTOFF + manifest.window)
    assert registry.register(tmp_path / "newer", newer, run_id, {}) == "2"


def test_the_champion_is_the_version_that_the_alias_names(registry: Registry, tmp_path: Path) -> None:
    name = new_name()
    assert registry.champion(name) is None
    version = registry.register(tmp_path, artefact(tmp_path, name), open_run(registry, name), {})
    assert registry.champion(name) is None
    registry.move_alias(name, version)
    assert registry.champion(name) == Champion(version, CUTOFF)


@pytest.mark.parametrize("cutoff", ["", "yesterday", "2026-01-01"])
def test_a_champion_whose_tags_were_edited_has_no_cutoff(
    registry: Registry, mlflow_url: str, tmp_path: Path, cutoff: str
) -> None:
    name = new_name()
    version = registry.register(tmp_path, artefact(tmp_path, name), open_run(registry, name), {})
    registry.move_alias(name, version)
    MlflowClient(mlflow_url).set_model_version_tag(name, version, CUTOFF_TAG, cutoff)
    assert registry.champion(name) == Champion(version, None)


def test_a_version_is_fetched_with_both_graphs(registry: Registry, tmp_path: Path) -> None:
    name = new_name()
    manifest = artefact(tmp_path, name)
    version = registry.register(tmp_path, manifest, open_run(registry, name), {})
    (tmp_path / "fetched").mkdir()
    assert registry.fetch(name, version, tmp_path / "fetched") == manifest
    for file in (GRAPH_FILE, RATE_FILE):
        assert (tmp_path / "fetched" / file).read_bytes() == (tmp_path / file).read_bytes()


def test_open_runs_are_those_of_the_task_that_still_run_and_are_ours(registry: Registry, mlflow_url: str) -> None:
    name = new_name()
    assert registry.open_runs(name) == []
    run_id = open_run(registry, name)
    foreign = registry.start_run(name, "by hand", {})
    registry.start_run(name, "edited", {CYCLE_TAG: "seven", LEASE_TAG: "mine"})
    assert registry.open_runs(name) == [OpenRun(run_id, 7, "mine")]
    registry.end_run(run_id, "FAILED", "its trainer went away")
    assert registry.open_runs(name) == []
    client = MlflowClient(mlflow_url, mlflow_url)
    assert client.get_run(run_id).data.tags["morrow.reason"] == "its trainer went away"
    assert client.get_run(foreign).info.status == "RUNNING"


def test_a_deleted_experiment_is_taken_up_again(registry: Registry, mlflow_url: str) -> None:
    name = new_name()
    open_run(registry, name)
    client = MlflowClient(mlflow_url, mlflow_url)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    open_run(registry, name)


def test_a_name_that_is_not_a_tasks_is_refused(registry: Registry, tmp_path: Path) -> None:
    manifest = artefact(tmp_path, new_name())
    manifest.task["name"] = "../x"
    with pytest.raises(CycleError, match="names no task"):
        registry.register(tmp_path, manifest, "0" * 32, {})


def test_a_dead_server_is_reported_within_seconds(tmp_path: Path) -> None:
    dead = Registry(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(Unavailable):
        dead.champion("demand")
    with pytest.raises(Unavailable):
        dead.register(tmp_path, artefact(tmp_path, "demand"), "0" * 32, {})
    assert time.monotonic() - began < 20


def test_a_server_that_asks_for_a_days_patience_is_reported_within_seconds(tmp_path: Path) -> None:
    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            self.send_response(503)
            self.send_header("retry-after", "86400")
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nobody reads of this."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        busy, started = Registry(f"http://127.0.0.1:{server.server_address[1]}"), time.monotonic()
        for ask in (
            lambda: busy.champion("demand"),
            lambda: busy.start_run("demand", "a cycle", {}),
            lambda: busy.register(tmp_path, artefact(tmp_path, "demand"), "0" * 32, {}),
        ):
            with pytest.raises(Unavailable):
                ask()
        server.shutdown()
    assert time.monotonic() - started < 60


def test_what_is_noted_while_the_server_is_away_is_delivered_once_it_is_back(
    registry: Registry, mlflow_url: str
) -> None:
    name = new_name()
    run = Run(Registry(f"http://127.0.0.1:{free_port()}"), name, "a cycle", {}, lambda: datetime.now(UTC))
    run.log_params({"width": 8})
    run.set_tags({"morrow.device": "cpu"})
    run.log_metric("loss", 0.5, 1)
    run.flush_if_due()
    assert run.run_id is None
    run.registry = registry
    run.log_metric("loss", 0.25, 2)
    run.end("FINISHED", None)
    assert run.run_id is not None
    client = MlflowClient(mlflow_url, mlflow_url)
    written = client.get_run(run.run_id)
    assert (written.info.status, written.data.params) == ("FINISHED", {"width": "8"})
    assert [point.value for point in client.get_metric_history(run.run_id, "loss")] == [0.5, 0.25]


def test_a_file_that_is_gone_keeps_no_run_from_its_end(registry: Registry, mlflow_url: str, tmp_path: Path) -> None:
    run = Run(registry, new_name(), "a cycle", {}, lambda: datetime.now(UTC))
    run_id = run.flush()
    kept, gone = tmp_path / "kept.txt", tmp_path / "gone.txt"
    kept.write_text("kept")
    run.log_file(gone)
    run.log_file(kept)
    run.log_metric("loss", 0.5, 1)
    run.end("FAILED", "no room")
    client = MlflowClient(mlflow_url, mlflow_url)
    assert client.get_run(run_id).info.status == "FAILED"
    assert [file.path for file in client.list_artifacts(run_id)] == ["kept.txt"]


def test_a_picture_that_cannot_be_drawn_keeps_no_run_from_its_end_and_is_logged_as_a_bug(
    registry: Registry, mlflow_url: str, tmp_path: Path
) -> None:
    run = Run(registry, new_name(), "a cycle", {}, lambda: datetime.now(UTC))

    def break_down(_file: Path) -> None:
        raise ValueError("no such colour")

    def draw(file: Path) -> None:
        file.write_text("<svg/>")

    run.log_file(tmp_path / "broken.svg", break_down)
    run.log_file(tmp_path / "whole.svg", draw)
    assert list(tmp_path.iterdir()) == []
    with structlog.testing.capture_logs() as logged:
        assert run.end("FINISHED", None)
    client = MlflowClient(mlflow_url, mlflow_url)
    assert client.get_run(str(run.run_id)).info.status == "FINISHED"
    assert [file.path for file in client.list_artifacts(str(run.run_id))] == ["whole.svg"]
    assert [(entry["event"], entry["file"], entry["exc_info"]) for entry in logged] == [
        ("run.file_failed", "broken.svg", True)
    ]


def test_a_run_keeps_a_bounded_number_of_figures(registry: Registry, mlflow_url: str) -> None:
    run = Run(registry, new_name(), "a cycle", {}, lambda: datetime.now(UTC))
    for step in range(6000):
        run.log_metric("loss", 0.0, step)
    run_id = run.flush()
    history = MlflowClient(mlflow_url, mlflow_url).get_metric_history(run_id, "loss")
    assert max(point.step for point in history) == 4999
