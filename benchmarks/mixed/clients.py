"""Producers and askers of one task, each in a thread. They record what they send and hear, and retry.

A producer that gets 503 or no answer sends the same again until it is acknowledged, even after it was told to stop. So
at the end nothing is left between sent and acknowledged, unless the service stays away.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
import numpy as np

from benchmarks.mixed.ledger import Ledger
from benchmarks.mixed.stream import NUM_KNOWN_WINDOWS, WINDOW, Present, Row, make_row, make_rows, window_start
from contracts.clock import format_moment

Verb = Literal["POST event", "POST events", "POST lines", "PUT event", "GET predict", "POST predict"]
PREDICT: tuple[Verb, Verb] = ("GET predict", "POST predict")
NO_ANSWER = 0

_PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.02
_RETRY_SECONDS = 0.1
_NDJSON = {"Content-Type": "application/x-ndjson"}


@dataclass(frozen=True)
class Heard:
    """One reply of /predict: the rows asked, when (wall clock, seconds), and what was said."""

    asked: Sequence[Row]
    sent: float
    received: float
    status: int
    body: Any


@dataclass
class Record:
    """What all clients of a run have heard. `faults` are replies that no client may get."""

    counts: Counter[tuple[Verb, int]] = field(default_factory=Counter)
    heard: list[Heard] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0

    def statuses(self, verbs: Sequence[Verb]) -> Counter[int]:
        """How often each status came for these verbs; 0 means no answer."""
        found: Counter[int] = Counter()
        for (verb, status), count in self.counts.items():
            if verb in verbs:
                found[status] += count
        return found

    def describe(self) -> str:
        """The counts in words, for people."""
        verbs = dict.fromkeys(verb for verb, _ in sorted(self.counts))
        parts = []
        for verb in verbs:
            statuses = sorted(self.statuses([verb]).items())
            parts.append(f"{verb} " + ", ".join(f"{count} × {status or 'no answer'}" for status, count in statuses))
        return "; ".join(parts)


class Client:
    """One thread's connection to one API process."""

    def __init__(
        self, url: str, task: str, ledger: Ledger, record: Record, *, seed: int, pause: float = PAUSE_SECONDS
    ) -> None:
        self._http = httpx.Client(base_url=url, timeout=60, params={"task": task})
        self._name = f"{seed}-{time.time_ns():x}"
        self._ledger = ledger
        self._record = record
        self._rng = np.random.default_rng(seed)
        self._pause = pause

    def close(self) -> None:
        self._http.close()

    def produce(self, present: Present, stopping: threading.Event) -> None:
        """Post single events, and now and then a correction of the last one."""
        for k in _until(stopping, self._pause):
            row = make_row(self._rng, f"{self._name}-{k}", self._moment(present.window, 1))
            self._deliver([row], "POST event")
            if k % 4 == 0:
                self._deliver([make_row(self._rng, row.event_id, row.at)], "PUT event")

    def produce_many(self, present: Present, stopping: threading.Event) -> None:
        """Post arrays and lines by turns."""
        for k in _until(stopping, 20 * self._pause):
            rows = [
                make_row(self._rng, f"{self._name}-{k}-{place}", self._moment(present.window, 1)) for place in range(10)
            ]
            self._deliver(rows, "POST lines" if k % 2 else "POST events")

    def ask(self, present: Present, stopping: threading.Event) -> None:
        """Ask for one row by GET, from the oldest row to beyond every horizon; for some of the past by POST."""
        for k in _until(stopping, self._pause):
            num_rows, num_windows = (1, present.window + 4) if k % 4 else (2 + k % 31, present.window)
            self._ask([make_row(self._rng, "", self._moment(0, num_windows)) for _ in range(num_rows)])

    def correct(self, row: Row) -> None:
        """Replace the content of an acknowledged event."""
        self._deliver([row], "PUT event")

    def deliver(self, rows: Sequence[Row]) -> None:
        """Post new events until they are acknowledged. Raises AssertionError if the service stays away."""
        self._deliver(rows, "POST events")

    def _moment(self, first: int, num_windows: int) -> int:
        return window_start(first) + int(self._rng.integers(num_windows * WINDOW))

    def _deliver(self, rows: Sequence[Row], verb: Verb) -> None:
        for row in rows:
            self._ledger.send(row)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = self._request(verb, rows)
            if found is not None and found.status_code == 200:
                if not _is_whole(verb, found.json(), len(rows)):
                    self._record.faults.append(f"{verb}: {found.text[:500]}")
                    return
                for row in rows:
                    self._ledger.acknowledge(row)
                return
            if found is not None and found.status_code not in (429, 503):
                return  # `_request` has recorded the fault
            time.sleep(_RETRY_SECONDS)
        self._record.faults.append(f"{verb} was not acknowledged within {_PATIENCE_SECONDS:g} s")

    def _ask(self, rows: Sequence[Row]) -> None:
        sent = time.time()
        found = self._request("GET predict" if len(rows) == 1 else "POST predict", rows)
        if found is not None:
            self._record.heard.append(Heard(rows, sent, time.time(), found.status_code, found.json()))

    def _request(self, verb: Verb, rows: Sequence[Row]) -> httpx.Response | None:
        """The answer, recorded; None if there was none."""
        began = time.monotonic()
        try:
            found = self._send(verb, rows)
        except httpx.TransportError:
            self._record.counts[verb, NO_ANSWER] += 1
            return None
        self._record.counts[verb, found.status_code] += 1
        self._record.slowest_seconds = max(self._record.slowest_seconds, time.monotonic() - began)
        may_be_outside = found.status_code == 422 and verb in PREDICT
        is_told_to_wait = found.status_code in (429, 503) and "Retry-After" in found.headers
        if not (found.status_code == 200 or may_be_outside or is_told_to_wait):
            self._record.faults.append(f"{verb}: {found.status_code} {found.text[:500]}")
        return found

    def _send(self, verb: Verb, rows: Sequence[Row]) -> httpx.Response:
        documents = [row.document() for row in rows]
        match verb:
            case "POST event":
                return self._http.post("/events", json=documents[0])
            case "POST events":
                return self._http.post("/events", json=documents)
            case "POST lines":
                return self._http.post("/events", content="\n".join(map(json.dumps, documents)), headers=_NDJSON)
            case "PUT event":
                return self._http.put(f"/events/{rows[0].event_id}", json=documents[0])
            case "GET predict":
                question = {"at": documents[0]["at"], "x": repr(rows[0].x), "kind": rows[0].kind}
                return self._http.get("/predict", params=question)
            case "POST predict":
                asked = [{"at": format_moment(row.at), "features": {"x": row.x, "kind": row.kind}} for row in rows]
                return self._http.post("/predict", json={"rows": asked})


def _is_whole(verb: Verb, body: Any, num_rows: int) -> bool:
    """Whether a 200 acknowledges every row."""
    if verb == "PUT event":
        return body["status"] in ("corrected", "duplicate")
    return bool(body["created"] + body["duplicates"] == num_rows)


def _until(stopping: threading.Event, pause: float) -> Iterator[int]:
    k = 0
    while not stopping.wait(pause):
        yield k
        k += 1


@contextmanager
def traffic(
    url: str, task: str, present: Present, ledger: Ledger, record: Record, *, pause: float = PAUSE_SECONDS
) -> Iterator[None]:
    """Run two producers of single events, one of many and two askers while the block runs; then let all finish.

    `pause`, in seconds, is what each waits between two requests. Raises what a client raised.
    """
    stopping = threading.Event()
    clients = [Client(url, task, ledger, record, seed=seed, pause=pause) for seed in range(5)]
    one, other, many, asker, second = clients
    try:
        with ThreadPoolExecutor(len(clients)) as pool:
            runs = (one.produce, other.produce, many.produce_many, asker.ask, second.ask)
            jobs = [pool.submit(run, present, stopping) for run in runs]
            try:
                yield
            finally:
                stopping.set()
        for done in jobs:
            done.result()
    finally:
        for client in clients:
            client.close()


def fill_history(client: Client, prefix: str) -> None:
    """Post the windows before the first cutoff."""
    for window in range(NUM_KNOWN_WINDOWS):
        client.deliver(list(make_rows(window, prefix, seed=window)))
