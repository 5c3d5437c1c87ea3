"""What becomes of questions and of the status where training has failed for long, and what a version may be asked."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from mlflow import MlflowClient
from sqlalchemy import Engine

from contracts.clock import format_moment
from contracts.manifest import read_manifest
from service.models.local_copies import Current, write_current
from store.tasks.catalog import Schema
from tests.integration.drifting_task import Story, add_windows, claim, cutoff_after, define, drifting_task, settings
from tests.integration.live_job import moment
from tests.integration.one_version import unnamed
from tests.integration.published_versions import wait_for
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving
from trainer.evaluation.fit_store import candidate_folder
from trainer.retraining.cycle import run_cycle
from trainer.tracking.registry import Registry

pytestmark = pytest.mark.anyio

NUM_WINDOWS = 11
GAP = 4
ROW = {"x": "0.3", "kind": "a"}
# Kinds of files that hold no program but ONNX's.
PLAIN = {"MLmodel", ".onnx", ".json", ".py", ".yaml", ".txt"}
# Loading must not unpickle: the hook ends the process where anything does.
LOAD = """
import sys
from pathlib import Path

def refuse(event, arguments):
    if event.startswith("pickle."):
        raise SystemExit(f"unpickled {arguments}")

sys.addaudithook(refuse)
from trainer.export.opened_artefact import verify_artefact
from contracts.manifest import read_manifest
folder = Path(sys.argv[1])
print(read_manifest(folder).cutoff, len(verify_artefact(folder).session.get_inputs()))
"""


@pytest.fixture
def schema(engine: Engine) -> Schema:
    """A scheduled task, one of whose windows has no events."""
    schema = define(engine, drifting_task(schedule="window"), GAP)
    add_windows(engine, schema, GAP + 1, NUM_WINDOWS)
    return schema


@pytest.fixture
async def client(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    """What answers after a cycle as of January, without any store."""
    assert retrain(engine, registry, schema, NUM_WINDOWS, tmp_path) == "released"
    models = tmp_path / "models" / schema.task.name
    models.mkdir(parents=True)
    kept = candidate_folder(tmp_path, schema.task, cutoff_after(NUM_WINDOWS))
    shutil.copytree(kept, models / "1")
    write_current(models, Current("1", read_manifest(kept).valid_until))
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        yield client


def download(mlflow_url: str, task: str, folder: Path) -> None:
    """Every file of a task's first version."""
    root = MlflowClient(mlflow_url, mlflow_url).get_model_version_download_uri(task, "1")
    path = root.removeprefix("mlflow-artifacts:").lstrip("/")
    artefacts = f"{mlflow_url}/api/2.0/mlflow-artifacts/artifacts"
    below = [""]
    while below:
        place = below.pop()
        for file in httpx.get(artefacts, params={"path": f"{path}{place}"}).raise_for_status().json()["files"]:
            name = f"{place}/{file['path']}"
            if file["is_dir"]:
                (folder / name[1:]).mkdir()
                below.append(name)
            else:
                content = httpx.get(f"{artefacts}/{path}{name}").raise_for_status().content
                (folder / name[1:]).write_bytes(content)


def retrain(engine: Engine, registry: Registry, schema: Schema, num_windows: int, home: Path, **how: str) -> str | None:
    return run_cycle(
        engine,
        registry,
        claim(engine, schema, cutoff_after(num_windows)),
        settings=settings(home).model_copy(update=how),
        now=lambda: moment(num_windows),
        report=Story(),
    )


async def ask(client: httpx.AsyncClient, num_windows: float | None, **changes: str) -> tuple[int, Any]:
    at = {} if num_windows is None else {"at": format_moment(int(cutoff_after(0) + num_windows * 3_600_000_000))}
    answer = await client.get("/predict", params={**ROW, **at, **changes})
    return answer.status_code, answer.json()


async def test_each_kind_of_moment_has_its_verdict(client: httpx.AsyncClient) -> None:
    """A gap in the past is between moments that were learned from, so it is answered; its error nobody expects."""
    status, before = await ask(client, -0.5)
    assert (status, before["type"], before["side"]) == (422, "/problems/outside-horizon", "before")
    status, gap = await ask(client, GAP + 0.5)
    assert (status, gap["expected_error"]) == (200, None)
    assert math.isclose(sum(gap["probabilities"].values()), 1, rel_tol=1e-6)
    status, ahead = await ask(client, NUM_WINDOWS + 0.5)
    assert status == 200
    assert ahead["expected_error"] > 0
    status, beyond = await ask(client, NUM_WINDOWS + 1000)
    assert (status, beyond["type"], beyond["side"]) == (422, "/problems/outside-horizon", "beyond")
    assert before["valid_until"] == beyond["valid_until"] == format_moment(cutoff_after(NUM_WINDOWS + 2))
    status, expired = await ask(client, None)
    assert (status, expired["type"]) == (503, "/problems/model-expired")


@pytest.mark.parametrize("far", ["1e12", "-1e12", "1e300"])
async def test_a_feature_far_outside_of_what_was_learned_from_is_answered_as_its_bound(
    client: httpx.AsyncClient, far: str
) -> None:
    """Numbers are encoded within bounds, so what is beyond them counts as being at them."""
    status, answer = await ask(client, NUM_WINDOWS + 0.5, x=far)
    nearer = await ask(client, NUM_WINDOWS + 0.5, x=f"{math.copysign(1e9, float(far)):g}")
    assert status == 200
    assert all(math.isfinite(share) for share in answer["probabilities"].values())
    assert (nearer[0], unnamed(nearer[1])) == (status, unnamed(answer))


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the device that is asked for is there")
async def test_three_failed_cycles_show_as_stale_and_the_expired_version_no_longer_answers_for_now(
    engine: Engine, database_url: str, registry: Registry, schema: Schema, tmp_path: Path
) -> None:
    assert retrain(engine, registry, schema, NUM_WINDOWS, tmp_path) == "released"
    for later in (1, 2, 3):
        assert retrain(engine, registry, schema, NUM_WINDOWS + later, tmp_path, device="cuda") == "failed"
    name = schema.task.name
    async with serving(service_settings(database_url, tmp_path / "service", mlflow_url=registry.url)) as client:
        status = await wait_for(client, f"/tasks/{name}", lambda found: found["champion"] is not None)
        assert (status["state"], status["stale"], status["num_failed"]) == ("expired", True, 3)
        assert "The settings require the device cuda" in status["stale_reason"]
        code, problem = await ask(client, None)
        assert (code, problem["type"]) == (503, "/problems/model-expired")
        metrics = (await client.get("/metrics")).text
    assert f'morrow_cycles_failed{{task="{name}"}} 3.0' in metrics
    (since,) = (line for line in metrics.splitlines() if line.startswith("morrow_seconds_since_release{"))
    assert float(since.split()[-1]) > 3 * 3600


def test_a_version_holds_no_pickle_and_loading_it_unpickles_nothing(
    engine: Engine, registry: Registry, mlflow_url: str, schema: Schema, tmp_path: Path
) -> None:
    assert retrain(engine, registry, schema, NUM_WINDOWS, tmp_path) == "released"
    folder = tmp_path / "version"
    folder.mkdir()
    download(mlflow_url, schema.task.name, folder)
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"MLmodel", "model.onnx", "rate.onnx", "manifest.json"}
    assert {file.suffix or file.name for file in files} <= PLAIN
    for file in files:
        # A pickle ends with a full stop and begins with its protocol; torch's are ZIP archives.
        assert not file.read_bytes().startswith((b"\x80", b"PK")), file
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.stdout.split() == [str(cutoff_after(NUM_WINDOWS)), "3"], loaded.stderr
