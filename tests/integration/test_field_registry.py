"""The field report on two trainers that reach the registry at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from tests.integration.test_registry import CUTOFF, artefact, new_name, open_run
from trainer.registry import Registry

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
