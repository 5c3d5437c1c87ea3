"""What happens to a deployment while clients go on: windows end, versions change, a bad window closes a horizon.

Everything is requested by the API, as an operator or a scheduler would. Each act ends when the API reports that it has
happened.
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
    """The deployment as the story sees it; `check` raises if a process has ended."""

    api: httpx.Client
    task: str
    present: Present
    ledger: Ledger
    client: Client
    check: Callable[[], object] = lambda: None
    acts: Counter[str] = field(default_factory=Counter)

    def get(self, path: str = "") -> Any:
        return self.api.get(f"/tasks/{self.task}{path}").raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.api.post(f"/tasks/{self.task}{path}", json=body).raise_for_status().json()

    def await_that(self, what: str, find: Callable[[], T | None]) -> T:
        """What `find` returns once it is not None. Raises Stuck."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while time.monotonic() < deadline:
            self.check()
            if (found := find()) is not None:
                return found
            time.sleep(0.2)
        raise Stuck(f"{what} did not happen within {_LIMIT_SECONDS:g} s")

    def await_champion(self, version: str, but_not_until: str | None = None) -> str:
        """The bound of a version once it answers with another bound than the one given."""

        def find() -> str | None:
            champion = self.get()["champion"]
            is_it = champion is not None and champion["version"] == version
            return champion["valid_until"] if is_it and champion["valid_until"] != but_not_until else None

        return self.await_that(f"version {version} with another bound than {but_not_until}", find)


def retrain(stage: Stage) -> None:
    """Run the cycle of the last boundary, and wait until its version answers."""
    cycle_id = stage.post("/cycles", {"as_of": format_moment(window_start(stage.present.window))})["id"]

    def find() -> Any:
        (cycle,) = (cycle for cycle in stage.get("/cycles")["cycles"] if cycle["id"] == cycle_id)
        return None if cycle["state"] in _WAITING else cycle

    cycle = stage.await_that("the end of the cycle", find)
    stage.acts[f"cycles {cycle['state']}"] += 1
    if cycle["state"] == "released":
        stage.await_champion(cycle["version"])


def end_window(stage: Stage) -> None:
    """Go on to the next window once the present one has enough events, and retrain."""
    start = window_start(stage.present.window)
    stage.await_that("a full window", lambda: True if stage.ledger.count_in_window(start) >= ROWS_PER_WINDOW else None)
    stage.present.window += 1
    retrain(stage)


def spoil_and_mend(stage: Stage) -> None:
    """Post a window with every label wrong, which closes the horizon; correct each, which reopens it."""
    champion = stage.get()["champion"]
    version, promised, window = champion["version"], champion["valid_until"], stage.present.window + 1
    if window_start(window + 1) > parse_moment(promised):
        stage.acts["bad windows beyond the horizon"] += 1
        return
    right = list(make_rows(window, f"bad-{stage.acts['closings']}", seed=window))
    stage.client.deliver([row.with_other_label() for row in right])
    closed = stage.await_champion(version, but_not_until=promised)
    stage.acts["closings"] += 1
    for row in right:
        stage.client.correct(row)
    stage.await_champion(version, but_not_until=closed)
    stage.acts["reopenings"] += 1


def roll_back(stage: Stage) -> None:
    """Let the former champion answer, if there is one."""
    version = stage.get()["champion"]["version"]
    answer = stage.api.post(f"/tasks/{stage.task}/rollback", json={"reason": "mixed load"})
    if answer.status_code == 409:
        return
    stage.await_champion(answer.raise_for_status().json()["version"])
    stage.acts["rollbacks"] += 1
    assert stage.get()["champion"]["version"] != version


ACTS = (spoil_and_mend, end_window, end_window, roll_back)
