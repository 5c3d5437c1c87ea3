"""GET /predict under load while a new version is swapped in, compared with the same load without a swap.

The new version is the same artefact under the next number. So the service downloads it, checks it against its probe and
swaps it in, and answers to the same rows stay comparable.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.errors import NotSwapped
from benchmarks.serving.load import Load, put_load
from benchmarks.serving.release import Released, give_back, register_again
from benchmarks.serving.rounds import Asked

CONNECTIONS = 32
# The service polls every two seconds, and the download and the probe take part of another.
SECONDS = 6.0
_DELAY_SECONDS = 1.0


@dataclass(frozen=True)
class Swaps:
    """Loads without and with a swap, by turns."""

    quiet: Sequence[Load]
    swapped: Sequence[Load]

    @property
    def num_errors(self) -> int:
        return sum(load.num_errors for load in [*self.quiet, *self.swapped])


def measure_swaps(asked: Asked, released: Released, mlflow_url: str, *, num_rounds: int, folder: Path) -> Swaps:
    """Take this many turns. Raises NotSwapped."""
    quiet, swapped = [], []
    try:
        for _ in range(num_rounds):
            quiet.append(put_load(asked.requests, connections=CONNECTIONS, seconds=SECONDS, folder=folder))
            swapped.append(_swap_under_load(asked, released, mlflow_url, folder))
    finally:
        give_back(mlflow_url, released)
    return Swaps(quiet, swapped)


def _swap_under_load(asked: Asked, released: Released, mlflow_url: str, folder: Path) -> Load:
    registered: list[str] = []

    def register() -> None:
        time.sleep(_DELAY_SECONDS)
        registered.append(register_again(mlflow_url, released))

    before = _answering(asked)
    thread = threading.Thread(target=register, name="register")
    thread.start()
    load = put_load(asked.requests, connections=CONNECTIONS, seconds=SECONDS, folder=folder)
    after = _answering(asked)
    thread.join()
    if [after] != registered:
        raise NotSwapped(f"Version {before} should have given way to {registered}, but {after} answers.")
    return load


def _answering(asked: Asked) -> str:
    """The version that answers now."""
    requests = asked.requests
    answer = httpx.get(requests.url + requests.paths[0], headers=requests.headers, timeout=10, trust_env=False)
    answer.raise_for_status()
    version: str = answer.json()["version"]
    return version
