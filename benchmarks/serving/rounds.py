"""Rounds of load: in each, every server is asked the same way one after the other, so that all meet the same machine.

Every other round goes backwards, so that no server is always first, or always after the busiest. A ratio is taken
within a round, and the median over rounds counts. Requests are counted per second, and per second of the server's own
CPU time, which other work on the machine disturbs least.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.errors import LoadFailed
from benchmarks.serving.load import Load, Requests, put_load
from benchmarks.serving.servers import Server

WARM_UP_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_REST_LIMIT_SECONDS = 5.0
T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """A server and its requests; each request answers `rows` rows."""

    server: Server
    requests: Requests
    rows: int = 1


@dataclass(frozen=True)
class Measured:
    """One load on one server."""

    load: Load
    cpu_seconds: float
    rows: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows * self.load.rate

    @property
    def cpu_rate(self) -> float:
        """Rows per second of the server's CPU time."""
        return self.rows * self.load.num_requests / self.cpu_seconds


@dataclass(frozen=True)
class Compared:
    """Medians over the rounds: ours, the yardstick's, and their ratio, which is taken round by round."""

    ours: float
    yardstick: float
    ratio: float


def run_rounds(
    asked: Mapping[str, Asked], *, num_rounds: int, connections: int, seconds: float, folder: Path
) -> dict[str, list[Measured]]:
    """Run the rounds, after one of a second that does not count."""
    for one in asked.values():
        put_load(one.requests, connections=connections, seconds=WARM_UP_SECONDS, folder=folder)
        await_rest(one.server)
    found: dict[str, list[Measured]] = {name: [] for name in asked}
    order = list(asked.items())
    for _ in range(num_rounds):
        for name, one in order:
            found[name].append(measure(one, connections=connections, seconds=seconds, folder=folder))
            await_rest(one.server)
        order.reverse()
    return found


def measure(asked: Asked, *, connections: int, seconds: float, folder: Path) -> Measured:
    """One load, and the CPU time that the server took for it. Raises LoadFailed if nothing was answered."""
    before = asked.server.cpu_seconds()
    load = put_load(asked.requests, connections=connections, seconds=seconds, folder=folder)
    if load.num_requests == 0:
        raise LoadFailed(f"{asked.server.name} answered nothing within {seconds} s")
    return Measured(load, asked.server.cpu_seconds() - before, asked.rows)


def await_rest(server: Server) -> None:
    """Wait until a server takes less than a fifth of a core, or for five seconds."""
    end = time.monotonic() + _REST_LIMIT_SECONDS
    before = server.cpu_seconds()
    while time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        now = server.cpu_seconds()
        if now - before < _LOOK_SECONDS / 5:
            return
        before = now


def compare(ours: Sequence[T], yardstick: Sequence[T], value: Callable[[T], float]) -> Compared:
    """Ours and the yardstick by one of their figures."""
    mine, other = [value(one) for one in ours], [value(one) for one in yardstick]
    return Compared(median(mine), median(other), median(a / b for a, b in zip(mine, other, strict=True)))


def require_no_errors(found: Mapping[str, Sequence[Measured]]) -> None:
    """Raises LoadFailed if an answer was an error: nothing is compared with a server that fails."""
    for name, rounds in found.items():
        if errors := sum(one.load.num_errors for one in rounds):
            raise LoadFailed(f"{name}: {errors} answers were errors")
