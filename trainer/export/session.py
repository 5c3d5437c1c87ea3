"""A kept graph, opened and proved as the service would, in bare ONNX Runtime.

Whoever only scores (the trainer's live job, replay) loads no torch for it.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions

from contracts.errors import ArtefactRefused
from contracts.manifest import GRAPH_FILE, RATE_FILE, Manifest, check_probe, read_manifest
from store.columns import EventColumns

_ERRORS_ONLY = 3


def verify_artefact(folder: Path) -> InferenceSession:
    """Load an artefact as the service would, in bare ONNX Runtime, and ask both graphs the probe; the one of values.

    Raises ArtefactRefused.
    """
    manifest = read_manifest(folder)
    session = _prove(folder, manifest, GRAPH_FILE)
    _prove(folder, manifest, RATE_FILE)
    return session


def _prove(folder: Path, manifest: Manifest, name: str) -> InferenceSession:
    try:
        session = open_graph((folder / name).read_bytes())
    except Exception as error:  # a runtime's errors have no root in common
        raise ArtefactRefused(f"{name} cannot be loaded: {error}") from error
    check_probe(manifest, session.run, with_rates=name == RATE_FILE)
    return session


def open_graph(graph: bytes) -> InferenceSession:
    """A session on one thread of its own: small graphs lose more by handing work over than they gain."""
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def raw_categories(rows: EventColumns) -> NDArray[np.object_]:
    """Categories as the graph reads them, `(n, q)` of str."""
    categories = np.empty(rows.categories.shape, object)
    for j, vocabulary in enumerate(rows.vocabularies):
        categories[:, j] = np.array(vocabulary, object)[rows.categories[:, j]]
    return categories
