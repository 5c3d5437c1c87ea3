"""The follower against real MLflow and PostgreSQL: what answers, what is refused, what a restart keeps."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import anyio
import httpx
import pytest
from mlflow import MlflowClient
from sqlalchemy import Connection, Engine

from contracts.calibration import LEVELS, AgeQuantiles, Calibration
from contracts.catalog import define_task, find_task
from contracts.clock import format_moment
from contracts.database import make_engine
from contracts.errors import NoModel, NotFound, NotLoaded, OutsideHorizon
from contracts.manifest import MANIFEST_FILE
from contracts.releases import Action, record_release
from contracts.task import Task
from service.answers import Answer
from service.follower import Follower
from service.literals import json_moment
from service.metrics import Metrics
from service.store import Store
from service.structs import Row
from tests.integration.artefacts import CUTOFF, WEEK, move_alias, publish, remove_alias, write_version
from tests.integration.releasing import define, note
from tests.integration.serving import TASK, service_settings, serving

NOW = datetime(2026, 2, 1, tzinfo=UTC)
DEAD = "postgresql+psycopg://nobody@127.0.0.1:9/morrow"

MakeFollower = Callable[..., Follower]


@pytest.fixture
def task(engine: Engine) -> str:
    """A task of its own name, for the MLflow server is shared."""
    name = f"flights_{uuid4().hex[:8]}"
    with engine.begin() as connection:
        define_task(connection, Task.model_validate({**TASK, "name": name}), NOW)
    return name


@pytest.fixture
def make_follower(engine: Engine, mlflow_url: str, tmp_path: Path) -> Iterator[MakeFollower]:
    """Followers of one home; offline ones reach neither store nor registry."""
    with ExitStack() as opened:

        def make(*, offline: bool = False) -> Follower:
            url = "http://127.0.0.1:9" if offline else mlflow_url
            store = Store(make_engine(DEAD) if offline else engine, places=2, seconds=5)
            opened.callback(store.close)
            follower = Follower(service_settings(DEAD, tmp_path / "home", mlflow_url=url), store, Metrics())
            opened.callback(follower.close)
            follower.restore()
            return follower

        yield make


def ask(follower: Follower, task: str, at: int = CUTOFF) -> Answer:
    return follower.find(task).answer(Row(at, (1400.0, 3.5), ("UA",)), 0)


def test_a_task_without_a_champion_is_ok_and_says_that_there_is_no_model(
    make_follower: MakeFollower, task: str
) -> None:
    follower = make_follower()
    follower.poll(0)
    assert follower.registries[task].state == "ok"
    assert follower.is_ready
    with pytest.raises(NoModel):
        follower.find(task)
    with pytest.raises(NotFound):
        follower.find("nosuch")


def test_a_released_version_that_is_not_loaded_yet_is_told_from_none(
    make_follower: MakeFollower, engine: Engine
) -> None:
    schema = define(engine)
    note(engine, schema, "7", "release")
    follower = make_follower()
    follower.poll(0)
    with pytest.raises(NotLoaded, match=r"Version 7 is released\. This process has not loaded it yet\."):
        follower.find(schema.task.name)


def test_the_champion_answers_and_a_restart_offline_answers_the_same(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    answer = ask(follower, task)
    assert answer.version == version
    assert follower.registries[task].champion == version
    offline = make_follower(offline=True)
    assert ask(offline, task) == answer
    offline.poll(0)
    assert ask(offline, task) == answer
    assert offline.registries[task].state == "degraded"
    assert offline.registries[task].reason == "The registry does not answer."
    assert offline.is_ready


def test_the_follower_swaps_to_the_version_that_the_alias_names_and_keeps_the_previous_one(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    follower = make_follower()
    shares = []
    for name, bias in [("one", 0.0), ("two", 1.0), ("three", 2.0)]:
        version = publish(mlflow_url, task, write_version(tmp_path / name, task=task, bias=bias))
        follower.poll(0)
        answer = ask(follower, task)
        assert answer.version == version
        assert isinstance(answer.probabilities, dict)
        shares.append(answer.probabilities["on_time"])
    assert shares == sorted(set(shares))
    kept = {path.name for path in (tmp_path / "home" / "models" / task).iterdir()}
    assert kept == {"2", "3", "current.json"}
    move_alias(mlflow_url, task, "2")
    follower.poll(0)
    assert ask(follower, task).version == "2"


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


def test_without_the_alias_the_last_version_goes_on_and_the_status_is_degraded(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    remove_alias(mlflow_url, task)
    follower.poll(1)
    assert ask(follower, task).version == version
    assert "names no champion" in str(follower.registries[task].reason)
    move_alias(mlflow_url, task, version)
    follower.poll(2)
    assert follower.registries[task].state == "ok"


def test_without_the_registered_model_the_last_version_goes_on_and_the_status_is_degraded(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    MlflowClient(mlflow_url, mlflow_url).delete_registered_model(task)
    follower.poll(1)
    assert ask(follower, task).version == version
    assert follower.registries[task].state == "degraded"


def record(
    connection: Connection,
    task: str,
    version: str,
    action: Action,
    valid_until: int,
    *,
    calibration: Calibration | None = None,
) -> None:
    """One row of `releases`."""
    task_id = find_task(connection, task).task_id
    record_release(
        connection,
        task_id,
        version,
        action=action,
        valid_until=valid_until,
        calibration=calibration,
        actor="test",
        reason="drift",
        now=NOW,
    )


def test_a_release_row_moves_the_horizon_and_a_restart_offline_remembers_it(
    make_follower: MakeFollower, task: str, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    assert json_moment(ask(follower, task).valid_until) == CUTOFF + 2 * WEEK
    for bound in (CUTOFF + WEEK, CUTOFF + 2 * WEEK, CUTOFF + WEEK // 2):
        with engine.begin() as connection:
            record(connection, task, version, "close", bound)
        follower.poll(1)
        assert ask(follower, task).valid_until == format_moment(bound)
        assert ask(make_follower(offline=True), task).valid_until == format_moment(bound)


def calibrated(half: float) -> Calibration:
    """An interval of so many scales at age 0."""
    return Calibration(1.0, [AgeQuantiles(0, 1000, [half] * len(LEVELS))])


def width(answer: Answer) -> float | None:
    """Half of an interval, in scales."""
    if not isinstance(answer.interval, list):
        return None
    assert isinstance(answer.scale, float)
    return round((answer.interval[1] - answer.interval[0]) / (2 * answer.scale), 6)


def test_a_calibrate_row_counts_within_a_look_and_a_restart_offline_remembers_it(
    make_follower: MakeFollower, task: str, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    spec = {"target": {"name": "delay", "kind": "regression"}}
    folder = write_version(tmp_path / "one", task=task, spec=spec, calibration=calibrated(1.0))
    version = publish(mlflow_url, task, folder)
    follower = make_follower()
    follower.poll(0)
    session = follower.find(task).session

    def widths() -> list[float | None]:
        return [width(ask(one, task, CUTOFF + 1)) for one in (follower, make_follower(offline=True))]

    assert widths() == [1.0, 1.0]
    rows: list[tuple[Action, Calibration | None, int, float]] = [
        ("close", None, CUTOFF + WEEK, 1.0),
        ("calibrate", calibrated(2.0), CUTOFF + WEEK, 2.0),
        ("reopen", None, CUTOFF + 2 * WEEK, 2.0),
    ]
    for action, calibration, bound, expected in rows:
        with engine.begin() as connection:
            record(connection, task, version, action, bound, calibration=calibration)
        follower.poll(1)
        assert widths() == [expected, expected]
        for one in (follower, make_follower(offline=True)):
            assert one.find(task).valid_until == bound
    assert follower.find(task).session is session


def test_where_the_current_copy_is_damaged_the_previous_one_answers_within_its_own_bound(
    make_follower: MakeFollower, task: str, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    follower = make_follower()
    for name in ("one", "two"):
        version = publish(mlflow_url, task, write_version(tmp_path / name, task=task))
        if name == "one":
            with engine.begin() as connection:
                record(connection, task, version, "close", CUTOFF + WEEK)
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
    make_follower: MakeFollower, task: str, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    follower = make_follower()
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
    with engine.begin() as connection:
        record(connection, task, "1", "close", CUTOFF + WEEK)
    restarted.poll(2)
    for one in (restarted, make_follower(offline=True)):
        assert one.find(task).version == "1"
        assert one.find(task).valid_until == CUTOFF + WEEK
    third = publish(mlflow_url, task, write_version(tmp_path / "three", task=task))
    restarted.poll(3)
    assert ask(restarted, task).version == third == "3"
    assert {path.name for path in home.iterdir()} == {"1", "3", "current.json"}


def test_a_registry_that_does_not_answer_costs_a_bounded_time(make_follower: MakeFollower, task: str) -> None:
    follower = make_follower(offline=True)
    follower.learn(task, 1)
    started = time.monotonic()
    follower.poll(0)
    assert time.monotonic() - started < 10
    assert follower.registries[task].state == "degraded"
    assert not follower.is_ready


@pytest.mark.anyio
async def test_no_request_fails_or_mixes_versions_while_versions_are_swapped(
    database_url: str, mlflow_url: str, engine: Engine, task: str, tmp_path: Path
) -> None:
    publish(mlflow_url, task, write_version(tmp_path / "0", task=task))
    settings = service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url, poll_seconds=0.05)
    query = {"task": task, "at": "2026-02-01T00:00:00Z", "distance": "0", "carrier": "other"}
    shares: dict[str, set[float]] = {}
    done = False

    async def load(client: httpx.AsyncClient) -> None:
        while not done:
            await anyio.sleep(0)
            answer = await client.get("/predict", params=query)
            assert answer.status_code == 200
            found = answer.json()
            shares.setdefault(found["version"], set()).add(found["probabilities"]["on_time"])

    async with serving(settings) as client:
        with anyio.fail_after(20):
            while (await client.get("/predict", params=query)).status_code != 200:
                await anyio.sleep(0.05)
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(load, client)
            for number in range(1, 5):
                folder = write_version(tmp_path / str(number), task=task, bias=number)
                version = await anyio.to_thread.run_sync(publish, mlflow_url, task, folder)
                with anyio.fail_after(20):
                    while version not in shares:
                        await anyio.sleep(0.02)
            done = True
    assert list(shares) == ["1", "2", "3", "4", "5"]
    assert all(len(found) == 1 for found in shares.values())
    assert len(set.union(*shares.values())) == 5
