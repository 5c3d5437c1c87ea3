"""What the default recipe costs in an answer: LightGBM's trees next to the network, and numbers read by pieces.

Each version is compared with one that lacks the part. The graphs are also run alone, as the service opens them: the
least CPU time of many bursts is what a graph takes on a machine of its own.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import InferenceSession

from benchmarks.ratios import Ratio, larger_is_better, smaller_is_better
from benchmarks.serving.release import AMOUNTS, MIXTURE, PIECES, Released
from benchmarks.serving.rounds import Asked, Measured, compare
from benchmarks.serving.swaps import CONNECTIONS
from contracts.clock import parse_moment
from contracts.manifest import GRAPH_FILE, Feed, graph_feed
from contracts.task import Task
from service.models.graph_sessions import open_session
from trainer.tracking.registry import Registry

Rounds = Mapping[str, Sequence[Measured]]
# Runs rounds of load by a title, servers and a number of connections.
RunRounds = Callable[[str, dict[str, Asked], int], Rounds]

# What is compared, by the names of the versions.
_COMPARED = {
    "network and LightGBM / network alone": (MIXTURE, PIECES),
    "numbers by pieces / as amounts": (PIECES, AMOUNTS),
}
# The least share of its requests that a version keeps with the trees.
_LEAST_KEPT = 0.9
_BATCHES = (1, 16)
_NUM_BURSTS, _RUNS_PER_BURST = 60, 200


def measure_recipes(
    run: RunRounds, asked: Mapping[str, Asked], released: Sequence[Released], mlflow_url: str, folder: Path
) -> tuple[list[Ratio], list[str]]:
    """The ratios of the versions, by load and of their graphs alone, and lines that say what was compared."""
    busy = run(f"GET, {CONNECTIONS} connections", dict(asked), CONNECTIONS)
    calm = run("GET, 1 connection", dict(asked), 1)
    graphs = {one.task.name: _read_graph(one, mlflow_url, folder) for one in released}
    rows = {one.task.name: one.events for one in released}
    costs = {
        (name, count): _least_cpu(open_session(graph, 1), feed_of(task, rows[name], count))
        for name, (task, graph) in graphs.items()
        for count in _BATCHES
    }
    said = [
        f"graph of {name}: {len(graph) / 1000:,.0f} kB, {_count_trees(graph)} trees"
        for name, (_, graph) in graphs.items()
    ]
    said += [f"graph of {name}, {count} row(s): {1e6 * cost:.1f} CPU µs" for (name, count), cost in costs.items()]
    return [*_rates(busy, calm), *_costs(costs)], said


def feed_of(task: Task, events: Sequence[Mapping[str, Any]], count: int) -> Feed:
    """Inputs of a graph for the first rows."""
    chosen = events[:count]
    return graph_feed(
        task,
        np.array([parse_moment(row["at"]) for row in chosen], np.int64),
        np.array([[_number(row["features"][one.name]) for one in task.numbers] for row in chosen], np.float64),
        np.array([[row["features"][one.name] for one in task.categories] for row in chosen], object),
    )


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _rates(busy: Rounds, calm: Rounds) -> Iterator[Ratio]:
    for name, (ours, other) in _COMPARED.items():
        for rounds, connections in ((busy, f"{CONNECTIONS} connections"), (calm, "1 connection")):
            found = compare(rounds[ours], rounds[other], lambda one: one.cpu_rate)
            yield larger_is_better(
                f"GET /predict, {name}, {connections}",
                found.ours,
                found.yardstick,
                ratio=found.ratio,
                commit=_LEAST_KEPT,
                goal=1,
                unit="requests/CPU s",
            )


def _costs(costs: Mapping[tuple[str, int], float]) -> Iterator[Ratio]:
    for name, (ours, other) in _COMPARED.items():
        for count in _BATCHES:
            mine, plain = (1e6 * costs[one, count] / count for one in (ours, other))
            rows = f"{count} rows" if count > 1 else "1 row"
            yield smaller_is_better(
                f"graph of {name}, {rows}", mine, plain, commit=1.5 * plain, goal=1.1 * plain, unit="CPU µs a row"
            )


def _read_graph(released: Released, mlflow_url: str, folder: Path) -> tuple[Task, bytes]:
    files = folder / released.task.name
    files.mkdir(parents=True)
    Registry(mlflow_url).fetch(released.task.name, released.version, files)
    return released.task, (files / GRAPH_FILE).read_bytes()


def _count_trees(graph: bytes) -> int:
    """The trees in all ensembles of a graph."""
    return sum(
        len({*attribute.ints})
        for node in onnx.load_from_string(graph).graph.node
        for attribute in node.attribute
        if attribute.name == "nodes_treeids"
    )


def _least_cpu(session: InferenceSession, feed: Feed) -> float:
    """CPU seconds of a run, in the quickest of many bursts."""
    names, bursts = [output.name for output in session.get_outputs()], list[float]()
    for _ in range(_NUM_BURSTS):
        began = time.process_time()
        for _run in range(_RUNS_PER_BURST):
            session.run(names, feed)
        bursts.append((time.process_time() - began) / _RUNS_PER_BURST)
    return min(bursts)
