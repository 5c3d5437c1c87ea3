"""Checks the answers of /predict against the graphs of the versions that they name, and against what was released when.

The graphs are read from the registry and run by ONNX Runtime alone, without the service. A state is a champion with its
bound; it lasts from one row of `releases` to the next. A process may follow late, and how late an answer was is
reported. An answer from a state that never existed is a fault.
"""

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from sqlalchemy import Engine

from benchmarks.mixed.clients import Heard
from benchmarks.mixed.stream import Row
from contracts.clock import format_moment, parse_moment
from contracts.manifest import GRAPH_FILE, Manifest, graph_feed, read_manifest
from service.models.registry.client import download_version, make_client
from store.releases import CHAMPION_ACTIONS, list_releases
from store.tasks.catalog import Schema

# Between one row and many, float32 sums differ in their last digits.
_TOLERANCE = 1e-5

State = tuple[str, int]


@dataclass(frozen=True)
class Version:
    """A released version, read from the registry."""

    manifest: Manifest
    session: onnxruntime.InferenceSession

    def answer(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        """Probabilities `(n, classes)`."""
        feed = graph_feed(
            self.manifest.parse_task(),
            np.array([row.at for row in rows], np.int64),
            np.array([[row.x] for row in rows], np.float64),
            np.array([[row.kind] for row in rows], object),
        )
        found: NDArray[np.float64] = self.session.run(["probabilities"], feed)[0].astype(np.float64)
        return found


@dataclass
class Verdict:
    """Counts of answers and refusals, by version, and what was wrong with them."""

    num_answers: int = 0
    num_refusals: int = 0
    answers_of: Counter[str] = field(default_factory=Counter)
    largest_difference: float = 0.0
    latest_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.num_answers} answers of {len(self.answers_of)} versions and {self.num_refusals} refusals: "
            f"{len(self.faults)} wrong, largest difference from the graph {self.largest_difference:.1e}, "
            f"the latest came {self.latest_seconds:.1f} s after the next state was recorded"
        )


def hold(heard: Sequence[Heard], engine: Engine, schema: Schema, mlflow_url: str, folder: Path) -> Verdict:
    """Judge every reply. The versions' files are copied into `folder`."""
    states = read_states(engine, schema.task_id)
    versions = {
        version: _load(mlflow_url, schema.task.name, version, folder) for version in {name for name, _ in states}
    }
    verdict = Verdict()
    by_version: dict[str, list[tuple[Row, dict[str, Any]]]] = {}
    for one in heard:
        for state, rows, bodies in _claims(one):
            if state not in states or state[0] not in versions:
                verdict.faults.append(f"{state} was never released: {one}")
                continue
            late = min(max(0.0, one.sent - end) for _, end in states[state])
            verdict.latest_seconds = max(verdict.latest_seconds, late)
            inside = [versions[state[0]].manifest.trained_from <= row.at <= state[1] for row in rows]
            if bodies is None:
                verdict.num_refusals += 1
                if all(inside):
                    verdict.faults.append(f"refused inside of {state}: {one}")
            elif not all(inside):
                verdict.faults.append(f"answered outside of {state}: {one}")
            else:
                verdict.num_answers += len(rows)
                verdict.answers_of[state[0]] += len(rows)
                by_version.setdefault(state[0], []).extend(zip(rows, bodies, strict=True))
    for name, answers in by_version.items():
        _compare(versions[name], answers, verdict)
    return verdict


def read_states(engine: Engine, task_id: int) -> Mapping[State, list[tuple[float, float]]]:
    """Every state, with the spans of time (seconds since the epoch) in which it was the newest."""
    with engine.connect() as connection:
        rows = list_releases(connection, task_id, limit=100_000, with_calibration=False)[::-1]
    bounds: dict[str, int] = {}
    spans: dict[State, list[tuple[float, float]]] = {}
    champion, state, began = "", None, 0.0
    for row in rows:
        bounds[row.version] = row.valid_until
        champion = row.version if row.action in CHAMPION_ACTIONS else champion
        following = (champion, bounds[champion]) if champion else None
        if following == state:
            continue
        if state is not None:
            spans.setdefault(state, []).append((began, row.at.timestamp()))
        state, began = following, row.at.timestamp()
    if state is not None:
        spans.setdefault(state, []).append((began, math.inf))
    return spans


def _claims(one: Heard) -> Iterator[tuple[State, Sequence[Row], list[dict[str, Any]] | None]]:
    """(state, rows, answers) of everything that a reply says; a refusal has no answers."""
    if one.status == 200:
        bodies: list[dict[str, Any]] = one.body.get("answers", [one.body])
        for body, row in zip(bodies, one.asked, strict=True):
            yield (body["version"], parse_moment(body["valid_until"])), [row], [body]
    elif one.status == 422:
        yield (one.body["version"], parse_moment(one.body["valid_until"])), one.asked, None


def _compare(version: Version, answers: Sequence[tuple[Row, dict[str, Any]]], verdict: Verdict) -> None:
    classes = version.manifest.classes
    said = np.array([[body["probabilities"][name] for name in classes] for _, body in answers])
    expected = version.answer([row for row, _ in answers])
    difference = np.abs(said - expected).max(axis=1)
    verdict.largest_difference = max(verdict.largest_difference, float(difference.max()))
    is_right = np.isfinite(said).all(axis=1) & (difference <= _TOLERANCE) & (np.abs(said.sum(axis=1) - 1) <= _TOLERANCE)
    for (row, body), right, likeliest in zip(answers, is_right, said.argmax(axis=1), strict=True):
        if not right or body["prediction"] != classes[likeliest] or body["at"] != format_moment(row.at):
            verdict.faults.append(f"{row} was answered {body}")


def _load(mlflow_url: str, task: str, version: str, folder: Path) -> Version:
    copy = folder / version
    copy.mkdir(parents=True)
    with make_client(mlflow_url) as client:
        download_version(client, task, version, copy, stopping=threading.Event())
    session = onnxruntime.InferenceSession((copy / GRAPH_FILE).read_bytes(), providers=["CPUExecutionProvider"])
    return Version(read_manifest(copy), session)
