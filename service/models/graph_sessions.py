"""The graphs of a version in ONNX Runtime: one is opened at once, the graph of rates at the first request for rates."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import onnxruntime
import structlog
from numpy.typing import NDArray

from contracts.errors import ArtefactRefused
from contracts.manifest import RATE_FILE, VOCABULARIES, Feed, Manifest, check_probe
from service.errors import RateRefused

NUM_ROWS_PER_RUN = 256

# The outputs of one row: a probability per class, or mean and scale.
Values = Sequence[float]

log = structlog.get_logger(__name__)


def open_session(graph: Path | bytes, threads: int) -> onnxruntime.InferenceSession:
    """Open a session on `threads` threads. Raises ArtefactRefused.

    Files are read without the interpreter's lock. Parsing bytes holds the lock, for seconds if the graph is large.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    source = str(graph) if isinstance(graph, Path) else graph
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no root in common
        words = str(error) if isinstance(source, bytes) else str(error).replace(source, Path(source).name)
        raise ArtefactRefused(f"The graph cannot be loaded: {words}") from error


def run_by_row(session: onnxruntime.InferenceSession, names: Sequence[str], feed: Feed) -> list[Values]:
    """The graph's values for each row, finite or not."""
    found: list[Values] = []
    for part in split_feed(feed, NUM_ROWS_PER_RUN):
        found += by_row(session.run(names, part))
    return found


def by_row(outputs: Sequence[NDArray[Any]]) -> list[Values]:
    """The values of each row, from one output `(n, C)` or two `(n,)`."""
    if len(outputs) == 1:
        shares: list[Values] = outputs[0].tolist()
        return shares
    return list(zip(*(output.tolist() for output in outputs), strict=True))


def split_feed(feed: Feed, most: int) -> list[Feed]:
    """The rows of a feed in parts of at most `most` rows; no part if there are no rows."""
    count = len(feed["at"])
    if 0 < count <= most:
        return [feed]
    return [{name: column[start : start + most] for name, column in feed.items()} for start in range(0, count, most)]


def read_vocabularies(session: onnxruntime.InferenceSession) -> list[list[str]]:
    """The values that each category feature had in enough rows of the fit; empty if an older Morrow made the graph.

    Raises ArtefactRefused.
    """
    written = session.get_modelmeta().custom_metadata_map.get(VOCABULARIES)
    if written is None:
        return []
    try:
        return msgspec.json.decode(written, type=list[list[str]])
    except msgspec.MsgspecError as error:
        raise ArtefactRefused(f"The graph's vocabularies cannot be read: {error}") from error


class RateGraph:
    """`rate.onnx` of one version, opened and checked against the probe once, by the first thread that needs it."""

    def __init__(self, graph: bytes, manifest: Manifest, version: str, threads: int) -> None:
        self._graph = graph
        self._manifest = manifest
        self._version = version
        self._threads = threads
        self._lock = threading.Lock()
        self._session: onnxruntime.InferenceSession | None = None
        self._refused: str | None = None

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        """The rates of the graph's answers, per second, in the order of `Manifest.rate_names`. Raises RateRefused."""
        found: list[NDArray[Any]] = self._open().run(self._manifest.rate_names, feed)
        return found

    def _open(self) -> onnxruntime.InferenceSession:
        with self._lock:
            if self._session is None and self._refused is None:
                try:
                    session = open_session(self._graph, self._threads)
                    check_probe(self._manifest, session.run, with_rates=True)
                    self._session = session
                except ArtefactRefused as error:
                    self._refused = str(error)
                    log.error("rates.refused", version=self._version, file=RATE_FILE, reason=self._refused)
                self._graph = b""
            if self._session is None:
                raise RateRefused(f"Version {self._version} cannot give rates: {self._refused}")
            return self._session
