"""A hundred swaps in one real API process that is asked all the while: no error, and neither memory nor disk grows."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import httpx
import psutil
import pytest
from sqlalchemy import Engine

from cli.local.peak_memory import measure_memory
from contracts.clock import format_moment
from contracts.manifest import read_manifest
from tests.e2e.processes import impatient_environment, process, tell, wait_for
from tests.integration.artefacts import move_alias, publish
from tests.integration.drifting_task import Story, claim, cutoff_after, define, drifting_task, settings
from tests.integration.published_versions import note
from tests.servers import wait_until_healthy
from trainer.evaluation.fit_store import candidate_folder
from trainer.retraining.cycle import run_cycle
from trainer.tracking.registry import Registry

pytestmark = pytest.mark.story

NUM_SWAPS, FIRST_MEASURED = 100, 5
NUM_WINDOWS = 8
# More than the service keeps, so that each swap downloads, and removes, a version.
NUM_VERSIONS = 4
MOST_GROWTH = 0.10
# Large enough for one version that is kept a swap to show: about a megabyte of weights in two graphs.
TRAINING = {"num_seeds": 8, "calendar": [], "width": 128, "num_layers": 2, "pretrain_epochs": 1, "finetune_epochs": 0}


def test_a_hundred_swaps_leave_no_error_no_memory_and_no_copies_behind(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    task, log = drifting_task(training=TRAINING), tmp_path / "log"
    schema, cutoff = define(engine, task, NUM_WINDOWS), cutoff_after(NUM_WINDOWS)
    state = run_cycle(
        engine,
        Registry(mlflow_url),
        claim(engine, schema, cutoff),
        settings=settings(tmp_path / "trainer"),
        now=lambda: datetime.now(UTC),
        report=Story(),
    )
    assert state == "released"
    trained = candidate_folder(tmp_path / "trainer", task, cutoff)
    valid_until = read_manifest(trained).valid_until
    versions = [publish(mlflow_url, task.name, trained, champion=False) for _ in range(NUM_VERSIONS)]
    for version in versions:
        note(engine, schema, version, "release", valid_until=valid_until)

    home = tmp_path / "home"
    environment = impatient_environment(database_url, mlflow_url, home) | {"MORROW_POLL_SECONDS": "0.05"}
    url, question = f"http://127.0.0.1:{environment['MORROW_PORT']}", {"x": "0.5", "kind": "a"}
    asked = {"task": task.name, "at": format_moment(cutoff), **question}
    resident, proportional = list[int](), list[int]()
    stopping = threading.Event()
    with (
        process("service", environment, log) as api,
        ThreadPoolExecutor(2) as pool,
        httpx.Client(base_url=url) as client,
    ):
        wait_until_healthy(f"{url}/livez", api, seconds=60)
        wait_for("the first answer", lambda: client.get("/predict", params=asked).status_code == 200, log)
        clients = [pool.submit(ask_on, url, asked, stopping) for _ in range(2)]
        try:
            for k in range(NUM_SWAPS):
                version = versions[k % NUM_VERSIONS]
                move_alias(mlflow_url, task.name, version)
                wait_for(f"swap {k + 1}", partial(is_served, client, asked, version), log)
                measured = psutil.Process(api.pid)
                resident.append(measured.memory_info().rss)
                proportional.append(measure_memory(measured))
        finally:
            stopping.set()
        heard = sum((one.result() for one in clients), Counter[tuple[int, str]]())

    kept = {path.name for path in (home / "models" / task.name).iterdir()}
    for name, sizes in (("resident", resident), ("proportional", proportional)):
        first, last = (size_around(sizes, swap) for swap in (FIRST_MEASURED, NUM_SWAPS))
        tell(f"{name} memory after swap {FIRST_MEASURED} {first:.1f} MiB, after swap {NUM_SWAPS} {last:.1f} MiB")
    tell(f"answers by status and version: {dict(heard)}")
    assert {status for status, _ in heard} == {200}
    assert {version for _, version in heard} >= set(versions)
    assert log.read_text().count('"model.swapped"') == NUM_SWAPS + 1
    assert kept == {"current.json", versions[(NUM_SWAPS - 1) % NUM_VERSIONS], versions[(NUM_SWAPS - 2) % NUM_VERSIONS]}
    # Not the proportional share: it depends on other processes that map the same libraries.
    most = (1 + MOST_GROWTH) * size_around(resident, FIRST_MEASURED)
    assert size_around(resident, NUM_SWAPS) <= most, [size >> 20 for size in resident]


def size_around(sizes: list[int], swap: int) -> float:
    """MiB after a swap: the median of up to five swaps around, for a load in progress takes some for a moment."""
    return median(sizes[swap - 3 : swap + 2]) / 2**20


def ask_on(url: str, question: dict[str, str], stopping: threading.Event) -> Counter[tuple[int, str]]:
    """Ask again and again until told to stop; how often each status came from each version."""
    heard = Counter[tuple[int, str]]()
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stopping.is_set():
            found = client.get("/predict", params=question)
            heard[found.status_code, found.json().get("version", "")] += 1
            stopping.wait(0.02)
    return heard


def is_served(client: httpx.Client, question: dict[str, str], version: str) -> bool:
    found = client.get("/predict", params=question)
    return found.status_code == 200 and found.json()["version"] == version
