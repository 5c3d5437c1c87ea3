"""A version that is not what its manifest says is kept out, wherever it broke, and the last good one goes on."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from contracts.errors import NotLoaded, OutsideHorizon
from contracts.manifest import MANIFEST_FILE
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK, move_alias, publish, write_version
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import define, note


def damage_graph(folder: Path) -> None:
    graph = folder / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])


def change_probe(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["probe"]["outputs"][0] = [0.5, 0.5]
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


def reach_outside(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["checksums"]["../../stolen"] = "0"
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


def rename_task(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["task"]["name"] = "other"
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


def break_manifest(folder: Path) -> None:
    (folder / MANIFEST_FILE).write_text("{")


def change_format(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["format_version"] = 99
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


def remove_manifest(folder: Path) -> None:
    (folder / MANIFEST_FILE).unlink()


def damage_artefact(mlflow_url: str, task: str, version: str) -> None:
    """Cut the graph of a registered version short behind the artefact proxy."""
    with httpx.Client(base_url=f"{mlflow_url}/api/2.0", timeout=30) as client:
        uri = client.get(
            "/mlflow/model-versions/get-download-uri", params={"name": task, "version": version}
        ).raise_for_status()
        root = uri.json()["artifact_uri"].removeprefix("mlflow-artifacts:/")
        graph = client.get(f"/mlflow-artifacts/artifacts/{root}/model.onnx").raise_for_status().content
        client.put(f"/mlflow-artifacts/artifacts/{root}/model.onnx", content=graph[:-100]).raise_for_status()


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (damage_graph, "checksum"),
    (change_probe, "probe"),
    (reach_outside, "plain file name"),
    (rename_task, "'other'"),
    (break_manifest, "cannot be read"),
    (change_format, "format 99"),
    (remove_manifest, "missing"),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage[0].__name__)
def test_a_bad_version_is_kept_out_and_the_last_good_one_goes_on(
    make_follower: MakeFollower,
    task: str,
    mlflow_url: str,
    tmp_path: Path,
    damage: tuple[Callable[[Path], None], str],
) -> None:
    break_version, words = damage
    good = publish(mlflow_url, task, write_version(tmp_path / "good", task=task))
    follower = make_follower()
    follower.poll(0)
    bad = write_version(tmp_path / "bad", task=task)
    break_version(bad)
    publish(mlflow_url, task, bad)
    follower.poll(1)
    assert ask(follower, task).version == good
    assert follower.registries[task].state == "degraded"
    assert words in str(follower.registries[task].reason)
    assert ask(make_follower(offline=True), task).version == good
    mended = publish(mlflow_url, task, write_version(tmp_path / "mended", task=task))
    follower.poll(2)
    assert ask(follower, task).version == mended
    assert follower.registries[task].state == "ok"


def test_a_refused_version_is_not_downloaded_again_at_each_look(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    bad = write_version(tmp_path / "bad", task=task)
    damage_graph(bad)
    publish(mlflow_url, task, bad)
    follower = make_follower()
    metrics = follower._metrics
    for now in (0, 1, 9, 11, 12, 29):
        follower.poll(now)
        assert follower.registries[task].state == "degraded"
    assert metrics.registry.get_sample_value("morrow_follower_errors_total", {"kind": "artefact"}) == 2
    assert not follower.is_ready


def test_files_that_are_not_behind_the_proxy_are_refused_in_words(
    make_follower: MakeFollower, task: str, mlflow_url: str
) -> None:
    with httpx.Client(base_url=f"{mlflow_url}/api/2.0/mlflow", timeout=30) as client:
        client.post("/registered-models/create", json={"name": task})
        client.post("/model-versions/create", json={"name": task, "source": "s3://bucket/model"}).raise_for_status()
    move_alias(mlflow_url, task, "1")
    follower = make_follower()
    follower.poll(0)
    assert "--serve-artifacts" in str(follower.registries[task].reason)


def test_where_the_current_copy_is_damaged_the_previous_one_answers_within_its_own_bound(
    make_follower: MakeFollower, schema: Schema, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    task, follower = schema.task.name, make_follower()
    for name in ("one", "two"):
        version = publish(mlflow_url, task, write_version(tmp_path / name, task=task))
        if name == "one":
            note(engine, schema, version, "close", valid_until=CUTOFF + WEEK)
        follower.poll(0)
    assert ask(follower, task, CUTOFF + 2 * WEEK).version == "2"
    home = tmp_path / "home" / "models" / task
    damage_graph(home / "2")
    offline = make_follower(offline=True)
    assert ask(offline, task, CUTOFF + WEEK).version == "1"
    with pytest.raises(OutsideHorizon):
        ask(offline, task, CUTOFF + WEEK + 1)
    assert offline.registries[task].state == "degraded"
    assert "version 2 was refused" in str(offline.registries[task].reason)
    offline.poll(0)
    assert ask(offline, task, CUTOFF + WEEK).version == "1"
    online = make_follower()
    online.poll(0)
    assert ask(online, task, CUTOFF + 2 * WEEK).version == "2"
    assert online.registries[task].state == "ok"
    assert {path.name for path in home.iterdir()} == {"1", "2", "current.json"}


def test_where_copy_and_artefact_are_damaged_the_previous_version_answers_and_the_next_one_takes_over(
    make_follower: MakeFollower, schema: Schema, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    task, follower = schema.task.name, make_follower()
    for name in ("one", "two"):
        publish(mlflow_url, task, write_version(tmp_path / name, task=task))
        follower.poll(0)
    home = tmp_path / "home" / "models" / task
    damage_graph(home / "2")
    damage_artefact(mlflow_url, task, "2")
    restarted = make_follower()
    for now in (0, 1):
        restarted.poll(now)
        assert ask(restarted, task).version == "1"
        assert restarted.registries[task].state == "degraded"
        assert "Version 2 was refused" in str(restarted.registries[task].reason)
    note(engine, schema, "1", "close", valid_until=CUTOFF + WEEK)
    restarted.poll(2)
    for one in (restarted, make_follower(offline=True)):
        assert one.find(task).version == "1"
        assert one.find(task).valid_until == CUTOFF + WEEK
    third = publish(mlflow_url, task, write_version(tmp_path / "three", task=task))
    restarted.poll(3)
    assert ask(restarted, task).version == third == "3"
    assert {path.name for path in home.iterdir()} == {"1", "3", "current.json"}


def test_a_task_whose_only_version_is_broken_takes_no_other_task_out_of_rotation(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    broken, sound = define(engine).task.name, define(engine).task.name
    bad = write_version(tmp_path / "bad", task=broken)
    damage_graph(bad)
    publish(mlflow_url, broken, bad)
    follower = make_follower()
    follower.poll(0)
    assert not follower.is_ready  # nothing at all answers here
    version = publish(mlflow_url, sound, write_version(tmp_path / "good", task=sound))
    for now in (1, 2, 30):
        follower.poll(now)
        assert follower.is_ready
    assert ask(follower, sound).version == version
    assert (follower.registries[broken].state, follower.registries[sound].state) == ("degraded", "ok")
    with pytest.raises(NotLoaded, match="checksum"):
        follower.find(broken)


def test_a_version_that_is_not_loaded_yet_keeps_a_process_out_of_rotation(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    sound, away = define(engine).task.name, define(engine).task.name
    for task in (sound, away):
        publish(mlflow_url, task, write_version(tmp_path / task, task=task))
    folder = tmp_path / "home" / "models" / away
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the folder of copies belongs")
    follower = make_follower()
    follower.poll(0)
    assert sound in follower.forecasters
    assert (follower.registries[away].state, follower.is_ready) == ("degraded", False)
    folder.unlink()
    follower.poll(100)
    assert follower.is_ready
