"""What the log of predictions costs: the same service with every answer logged, and with none.

Both are asked by turns. CPU time is that of the service alone. The database works on the same machine, which the tail
of the answers shows. At last the one that logs is asked for minutes without a pause, and its rows are counted.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from sqlalchemy import text

from benchmarks.ratios import Ratio, larger_is_better, smaller_is_better
from benchmarks.serving.load import put_load
from benchmarks.serving.recipes import RunRounds
from benchmarks.serving.rounds import Asked, Measured, compare
from benchmarks.serving.swaps import CONNECTIONS
from store.engine import make_engine

LOGGED, UNLOGGED = "every answer logged", "no answer logged"
# The least share of its requests that a service keeps with the log, and the longest tail compared with that without.
_LEAST_KEPT, _LONGEST_TAIL = 0.95, 1.2
_SETTLE_SECONDS = 30.0


def measure_log(
    run: RunRounds, asked: Mapping[str, Asked], database_url: str, *, seconds: float, folder: Path
) -> tuple[list[Ratio], list[str]]:
    """Ratios of the two servers in `asked`, and a line on the log after a load of these `seconds`."""
    busy = run(f"GET, {CONNECTIONS} connections", dict(asked), CONNECTIONS)
    calm = run("GET, 1 connection", dict(asked), 1)
    before = _count_rows(database_url)
    load = put_load(asked[LOGGED].requests, connections=CONNECTIONS, seconds=seconds, folder=folder)
    num_logged = _await_rows(database_url, before + load.num_requests) - before
    share = num_logged / load.num_requests
    said = (
        f"{load.num_requests:,} answers in {load.seconds:.0f} s without a pause ({load.rate:,.0f}/s): "
        f"{num_logged:,} rows in the log ({share:.2%})"
    )
    return [*_rates(busy, CONNECTIONS), *_rates(calm, 1), _tail(busy)], [said]


def _rates(rounds: Mapping[str, Sequence[Measured]], connections: int) -> list[Ratio]:
    found = compare(rounds[LOGGED], rounds[UNLOGGED], lambda one: one.cpu_rate)
    name = f"GET, {LOGGED} / {UNLOGGED}, {connections} connection{'s' if connections > 1 else ''}"
    return [
        larger_is_better(
            name,
            found.ours,
            found.yardstick,
            ratio=found.ratio,
            commit=_LEAST_KEPT,
            goal=_LEAST_KEPT,
            unit="requests/CPU s",
        )
    ]


def _tail(rounds: Mapping[str, Sequence[Measured]]) -> Ratio:
    logged, unlogged = (median(one.load.p99_ms for one in rounds[name]) for name in (LOGGED, UNLOGGED))
    name = f"p99 of GET, {LOGGED} / {UNLOGGED}, {CONNECTIONS} connections"
    limit = _LONGEST_TAIL * unlogged
    return smaller_is_better(name, logged, unlogged, commit=limit, goal=limit, unit="ms")


def _count_rows(database_url: str) -> int:
    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            found: int = connection.execute(text("SELECT count(*) FROM predictions")).scalar_one()
    finally:
        engine.dispose()
    return found


def _await_rows(database_url: str, num_expected: int) -> int:
    """The rows of the log, once there are enough or no more come."""
    end = time.monotonic() + _SETTLE_SECONDS
    while (found := _count_rows(database_url)) < num_expected and time.monotonic() < end:
        time.sleep(1)
    return found
