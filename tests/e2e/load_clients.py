"""What hammers API processes: versions that come and go, clients that ask around every bound, and what they may hear.

What an answer or a refusal says of its version must have been true while the request was under way. A state may end for
a process between the moment at which a change is begun and the moment at which that process has said the new state.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import Engine

from contracts.clock import format_moment, parse_moment, to_micros
from store.releases import Action, record_release
from store.tasks.catalog import Schema, lock_task
from tests.e2e.processes import wait_for
from tests.integration.artefacts import WEEK, move_alias, publish, write_version
from tests.integration.published_versions import note

NUM_VERSIONS = 3
# Between two requests of a client: what is answered while a version changes counts, and the cores are not ours alone.
PAUSE_SECONDS = 0.01
DAY = WEEK // 7
ROW = {"distance": "1400", "carrier": "UA"}
_FEATURES: dict[str, object] = {"distance": 1400, "carrier": "UA"}


@dataclass(frozen=True)
class Version:
    """A published version: when it may answer at the longest, and the earlier bound of its closings (microseconds)."""

    name: str
    trained_from: int
    promised: int
    closed: int


@dataclass(frozen=True)
class State:
    """What a worker is to answer with, from `began` on, until it has `obeyed` the next; monotonic seconds."""

    version: str
    valid_until: int
    began: float
    obeyed: float = math.inf


@dataclass(frozen=True)
class Reply:
    """One request to a worker and what came of it; `at` is None if it was left out."""

    worker: int
    moments: Sequence[int | None]
    sent: float
    received: float
    status: int
    body: Any


class Deployment:
    """Versions, workers, and the states that each worker has been brought to."""

    def __init__(self, engine: Engine, mlflow_url: str, schema: Schema, urls: Sequence[str], log: Path) -> None:
        self._engine, self._mlflow_url, self._schema, self._urls, self._log = engine, mlflow_url, schema, urls, log
        self.versions: dict[str, Version] = {}
        self.bounds: dict[str, int] = {}
        self.champion = ""
        self.states: list[list[State]] = [[] for _ in urls]

    def publish(self, folder: Path, cutoff: int, number: int) -> str:
        """A version whose bounds no other one has; its closed bound is past, the promised one is not."""
        task, horizon = self._schema.task.name, NUM_VERSIONS + 1 - number
        trained_from = cutoff - (8 + number) * WEEK
        made = write_version(
            folder, task=task, bias=number / 4, horizon=horizon, cutoff=cutoff, trained_from=trained_from
        )
        name = publish(self._mlflow_url, task, made, champion=False)
        promised = cutoff + horizon * WEEK
        self.versions[name] = Version(name, trained_from, promised, cutoff - number * DAY)
        self.bounds[name] = promised
        figures = {"cutoff": format_moment(cutoff), "recipe": self._schema.task.recipe, "horizon": horizon}
        note(self._engine, self._schema, name, "release", valid_until=promised, verdict=figures)
        return name

    def change(self, rng: np.random.Generator) -> None:
        """Name another champion; or close or reopen a version, more often than not the champion."""
        if rng.random() < 1 / 3:
            self.name_champion(str(rng.choice([name for name in self.versions if name != self.champion])))
            return
        version = self.versions[self.champion if rng.random() < 0.7 else str(rng.choice([*self.versions]))]
        if self.bounds[version.name] == version.promised:
            self.bound(version.name, "close", version.closed)
        else:
            self.bound(version.name, "reopen", version.promised)

    def name_champion(self, name: str) -> None:
        def change() -> None:
            self.champion = name
            move_alias(self._mlflow_url, self._schema.task.name, name)

        self._bring_about(change)

    def bound(self, name: str, action: Action, valid_until: int) -> None:
        """Write a row as the guard does: while the task's row is held."""

        def change() -> None:
            self.bounds[name] = valid_until
            with self._engine.begin() as connection:
                lock_task(connection, self._schema.task_id)
                record_release(
                    connection,
                    self._schema.task_id,
                    name,
                    action=action,
                    valid_until=valid_until,
                    actor="trainer",
                    reason="a test",
                    now=datetime.now(UTC),
                )

        self._bring_about(change)

    def _bring_about(self, change: Callable[[], None]) -> None:
        began = time.monotonic()
        change()
        version = self.champion
        if not version:
            return
        for states in self.states:
            states.append(State(version, self.bounds[version], began))
        for worker, url in enumerate(self._urls):
            path, expected = f"{url}/tasks/{self._schema.task.name}", (version, format_moment(self.bounds[version]))
            wait_for(f"{expected} at worker {worker}", partial(_says, path, *expected), self._log, seconds=30)
            newest = self.states[worker][-1]
            self.states[worker][-1] = replace(newest, obeyed=time.monotonic())


def _says(path: str, version: str, valid_until: str) -> bool:
    champion = httpx.get(path, timeout=30).raise_for_status().json()["champion"]
    return champion is not None and (champion["version"], champion["valid_until"]) == (version, valid_until)


def hammer(
    url: str,
    worker: int,
    task: str,
    replies: list[Reply],
    *,
    moments: Sequence[int],
    stopping: threading.Event,
    seed: int,
) -> None:
    """Ask one worker again and again, one moment by GET or two or three by POST; note what it replies."""
    rng = np.random.default_rng(seed)
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stopping.wait(PAUSE_SECONDS):
            places = rng.integers(len(moments) + 1, size=int(rng.integers(1, 4)))
            asked = [moments[place] if place < len(moments) else None for place in places]
            rows = [{} if at is None else {"at": format_moment(at)} for at in asked]
            sent = time.monotonic()
            if len(rows) == 1:
                found = client.get("/predict", params={"task": task, **ROW, **rows[0]})
            else:
                found = client.post(
                    "/predict", params={"task": task}, json={"rows": [{"features": _FEATURES} | row for row in rows]}
                )
            replies.append(Reply(worker, asked, sent, time.monotonic(), found.status_code, found.json()))


def judge(reply: Reply, states: Sequence[State], versions: Mapping[str, Version]) -> None:
    """Hold a reply to the states that its worker may have been in while the request was under way."""
    possible = {
        (state.version, state.valid_until)
        for state, ended in zip(states, [*(later.obeyed for later in states[1:]), math.inf], strict=True)
        if state.began <= reply.received and reply.sent <= ended
    }
    for version, valid_until, moments, is_inside in _claims(reply):
        assert (version, valid_until) in possible, f"{reply} does not fit {possible}"
        trained_from = versions[version].trained_from
        assert all(trained_from <= at <= valid_until for at in moments) is is_inside, reply


def _claims(reply: Reply) -> Iterator[tuple[str, int, list[int], bool]]:
    """(version, valid_until, moments, whether they are inside the bounds) of everything that a reply says."""
    body = reply.body
    if reply.status == 200:
        answers: list[dict[str, Any]] = body.get("answers", [body])
        assert len(answers) == len(reply.moments)
        assert len({answer["version"] for answer in answers}) == 1
        for at, answer in zip(reply.moments, answers, strict=True):
            assert at is None or answer["at"] == format_moment(at)
            yield answer["version"], parse_moment(answer["valid_until"]), [parse_moment(answer["at"])], True
        return
    given = [at for at in reply.moments if at is not None]
    if reply.status == 503:
        assert body["type"] == "/problems/model-expired"
        assert len(given) < len(reply.moments)
        found = re.match(r"Version (\d+) was valid until (\S+)\. ", body["detail"])
        assert found is not None
        yield found[1], parse_moment(found[2]), [to_micros(datetime.now(UTC))], False
        return
    assert (reply.status, body["type"]) == (422, "/problems/outside-horizon"), reply
    yield body["version"], parse_moment(body["valid_until"]), given, False
