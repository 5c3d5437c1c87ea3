"""The field reports on a registry: two that write at one moment, an alias that moves under a reader, no network."""

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from mlflow import MlflowClient

from service.models.loader import load_forecaster
from tests.integration.artefacts import move_alias, publish, write_version
from tests.integration.make_follower import QUESTION, MakeFollower, ask
from tests.integration.trainer.test_registry import CUTOFF, artefact, new_name, open_run
from tests.integration.watched_registry import overheard
from trainer.tracking.registry import Registry

HOUR = 3_600_000_000
NUM_ROUNDS = 20


def test_trainers_that_register_at_the_same_moment_get_versions_of_their_own(
    registry: Registry, mlflow_url: str, tmp_path: Path
) -> None:
    name = new_name()
    run_id = open_run(registry, name)
    start = Barrier(2, timeout=120)

    def register(place: int, turn: int) -> str:
        folder = tmp_path / f"{place}-{turn}"
        manifest = artefact(folder, name, CUTOFF + (2 * turn + place) * HOUR)
        start.wait()
        return Registry(mlflow_url).register(folder, manifest, run_id, {})

    with ThreadPoolExecutor(2) as trainers:
        found = [version for turn in range(NUM_ROUNDS) for version in trainers.map(register, (0, 1), (turn, turn))]
    assert sorted(map(int, found)) == list(range(1, 2 * NUM_ROUNDS + 1))


Change = Callable[[MlflowClient, str, str], object]
CHANGES: dict[str, Change] = {
    "the alias moves on": lambda client, task, _: client.set_registered_model_alias(task, "champion", "3"),
    "the alias is removed": lambda client, task, _: client.delete_registered_model_alias(task, "champion"),
    "the version is deleted": lambda client, task, version: client.delete_model_version(task, version),
    "the model is deleted": lambda client, task, _: client.delete_registered_model(task),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_happens_to_the_alias_during_a_download_an_answer_names_the_version_that_gave_it(
    make_follower: MakeFollower, mlflow_url: str, task: str, tmp_path: Path, change: Change
) -> None:
    folders = {f"{k}": write_version(tmp_path / f"{k}", task=task, bias=float(k)) for k in (1, 2, 3)}
    said = {name: load_forecaster(folder, task, name, threads=1).answer(QUESTION) for name, folder in folders.items()}
    assert [publish(mlflow_url, task, folder, champion=name == "1") for name, folder in folders.items()] == [*folders]
    client, changed = MlflowClient(mlflow_url, mlflow_url), list[object]()

    def hear(_: str, path: str) -> None:
        if follower.forecasters and path.endswith("model.onnx"):
            changed.append(change(client, task, "2"))

    with overheard(mlflow_url, hear) as url:
        follower = make_follower(registry=url)
        follower.poll(0)
        assert ask(follower, task) == said["1"]
        move_alias(mlflow_url, task, "2")
        follower.poll(1)
        assert len(changed) == 1
        assert ask(follower, task) == said["2"]
        follower.poll(2)
    goes_on = follower.registries[task].state == "ok"
    assert ask(follower, task) == said["3" if goes_on else "2"]
    assert goes_on == (change is CHANGES["the alias moves on"])


OFFLINE = """
import sys
from pathlib import Path

reached = []

def refuse(event, arguments):
    if event in ("subprocess.Popen", "os.system", "socket.getaddrinfo", "socket.connect"):
        reached.append((event, str(arguments)))
        raise OSError(event)

from trainer.tracking.flavours import save_flavours
from contracts.manifest import read_manifest

sys.addaudithook(refuse)
folder, target = Path(sys.argv[1]), Path(sys.argv[2])
save_flavours(target, folder, read_manifest(folder))
print(reached)
"""


def test_a_version_is_written_without_a_network_or_a_process_that_looks_for_requirements(tmp_path: Path) -> None:
    artefact(tmp_path / "artefact", new_name())
    command = [sys.executable, "-c", OFFLINE, str(tmp_path / "artefact"), str(tmp_path / "version")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert ended.stdout.strip() == "[]"
    required = (tmp_path / "version" / "requirements.txt").read_text().splitlines()
    assert {re.split(r"[<>=]", line)[0] for line in required} == {"mlflow", "numpy", "onnxruntime", "pandas"}
