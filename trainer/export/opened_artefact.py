"""Open and verify a kept artefact as the service does, in plain ONNX Runtime.

Nothing here needs torch, so neither do processes that only score, such as live scoring.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions

from contracts.errors import ArtefactRefused
from contracts.manifest import EXPERTS_FILE, GRAPH_FILE, RATE_FILE, Manifest, check_probe, read_artefact
from contracts.task import Task
from store.events.reading.columns import EventColumns

_ERRORS_ONLY = 3


@dataclass(frozen=True)
class Artefact:
    """A model that was read from a folder: its manifest, its task, and a session on the graph of values.

    `experts` is a session on the graph of experts, if there is one and it was opened.
    """

    manifest: Manifest
    task: Task
    session: InferenceSession
    experts: InferenceSession | None = None


def open_artefact(folder: Path) -> Artefact:
    """Read an artefact once, check its files, and verify the graph of values by the probe. Raises ArtefactRefused.

    The rate graph is checked against its checksum but not opened: nothing in the trainer uses it.
    """
    manifest, files = read_artefact(folder)
    return _open(manifest, files)


def with_experts(artefact: Artefact, folder: Path) -> Artefact:
    """The artefact with its graph of experts, if it has one, opened from its folder. Raises ArtefactRefused."""
    if artefact.manifest.experts is None:
        return artefact
    try:
        graph = (folder / EXPERTS_FILE).read_bytes()
        if hashlib.sha256(graph).hexdigest() != artefact.manifest.experts.checksum:
            raise ArtefactRefused(f"{EXPERTS_FILE} has another checksum than the manifest says.")
        return replace(artefact, experts=open_graph(graph))
    except OSError as error:
        raise ArtefactRefused(f"{EXPERTS_FILE} cannot be read: {error}") from error


def verify_artefact(folder: Path) -> Artefact:
    """Read an artefact and verify both graphs by the probe, as the service does. Raises ArtefactRefused."""
    manifest, files = read_artefact(folder)
    artefact = _open(manifest, files)
    _open_verified(manifest, RATE_FILE, files[RATE_FILE])
    return artefact


def _open(manifest: Manifest, files: Mapping[str, bytes]) -> Artefact:
    return Artefact(manifest, manifest.parse_task(), _open_verified(manifest, GRAPH_FILE, files[GRAPH_FILE]))


def _open_verified(manifest: Manifest, name: str, graph: bytes) -> InferenceSession:
    try:
        session = open_graph(graph)
    except Exception as error:  # ONNX Runtime's errors have no common base class
        raise ArtefactRefused(f"{name} cannot be loaded: {error}") from error
    check_probe(manifest, session.run, with_rates=name == RATE_FILE)
    return session


def open_graph(graph: bytes) -> InferenceSession:
    """A session on one thread: for small graphs, handing work to other threads costs more than it gains.

    It returns its memory after each block of rows: a cycle opens dozens of fits and keeps them open.
    """
    options = SessionOptions()
    options.enable_cpu_mem_arena = False
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def raw_categories(rows: EventColumns) -> NDArray[np.object_]:
    """Categories as the graph reads them: an array `(n, q)` of str."""
    categories = np.empty(rows.categories.shape, object)
    for j, vocabulary in enumerate(rows.vocabularies):
        categories[:, j] = np.array(vocabulary, object)[rows.categories[:, j]]
    return categories
