"""What happens to a deployment while clients go on: windows end, versions come and go, a bad window closes a horizon.

Everything is asked for by the API, as an operator or a scheduler would; each act ends when the API says that it has
come about.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from benchmarks.errors import Stuck
from benchmarks.mixed.clients import Client
from benchmarks.mixed.ledger import Ledger
from benchmarks.mixed.stream import ROWS_PER_WINDOW, Present, make_rows, window_start
from contracts.clock import format_moment, parse_moment

T = TypeVar("T")

_LIMIT_SECONDS = 180.0
_WAITING = ("requested", "running")


@dataclass
class Stage:
    """The deployment as whoever tells the story has it; `check` raises where a process has ended."""

    api: httpx.Client
    task: str
    present: Present
    ledger: Ledger
    client: Client
    check: Callable[[], object] = lambda: None
    told: Counter[str] = field(default_factory=Counter)

    def get(self, path: str = "") -> Any:
        return self.api.get(f"/tasks/{self.task}{path}").raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.api.post(f"/tasks/{self.task}{path}", json=body).raise_for_status().json()

    def await_that(self, what: str, find: Callable[[], T | None]) -> T:
        """What is found once it is there. Raises Stuck."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while time.monotonic() < deadline:
            self.check()
            if (found := find()) is not None:
                return found
            time.sleep(0.2)
        raise Stuck(f"{what} did not come about within {_LIMIT_SECONDS:g} s")

    def await_champion(self, version: str, but_not_until: str | None = None) -> str:
        """Until when a version is valid, once it answers, with another bound than the one given."""

        def find() -> str | None:
            champion = self.get()["champion"]
            is_it = champion is not None and champion["version"] == version
            return champion["valid_until"] if is_it and champion["valid_until"] != but_not_until else None

        return self.await_that(f"version {version} with another bound than {but_not_until}", find)


def retrain(stage: Stage) -> None:
    """Have the cycle of the last boundary run; what is released then answers."""
    cycle_id = stage.post("/cycles", {"as_of": format_moment(window_start(stage.present.window))})["id"]

    def find() -> Any:
        (cycle,) = (cycle for cycle in stage.get("/cycles")["cycles"] if cycle["id"] == cycle_id)
        return None if cycle["state"] in _WAITING else cycle

    cycle = stage.await_that("the end of the cycle", find)
    stage.told[f"cycles {cycle['state']}"] += 1
    if cycle["state"] == "released":
        stage.await_champion(cycle["version"])


def end_window(stage: Stage) -> None:
    """Go on to the next window once the present one has enough events, and retrain."""
    start = window_start(stage.present.window)
    stage.await_that("a full window", lambda: True if stage.ledger.count_in_window(start) >= ROWS_PER_WINDOW else None)
    stage.present.window += 1
    retrain(stage)


def spoil_and_mend(stage: Stage) -> None:
    """Post a window with every label wrong, which closes the horizon; then correct each of them, which reopens it."""
    champion = stage.get()["champion"]
    version, promised, window = champion["version"], champion["valid_until"], stage.present.window + 1
    if window_start(window + 1) > parse_moment(promised):
        stage.told["bad windows beyond the horizon"] += 1
        return
    right = list(make_rows(window, f"bad-{stage.told['closings']}", seed=window))
    stage.client.deliver([row.with_other_label() for row in right])
    closed = stage.await_champion(version, but_not_until=promised)
    stage.told["closings"] += 1
    for row in right:
        stage.client.correct(row)
    stage.await_champion(version, but_not_until=closed)
    stage.told["reopenings"] += 1


def roll_back(stage: Stage) -> None:
    """Have the former champion answer, where there is one."""
    version = stage.get()["champion"]["version"]
    answer = stage.api.post(f"/tasks/{stage.task}/rollback", json={"reason": "mixed load"})
    if answer.status_code == 409:
        return
    stage.await_champion(answer.raise_for_status().json()["version"])
    stage.told["rollbacks"] += 1
    assert stage.get()["champion"]["version"] != version


ACTS = (spoil_and_mend, end_window, end_window, roll_back)
